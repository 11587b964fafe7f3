"""The semantic gate's own test: every fault put into Triton IR must be caught, stock IR must pass.

Run: python -m tirgym.benchmarks.triton_mutants --json (or tirgym gate selftest --backend triton)

Matmul and attention are compiled to TTIR and TTGIR for sm_80 and sm_90 and executed on NumPy, no
device needed; shapes are a few tiles with ragged ends, so that loops, rings of buffers, asynchronous
copies and every mask are at work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.benchmarks.gate_selftest import Control, MutantResult, SelftestReport
from tirgym.errors import UnknownNameError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status

if TYPE_CHECKING:
    from tirgym.harness.triton.executor.gate import SemanticGate
    from tirgym.harness.triton.executor.ir import Module

__all__ = ["ARCHITECTURES", "SUBJECTS", "Subject", "judge_subject", "kinds_of", "triton_selftest"]

ARCHITECTURES = ("sm_80", "sm_90")
LEVELS = ("ttir", "ttgir")
SUBJECTS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "matmul": (
        "tirgym://triton-v0/matmul?m=80&n=48&k=112&dtype=float16",
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "num_stages": 3},
    ),
    "attention": (
        "tirgym://triton-v0/attention?heads=3&n=112&d=48&dtype=float16",
        {"BLOCK_M": 64, "BLOCK_N": 32, "num_stages": 3},
    ),
}
"""Kernel → workload and configuration that every fault shows on."""

_BOTH = (
    "store_mask_dropped", "store_dropped", "predicate_changed", "loop_step",
    "first_iteration_skipped", "subtraction_swapped", "wrong_accumulator", "program_axis",
    "integer_scale",
)  # fmt: skip
_PIPELINED = ("wait_count", "last_wait_dropped", "copy_mask_dropped", "ring_wrap", "wrong_buffer")
_KINDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("matmul", "ttir"): (*_BOTH, "load_mask_dropped", "pointer_advance"),
    ("matmul", "ttgir"): (*_BOTH, *_PIPELINED, "pointer_advance"),
    ("attention", "ttir"): (*_BOTH, "load_mask_dropped", "sum_of_maxima"),
    ("attention", "ttgir"): (*_BOTH, *_PIPELINED, "load_mask_dropped", "sum_of_maxima"),
}
_WARP_GROUPS = ("product_wait_count",)
"""Only where the hardware multiplies by warp groups: sm_90."""


@dataclass(frozen=True)
class Subject:
    """A program to break, and the gate that must notice."""

    kernel: str
    arch: str
    level: str
    module: Module
    gate: SemanticGate

    @property
    def name(self) -> str:
        """ "matmul/sm_80/ttgir"."""
        return f"{self.kernel}/{self.arch}/{self.level}"


def kinds_of(kernel: str, arch: str, level: str) -> tuple[str, ...]:
    """Kinds of faults that must be caught there."""
    kinds = _KINDS[kernel, level]
    return (*kinds, *_WARP_GROUPS) if arch == "sm_90" and level == "ttgir" else kinds


def compiled_subjects(kernels: Sequence[str], archs: Sequence[str]) -> Iterator[Subject]:
    """Subjects compiled with the installed Triton; raises MissingExtraError without it."""
    from tirgym.harness.triton.compiling import compile_here
    from tirgym.harness.triton.executor.gate import SemanticGate
    from tirgym.harness.triton.executor.parser import parse_module
    from tirgym.harness.triton.request import CompileRequest
    from tirgym.kernels_suite.registry import load_workload

    for kernel in kernels:
        uri, config = SUBJECTS[kernel]
        workload = load_workload(uri)
        for arch in archs:
            request = CompileRequest.of(workload, arch, config, until="ttgir")
            texts = compile_here(request).texts
            gate = SemanticGate(workload, request.launch, texts["ttir"])
            for level in LEVELS:
                module = parse_module(texts[level], f"{kernel}.{level}")
                yield Subject(kernel, arch, level, module, gate)


def judge_subject(
    subject: Subject, kinds: Sequence[str] | None = None, level: Level = Level.FULL
) -> tuple[Control, list[MutantResult]]:
    """The verdict on the stock program, and on each of its mutants."""
    from tirgym.harness.triton.executor.mutants import mutate_module

    stock = subject.gate.check(subject.module, level, number=0)
    control = Control(subject.name, str(stock.status), stock.message)
    results = []
    for kind in (
        kinds if kinds is not None else kinds_of(subject.kernel, subject.arch, subject.level)
    ):
        began = time.perf_counter()
        mutant = mutate_module(kind, subject.module)
        if mutant is None:
            what = "the mutator found nothing to break"
            results.append(MutantResult(subject.name, kind, "no mutant", what, 0.0))
            continue
        found = subject.gate.check(mutant, level, number=0)
        seconds = round(time.perf_counter() - began, 4)
        results.append(MutantResult(subject.name, kind, str(found.status), found.message, seconds))
    return control, results


def triton_selftest(
    kernels: Sequence[str] | None = None,
    quick: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> SelftestReport:
    """Judge every mutant of `kernels` (default: all; `quick`: matmul on sm_90 alone).

    Raises UnknownNameError for a kernel that is no subject.
    """
    names = tuple(kernels) if kernels else ("matmul",) if quick else tuple(SUBJECTS)
    for name in names:
        if name not in SUBJECTS:
            raise UnknownNameError("kernel with faults in Triton IR", name, SUBJECTS)
    archs = ARCHITECTURES[-1:] if quick else ARCHITECTURES
    total = len(names) * len(archs) * len(LEVELS)
    started = time.perf_counter()
    controls: list[Control] = []
    results: list[MutantResult] = []
    for done, subject in enumerate(compiled_subjects(names, archs)):
        if progress is not None:
            progress(done, total, subject.name)
        control, found = judge_subject(subject)
        controls.append(control)
        results += found
    if progress is not None:
        progress(total, total, "done")
    seconds = time.perf_counter() - started
    level = str(Level.FULL)
    right = Status.SEMANTIC_ONLY
    return SelftestReport(tuple(results), tuple(controls), (), level, seconds, right)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when every fault was caught and stock IR is right, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help=f"default: {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="only matmul on sm_90")
    parser.add_argument("--json", action="store_true", help="the whole report on stdout")
    given = parser.parse_args(arguments)
    report = triton_selftest(given.kernels, given.quick)
    if given.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for kind, (killed, total) in report.killed_by("kind").items():
            print(f"{kind:24s} {killed:2d} of {total:2d} caught")
        for control in report.controls:
            print(f"{control.kernel:24s} {control.status} {control.message}")
        for mutant in report.survivors:
            print(f"SURVIVOR {mutant.kernel} {mutant.kind}: {mutant.status} {mutant.message}")
        print(f"{report.kill_rate:.1%} caught, {report.seconds:.1f} s")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
