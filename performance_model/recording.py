"""`record`: fills a measurement store with varied programs of many kernels, to learn from.

A program is drawn in one of three ways, in rotation: answers to the compiler's own questions at
random, the static choices with a few of them changed, and random transforms of the default
vocabulary. Together they cover what search agents propose, good programs and bad ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.decisions import DecisionPoint, RandomAgent, Recommendation, design_space
from tirgym.harness.decisions.space import SPACES
from tirgym.harness.decisions.walk import Walk
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload

__all__ = ["Recorded", "Recording", "distinct", "proposals", "record"]

_TRIES = 8
"""Draws for each program that is wanted; small spaces have fewer programs than that."""
_DEEPEST = 14
"""Random transforms of one program at most."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer while recording."""

    workload: Workload
    number: int
    """programs of the workload so far"""
    wanted: int
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recording came to."""

    programs: int
    reused: int
    """whose verdict the store had already"""
    verdicts: Mapping[str, int]
    """how many there are of each status"""


class _NearStatic:
    """The static choice, but for a share of the questions a random one."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._share = float(rng.uniform(0.05, 0.5))
        self._rng, self._random = rng, RandomAgent(rng)

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The answer."""
        if self._rng.random() < self._share:
            return self._random.decide(point)
        return Recommendation(point.default)


def proposals(start: Program, seed: int) -> Iterator[Program]:
    """Programs of `start`'s workload without end; a function of `start` and `seed`. They may repeat.

    The first two are `start` itself and the static choices. Without a design space for the backend
    all are made of random transforms.
    """
    vocabulary = default_vocabulary(start.target.backend)
    root = design_space(start) if start.target.backend in SPACES else None
    yield start
    if root is not None:
        yield root.finish().program
    number = 0
    while True:
        rng = np.random.default_rng([seed, number])
        way = number % 4
        number += 1
        if root is None or way == 3:
            yield _walk_of_transforms(start, vocabulary, rng)
        else:
            yield _walk_of_answers(root, rng, near=way == 1)


def _walk_of_answers(root: Walk, rng: np.random.Generator, near: bool) -> Program:
    return root.follow(_NearStatic(rng) if near else RandomAgent(rng)).program


def _walk_of_transforms(
    program: Program, vocabulary: Vocabulary, rng: np.random.Generator
) -> Program:
    for _ in range(int(rng.integers(1, _DEEPEST + 1))):
        transform = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
        if transform is None:
            break
        program = program.apply(transform)
    return program


def distinct(start: Program, programs: int, seed: int) -> Iterator[Program]:
    """The first `programs` different proposals, as far as there are that many."""
    seen: set[str] = set()
    for tried, program in enumerate(proposals(start, seed)):
        if program.ir_key not in seen:
            seen.add(program.ir_key)
            yield program
        if len(seen) == programs or tried >= _TRIES * programs:
            return


def record(
    workloads: Sequence[Workload],
    target: Target,
    evaluator: Evaluator,
    programs: int = 64,
    seed: int = 0,
    on_verdict: Callable[[Recorded], None] | None = None,
) -> Recording:
    """Evaluate `programs` different programs of each workload; the evaluator stores the verdicts.

    Each verdict is stored when it falls, and the same arguments propose the same programs, so a
    recording that was ended goes on where it stopped. Small spaces give fewer programs. Raises
    InvalidValueError for a number below 1, and what `Evaluator.evaluate` raises.
    """
    if isinstance(programs, bool) or programs < 1:
        raise InvalidValueError("programs", programs, "a whole number of at least 1")
    verdicts: Counter[str] = Counter()
    reused = 0
    for workload in workloads:
        start = backend(target.backend).start(workload, target)
        for number, program in enumerate(distinct(start, programs, seed), 1):
            evaluation = evaluator.evaluate(program)
            verdicts[evaluation.status.value] += 1
            measured = evaluation.measurement
            reused += measured is not None and measured.reused
            if on_verdict is not None:
                on_verdict(Recorded(workload, number, programs, evaluation))
    return Recording(sum(verdicts.values()), reused, dict(sorted(verdicts.items())))
