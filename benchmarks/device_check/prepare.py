"""TVM's CUDA programs for a machine with a GPU and without TVM.

    python -m tirgym.benchmarks.device_check.prepare --out DIR --arch sm_90

Needs TVM and no GPU. For each kernel: the unscheduled program, the compiler's default schedule, tiled
products, random schedules, and traces that are given; each passes the serial check first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

from tirgym.benchmarks.device_check.candidates import Candidate, candidates, traced
from tirgym.errors import InvalidValueError, TirgymError, UnknownNameError
from tirgym.harness.backend import backend
from tirgym.harness.backends.tvm_device import TVMDeviceBackend
from tirgym.harness.cost import static_cost_model
from tirgym.harness.cuda.compiling import COMPILERS, compiler_here
from tirgym.harness.cuda.prepared import (
    MAX_BYTES,
    PreparedKernel,
    PreparedProgram,
)
from tirgym.harness.cuda.program import Problem
from tirgym.harness.evaluation import Level
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.semantic import on_cpu, semantic_check
from tirgym.harness.status import Status
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Shape, Workload
from tirgym.kernels_suite.problem import bytes_of, flops_of, tensors, terms_of
from tirgym.kernels_suite.registry import load_workload

__all__ = ["SIZES", "Preparation", "main", "prepared_kernel"]

SIZES: Mapping[str, tuple[Shape, Shape]] = {
    "matmul": ({"m": 1024, "n": 1024, "k": 1024}, {"m": 128, "n": 128, "k": 64}),
    "softmax": ({"m": 2048, "n": 4096}, {"m": 32, "n": 512}),
    "layernorm": ({"m": 2048, "n": 4096}, {"m": 32, "n": 512}),
    "attention": ({"heads": 16, "n": 512, "d": 64}, {"heads": 2, "n": 64, "d": 64}),
    "transpose": ({"m": 4096, "n": 4096}, {"m": 128, "n": 64}),
}
"""Kernel of core-v0 → the size that is timed, and the size at which every schedule is checked here: the
same factors divide both."""
LEAST_THREADS = 2048
"""of every kernel of a random schedule; with fewer a GPU may take minutes"""
_PREDICTED_BY = "static cost of TensorIR, whose prices are those of a CPU's core"
Say = Callable[[str], None]


class Preparation:
    """What makes and checks programs of one architecture."""

    def __init__(
        self, arch: str, compiler: str | None, evaluator: LocalEvaluator, say: Say
    ) -> None:
        made = backend("cuda")
        assert isinstance(made, TVMDeviceBackend)
        self.backend, self.target = made, made.target(arch)
        self._compiler, self._evaluator, self._say = compiler, evaluator, say
        self._cost = static_cost_model("cuda")
        made_by = {} if compiler is None else {"cubins": COMPILERS[compiler].version()}
        self.versions = {**compiler_versions("cuda"), **made_by}

    def prepared(self, candidate: Candidate) -> PreparedProgram | None:
        """Checked and compiled, or None with a line that says why not."""
        try:
            return self._prepared(candidate)
        except (TirgymError, RuntimeError, ValueError) as error:  # TVM raises the last two
            self._say(f"{candidate.name} is left out: {str(error).strip().splitlines()[0][:200]}")
            return None

    def _prepared(self, candidate: Candidate) -> PreparedProgram | None:
        code = self.backend.code(completed(candidate.timed), self.target)
        threads = min(prod((*step.grid, *step.block)) for step in code.launches)
        if candidate.random and threads < LEAST_THREADS:
            return None
        problem = self._problem(candidate)
        if problem:
            self._say(f"{candidate.name} is left out: {problem[:200]}")
            return None
        cubin = b""
        if self._compiler is not None:
            cubin = COMPILERS[self._compiler].compile(code.source, self.target.arch)
        steps = tuple(str(step) for step in candidate.timed.steps)
        predicted_us = self._cost.predict_us(candidate.timed)
        return PreparedProgram(candidate.name, steps, code, cubin, predicted_us)

    def _problem(self, candidate: Candidate) -> str:
        """What the serial check finds; "" if nothing.

        The compiler's own schedules let threads add up a sum together, which the rules about threads
        refuse and TVM makes shuffles of; of them the meaning alone is checked.
        """
        if candidate.by_compiler:
            found = self._evaluator.check(on_cpu(candidate.checked), Level.TRAINING)
            right = found.status is Status.PASSED
            return "" if right else f"{found.status}: {found.message}"
        verdict = semantic_check(candidate.checked, self._evaluator, Level.TRAINING)
        right = verdict.status is Status.SEMANTIC_ONLY
        return "" if right else f"{verdict.status}: {verdict.message}"


def prepared_kernel(
    timed: Workload,
    checked: Workload,
    preparation: Preparation,
    found: Sequence[Candidate],
    seed: int,
    randoms: int,
) -> PreparedKernel:
    """Every candidate that passes, equal code once; raises InvalidValueError unless the unscheduled one
    does."""
    kept: dict[str, PreparedProgram] = {}
    drawn = 0
    for candidate in found:
        if candidate.random and drawn >= randoms:
            continue
        made = preparation.prepared(candidate)
        if made is not None and made.code.code_key not in kept:
            kept[made.code.code_key] = made
            drawn += candidate.random
    return PreparedKernel(
        _problem(timed),
        preparation.target.arch,
        seed,
        checked.uri,
        _PREDICTED_BY,
        preparation.versions,
        tuple(kept.values()),
    )


def _problem(workload: Workload) -> Problem:
    inputs, outputs = tensors(workload)
    return Problem(
        workload.uri,
        (*inputs, *outputs),
        terms_of(workload),
        bytes_of(workload),
        flops_of(workload),
    )


def _workloads(kernel: str) -> tuple[Workload, Workload]:
    if kernel not in SIZES:
        raise UnknownNameError("kernel to prepare", kernel, SIZES)
    timed, checked = SIZES[kernel]
    return load_workload(kernel, timed), load_workload(kernel, checked)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when everything was prepared, 2 for bad usage."""
    given = _parser().parse_args(arguments)
    try:
        total = _prepare(given)
    except TirgymError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{given.out}: {total / 1024:.0f} KiB")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prepare", description="TVM's CUDA programs for a machine with a GPU and without TVM."
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", default=",".join(SIZES), help="names with commas between them")
    parser.add_argument("--random", type=int, default=3, help="random schedules of each kernel (3)")
    parser.add_argument(
        "--trace", type=Path, nargs="*", default=[], help="traces of these kernels, at any size"
    )
    parser.add_argument(
        "--source-only", action="store_true", help="no binaries: the device compiles (CuPy's NVRTC)"
    )
    return parser


def _prepare(given: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(f"prepare: {line}", file=sys.stderr, flush=True)

    compiler = None if given.source_only else compiler_here()
    if compiler is None and not given.source_only:
        say("neither nvcc nor CuPy's NVRTC is here: sources only")
    traces = {path.stem: Trace.load(path) for path in given.trace}
    total = 0
    with LocalEvaluator(store=":memory:") as evaluator:
        preparation = Preparation(given.arch, compiler, evaluator, say)
        for kernel in given.kernels.split(","):
            timed, checked = _workloads(kernel)
            say(f"{timed}")
            full, small = (
                preparation.backend.start(w, preparation.target) for w in (timed, checked)
            )
            found = [
                *candidates(full, small, given.seed, given.random),
                *traced(full, small, traces),
            ]
            made = prepared_kernel(timed, checked, preparation, found, given.seed, given.random)
            total += made.save(given.out).stat().st_size
            if total > MAX_BYTES:
                raise InvalidValueError("bytes prepared", total, f"at most {MAX_BYTES}")
    return total


if __name__ == "__main__":
    sys.exit(main())
