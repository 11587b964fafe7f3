"""The suite's own test: every kernel is deterministic, judged rightly, and worth optimising.

Run: python -m tirgym.benchmarks.suite_lint --json

The rules are the functions of `KERNEL_RULES`, `measured` and `no_duplicates`; each names the
promise that a finding breaks.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.errors import EvaluationError, IllegalTransformError
from tirgym.harness.evaluation import Level, Measurement
from tirgym.harness.status import Status
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.hand_schedules import HAND_SCHEDULES, hand_schedule
from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Shape, Workload
from tirgym.kernels_suite.problem import build_of, make_inputs, reference_of, tensors
from tirgym.kernels_suite.registry import list_kernels, load_kernel

if TYPE_CHECKING:
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.program import Program

__all__ = ["Finding", "KernelFigures", "LintReport", "lint"]

MEMORY_BYTES = 256 << 20
NAIVE_US = (50.0, 50_000.0)
HEADROOM = 1.2
"""A known schedule must beat naive by this factor, by the lower end of its interval."""
CONTROL = "control"
"""Tag of kernels without known headroom."""
MAX_CONTROLS = 6
ATTEMPTS = 5
"""Measurements of a program whose timings are noisy."""
Progress = Callable[[int, int, str], None]
Findings = Iterator["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    kernel: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """What was measured for one kernel at its first train shape."""

    kernel: str
    naive_us: float | None
    """None if it did not pass"""
    speedup: float | None
    """of the known schedule; None without one"""
    speedup_ci: tuple[float, float] | None
    control: bool


@dataclass(frozen=True, slots=True)
class LintReport:
    """Outcome of a lint. `ok` iff there is no finding."""

    kernels: tuple[str, ...]
    findings: tuple[Finding, ...]
    figures: tuple[KernelFigures, ...]
    """empty in quick mode"""
    quick: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every promise holds."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"ok": self.ok, **asdict(self)}


def lint(
    kernels: Sequence[str] | None = None,
    quick: bool = False,
    progress: Progress | None = None,
    *,
    suite: str = "core-v0",
    evaluator: LocalEvaluator | None = None,
) -> LintReport:
    """Check `kernels` (default: all of `suite`), on one thread of this machine.

    `quick` looks at tiny shapes alone and measures nothing. `progress(done, total, label)` is
    called before each kernel and once at the end. Raises UnknownNameError for unknown names.
    """
    chosen = list_kernels(suite) if kernels is None else tuple(load_kernel(k) for k in kernels)
    started = time.perf_counter()
    findings: list[Finding] = []
    figures: list[KernelFigures] = []
    with ExitStack() as stack:
        judge = evaluator or stack.enter_context(_evaluator())
        for done, kernel in enumerate(chosen):
            if progress is not None:
                progress(done, len(chosen), kernel.name)
            for rule in KERNEL_RULES:
                findings.extend(rule(kernel))
            shapes = [kernel.tiny_shape] if quick else _shapes(kernel)
            findings.extend(agrees_with_the_reference(kernel, shapes, judge))
            if not quick:
                found, row = measured(kernel, judge)
                findings.extend(found)
                figures.append(row)
    findings.extend(no_duplicates(chosen))
    findings.extend(few_controls(chosen))
    if progress is not None:
        progress(len(chosen), len(chosen), "done")
    names = tuple(kernel.name for kernel in chosen)
    seconds = time.perf_counter() - started
    return LintReport(names, tuple(findings), tuple(figures), quick, seconds)


def _evaluator() -> LocalEvaluator:
    from tirgym.harness.local_evaluator import LocalEvaluator

    return LocalEvaluator(store=":memory:")


def _start(workload: Workload) -> Program:
    from tirgym.harness.backend import backend

    llvm = backend("llvm")
    return llvm.start(workload, llvm.target())


def _shapes(kernel: Kernel) -> list[Shape]:
    return [kernel.tiny_shape, *kernel.train, *kernel.holdout]


def _draw(workload: Workload, seed: int, regime: Regime = Regime.NORMAL) -> tuple[Array, ...]:
    return make_inputs(workload, np.random.default_rng(seed), regime)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


# --- rules that need no compiler run -------------------------------------------------------------


def deterministic(kernel: Kernel) -> Findings:
    """Building, drawing and judging twice gives the same program, inputs and references."""
    import tvm_ffi

    workload = Workload.of(kernel, kernel.tiny_shape)
    hashes = {tvm_ffi.structural_hash(kernel.build(workload.shape)) for _ in range(2)}
    if len(hashes) > 1:
        yield Finding(kernel.name, "deterministic build", "two builds differ")
    for regime in Regime:
        inputs = _draw(workload, 1, regime)
        if not _same(inputs, _draw(workload, 1, regime)):
            yield Finding(kernel.name, "deterministic inputs", f"{regime}: two draws differ")
        if any(a.dtype.kind == "f" and np.isnan(a).any() for a in inputs):
            yield Finding(kernel.name, "inputs without NaN", f"{regime}: an input holds a NaN")
        if not _same(reference_of(workload, inputs), reference_of(workload, inputs)):
            yield Finding(kernel.name, "deterministic reference", f"{regime}: two calls differ")


def depends_on_every_input(kernel: Kernel) -> Findings:
    """A new draw of any one input changes some output."""
    workload = Workload.of(kernel, kernel.tiny_shape)
    first, second = _draw(workload, 1), _draw(workload, 2)
    before = reference_of(workload, first)
    for i, tensor in enumerate(tensors(workload)[0]):
        after = reference_of(workload, (*first[:i], second[i], *first[i + 1 :]))
        if _same(before, after):
            yield Finding(kernel.name, "depends on every input", f"{tensor.name} changes nothing")


def varies_over_every_axis(kernel: Kernel) -> Findings:
    """No output repeats itself along an axis, where the tiny shape has more than one element."""
    workload = Workload.of(kernel, kernel.tiny_shape)
    outputs = reference_of(workload, _draw(workload, 1))
    for output, tensor in zip(outputs, tensors(workload)[1], strict=True):
        for axis, extent in enumerate(output.shape):
            if extent > 1 and not np.diff(output, axis=axis).any():
                message = f"{tensor.name} is constant along axis {axis}"
                yield Finding(kernel.name, "varies over every axis", message)


def within_memory(kernel: Kernel) -> Findings:
    """Parameters and intermediates of the unscheduled program stay below 256 MiB."""
    for shape in _shapes(kernel):
        workload = Workload.of(kernel, shape)
        held = sum(t.nbytes for group in tensors(workload) for t in group)
        for buffer in build_of(workload).body.block.alloc_buffers:
            size = math.prod(int(extent) for extent in buffer.shape)
            held += size * np.dtype(str(buffer.dtype)).itemsize
        if held > MEMORY_BYTES:
            yield Finding(kernel.name, "memory", f"{workload} takes {held >> 20} MiB")


def has_shapes(kernel: Kernel) -> Findings:
    """There are a tiny shape and holdout shapes, and no agent trains on a holdout shape."""
    if not kernel.tiny or not kernel.holdout:
        yield Finding(kernel.name, "shapes", "no tiny shape or no holdout shape")
    train = [dict(shape) for shape in kernel.train]
    for shape in kernel.holdout:
        if dict(shape) in train:
            yield Finding(kernel.name, "shapes", f"holdout shape {dict(shape)} is a train shape")


KERNEL_RULES: tuple[Callable[[Kernel], Findings], ...] = (
    deterministic,
    depends_on_every_input,
    varies_over_every_axis,
    within_memory,
    has_shapes,
)


def no_duplicates(kernels: Sequence[Kernel]) -> Findings:
    """No two kernels have the same IR when all dimensions are 16; names do not count."""
    import tvm_ffi

    by_hash: dict[int, list[str]] = defaultdict(list)
    for kernel in kernels:
        func = build_of(Workload.of(kernel, dict.fromkeys(kernel.dims, 16)))
        by_hash[tvm_ffi.structural_hash(func)].append(kernel.name)
    for first, *others in by_hash.values():
        for other in others:
            yield Finding(other, "no duplicates", f"the same IR as {first}")


def few_controls(kernels: Sequence[Kernel]) -> Findings:
    """At most 6 kernels may go without known headroom."""
    controls = [kernel.name for kernel in kernels if CONTROL in kernel.tags]
    if len(controls) > MAX_CONTROLS:
        message = f"{len(controls)} kernels are labelled {CONTROL}, at most {MAX_CONTROLS} may be"
        yield Finding(controls[-1], "few controls", message)


# --- rules that compile and run ------------------------------------------------------------------


def agrees_with_the_reference(
    kernel: Kernel, shapes: Sequence[Shape], evaluator: LocalEvaluator
) -> Findings:
    """The unscheduled program passes its own gate, in every regime and shape."""
    for shape in shapes:
        workload = Workload.of(kernel, shape)
        try:
            check = evaluator.check(_start(workload), Level.FULL)
        except EvaluationError as error:  # the workload cannot be prepared: it fails its own gate
            yield Finding(kernel.name, "agrees with the reference", str(error))
            continue
        if check.status is not Status.PASSED:
            message = f"{workload}: {check.status}: {check.message}"
            yield Finding(kernel.name, "agrees with the reference", message)


def measured(kernel: Kernel, evaluator: LocalEvaluator) -> tuple[list[Finding], KernelFigures]:
    """Naive time in range, and headroom shown by the hand schedule unless labelled `control`."""
    start, control = _start(Workload.of(kernel)), CONTROL in kernel.tags
    naive, problem = _number(start, evaluator)
    if naive is None:
        finding = Finding(kernel.name, "naive time", f"the unscheduled program: {problem}")
        return [finding], KernelFigures(kernel.name, None, None, None, control)
    findings: list[Finding] = []
    if not NAIVE_US[0] <= naive.latency_us <= NAIVE_US[1]:
        accepted = f"{NAIVE_US[0]:.0f} to {NAIVE_US[1]:.0f} µs"
        message = f"{naive.latency_us:.0f} µs is outside {accepted}"
        findings.append(Finding(kernel.name, "naive time", message))
    best, problem = _known(start, evaluator)
    if best is not None and best.speedup_ci[0] < HEADROOM:
        low, high = best.speedup_ci
        problem = f"the hand schedule gives {best.speedup:.2f}x ({low:.2f} to {high:.2f})"
    if problem and not control:
        findings.append(Finding(kernel.name, "headroom", problem))
    speedup, interval = (None, None) if best is None else (best.speedup, best.speedup_ci)
    return findings, KernelFigures(kernel.name, naive.latency_us, speedup, interval, control)


def _known(start: Program, evaluator: LocalEvaluator) -> tuple[Measurement | None, str]:
    """The hand schedule's measurement, or why there is none."""
    name = start.workload.kernel.name
    if name not in HAND_SCHEDULES:
        return None, f"no known schedule, and not labelled {CONTROL}"
    program = start
    try:
        for text in hand_schedule(name, start.target.num_threads):
            program = program.apply(parse_transform(text))
    except IllegalTransformError as error:
        return None, str(error)
    best, problem = _number(program, evaluator)
    return best, f"the hand schedule: {problem}" if problem else ""


def _number(program: Program, evaluator: LocalEvaluator) -> tuple[Measurement | None, str]:
    """A full measurement, tried again while it is only noisy, or why there is none."""
    for _ in range(ATTEMPTS):
        try:
            evaluation = evaluator.evaluate(program, Level.FULL)
        except EvaluationError as error:  # the workload cannot be prepared
            return None, str(error)
        if evaluation.status is not Status.NOISY:
            break
    problem = "" if evaluation.passed else f"{evaluation.status}: {evaluation.message}"
    return evaluation.measurement, problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 without a finding, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="default: every kernel of core-v0")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, nothing measured")
    parser.add_argument("--json", action="store_true", help="the whole report on stdout")
    given = parser.parse_args(arguments)

    def announce(done: int, total: int, label: str) -> None:
        print(f"\r\x1b[K{done}/{total} {label}", end="", file=sys.stderr, flush=True)

    report = lint(given.kernels or None, given.quick, announce if sys.stderr.isatty() else None)
    if given.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for row in report.figures:
            gain = "control" if row.speedup is None else f"{row.speedup:.2f}x"
            print(f"{row.kernel:22s} {row.naive_us or math.nan:10.1f} µs  {gain}")
        for finding in report.findings:
            print(f"{finding.kernel}: {finding.rule}: {finding.message}")
        print(f"{len(report.findings)} findings, {report.seconds:.0f} s")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
