"""`candidates`: schedules of one kernel worth taking to a GPU, each at two sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tirgym.benchmarks.device_check.tiled import TILES, tiled_product
from tirgym.errors import IllegalTransformError
from tirgym.harness.cuda.prepared import UNSCHEDULED
from tirgym.harness.default_schedule import default_program
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import random_program
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.transforms.base import Transform
from tirgym.kernels_suite.registry import load_workload, opens_file

__all__ = ["Candidate", "candidates", "traced"]

_DEPTH = (4, 14)
"""least and most transforms of a random schedule"""
_DRAWS = 8
"""walks for each random schedule that is wanted"""


@dataclass(frozen=True)
class Candidate:
    """One schedule."""

    name: str
    timed: TensorIRProgram
    """at the size that is timed"""
    checked: TensorIRProgram
    """the same schedule at a size that is small enough for the serial check"""
    random: bool = False
    by_compiler: bool = False
    """the compiler's own schedule, which no transforms made"""


def candidates(
    timed: TensorIRProgram, checked: TensorIRProgram, seed: int, randoms: int
) -> Iterator[Candidate]:
    """The unscheduled programs, the compiler's default, tiled products, and more random ones than are
    wanted, since many will be refused."""
    yield Candidate(UNSCHEDULED, timed, checked)
    chosen = [default_program(start.workload, start.target) for start in (timed, checked)]
    if chosen[0] is not None and chosen[1] is not None:
        yield Candidate(chosen[0][1], chosen[0][0], chosen[1][0], by_compiler=True)
    if timed.workload.kernel.name == "matmul":
        for tile in TILES:
            name = f"tiled {' '.join(map(str, tile))}"
            yield Candidate(name, tiled_product(timed, *tile), tiled_product(checked, *tile))
    yield from _random(timed, checked, seed, randoms)


def _random(
    timed: TensorIRProgram, checked: TensorIRProgram, seed: int, randoms: int
) -> Iterator[Candidate]:
    """Walks that are legal at both sizes."""
    name = timed.workload.kernel.name
    rng = np.random.default_rng([seed, *name.encode()])
    vocabulary = default_vocabulary(timed.target.backend)
    for number in range(_DRAWS * randoms):
        walked = random_program(timed, rng, int(rng.integers(*_DEPTH)), vocabulary)
        small = _played(checked, walked.steps)
        if small is not None:
            yield Candidate(f"random {number}", walked, small, random=True)


def traced(
    timed: TensorIRProgram, checked: TensorIRProgram, traces: Mapping[str, Trace]
) -> Iterator[Candidate]:
    """Traces by name, as far as they are of this kernel and legal at both sizes."""
    for name, trace in traces.items():
        other = opens_file(trace.workload) and not timed.workload.kernel.source
        if other or load_workload(trace.workload).kernel != timed.workload.kernel:
            continue
        steps = tuple(parse_transform(text) for text in trace.transforms)
        both = _played(timed, steps), _played(checked, steps)
        if both[0] is not None and both[1] is not None:
            yield Candidate(f"trace {name}", both[0], both[1])


def _played(start: TensorIRProgram, steps: tuple[Transform, ...]) -> TensorIRProgram | None:
    try:
        for step in steps:
            start = start.apply(step)
    except IllegalTransformError:
        return None
    return start
