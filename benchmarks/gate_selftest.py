"""The gate's own test: every mutant of the literal table must be killed, every kernel must pass.

Run: python -m tirgym.benchmarks.gate_selftest --json

Each mutant is built and judged by the same isolated worker as any candidate, at full level (fresh
seeds, every regime) and the kernel's tiny shape.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tirgym.benchmarks.mutant_table import COLUMNS, TABLE, kinds_of, skips_of
from tirgym.harness.evaluation import Level
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

if TYPE_CHECKING:
    from tirgym.harness.local_evaluator import GateCheck, LocalEvaluator
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["KILLS", "QUICK_KERNELS", "Control", "MutantResult", "SelftestReport", "selftest"]

KILLS = frozenset({Status.WRONG_RESULT, Status.FLAKY, Status.CRASH})
"""Verdicts that say that the program is wrong. A mutant with any other verdict is no kill."""
QUICK_KERNELS = ("gelu", "argmax", "matmul_bias_gelu")
"""Kernels that together have every kind of mutation but a gather's."""
Progress = Callable[[int, int, str], None]


class Gate(Protocol):
    """What is tested: `LocalEvaluator`, or a weakened stand-in that the test must see through."""

    def check(self, program: TensorIRProgram, level: Level) -> GateCheck:
        """The gate alone: no static checks, no timing."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of one mutant."""

    kernel: str
    kind: str
    status: str
    """a `Status`, or "no mutant" when the mutator found nothing to break"""
    message: str
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether the gate said that it is wrong."""
        return self.status in KILLS


@dataclass(frozen=True, slots=True)
class Control:
    """What became of one unscheduled program, which must pass."""

    kernel: str
    status: str
    message: str


@dataclass(frozen=True, slots=True)
class SelftestReport:
    """Outcome of a self-test. `ok` iff every mutant was killed and every control passed."""

    mutants: tuple[MutantResult, ...]
    controls: tuple[Control, ...]
    skipped: tuple[tuple[str, str, str], ...]
    """kernel, kind, reason"""
    level: str
    seconds: float
    right: Status = Status.PASSED
    """verdict that a control must get"""

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """Mutants that were not killed."""
        return tuple(m for m in self.mutants if not m.killed)

    @property
    def kill_rate(self) -> float:
        """Share of the mutants that were killed."""
        return 1.0 - len(self.survivors) / len(self.mutants) if self.mutants else 0.0

    @property
    def ok(self) -> bool:
        """Whether the gate can be trusted."""
        passed = all(c.status == self.right for c in self.controls)
        return bool(self.mutants) and passed and not self.survivors

    def killed_by(self, attribute: str) -> dict[str, tuple[int, int]]:
        """Killed and all mutants for each value of `attribute`: "kind", "kernel" or "status"."""
        counts: dict[str, tuple[int, int]] = {}
        for mutant in self.mutants:
            name = str(getattr(mutant, attribute))
            killed, total = counts.get(name, (0, 0))
            counts[name] = (killed + mutant.killed, total + 1)
        return counts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the counts stand beside the rows."""
        return {
            "ok": self.ok,
            "kill_rate": self.kill_rate,
            "killed": len(self.mutants) - len(self.survivors),
            "mutants": len(self.mutants),
            "kernels": len(self.controls),
            "level": self.level,
            "seconds": round(self.seconds, 3),
            "by_kind": {k: list(v) for k, v in self.killed_by("kind").items()},
            "by_kernel": {k: list(v) for k, v in self.killed_by("kernel").items()},
            "by_status": {k: v[1] for k, v in sorted(self.killed_by("status").items())},
            "survivors": [asdict(m) for m in self.survivors],
            "failed_controls": [asdict(c) for c in self.controls if c.status != self.right],
            "results": [asdict(m) for m in self.mutants],
            "skipped": [
                dict(zip(("kernel", "kind", "reason"), s, strict=True)) for s in self.skipped
            ],
        }


def selftest(
    kernels: Sequence[str] | None = None,
    quick: bool = False,
    progress: Progress | None = None,
    *,
    gate: Gate | None = None,
    kinds: Sequence[str] | None = None,
    level: Level = Level.FULL,
) -> SelftestReport:
    """Judge every mutant of `kernels` (default: the whole table; `quick`: three kernels).

    `progress(done, total, label)` is called before each mutant and once at the end. `gate` None
    is the worker's, as for any candidate; `kinds` narrows the kinds. Raises UnknownNameError for
    a kernel that has no row.
    """
    names = tuple(kernels) if kernels is not None else QUICK_KERNELS if quick else tuple(TABLE)
    plan = [
        (name, kind) for name in names for kind in kinds_of(name) if kinds is None or kind in kinds
    ]
    started = time.perf_counter()
    controls: dict[str, Control] = {}
    results: list[MutantResult] = []
    with contextlib.ExitStack() as stack:
        tested = stack.enter_context(_worker_gate()) if gate is None else gate
        for done, (name, kind) in enumerate(plan):
            if progress is not None:
                progress(done, len(plan), f"{name}: {kind}")
            start = start_of(name)
            if name not in controls:
                check = tested.check(start, level)
                controls[name] = Control(name, str(check.status), check.message)
            results.append(_judge(tested, start, kind, level))
    if progress is not None:
        progress(len(plan), len(plan), "done")
    skipped = tuple((name, kind, why) for name in names for kind, why in skips_of(name).items())
    seconds = time.perf_counter() - started
    return SelftestReport(tuple(results), tuple(controls.values()), skipped, str(level), seconds)


def _worker_gate() -> LocalEvaluator:
    from tirgym.harness.local_evaluator import LocalEvaluator

    return LocalEvaluator(store=":memory:")


def start_of(kernel: str) -> TensorIRProgram:
    """The unscheduled program of `kernel` at its tiny shape, for one thread of this machine."""
    from tirgym.harness.backend import backend
    from tirgym.harness.tensorir.program import TensorIRProgram

    found = load_kernel(kernel)
    workload = Workload.of(found, found.tiny_shape)
    return TensorIRProgram.start(workload, backend("llvm").target())


def mutant_of(start: TensorIRProgram, kind: str) -> TensorIRProgram | None:
    """`start` with one defect of `kind`; None when there is nothing to break."""
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.program import TensorIRProgram

    mod = mutate(kind, start.mod)
    if mod is None:
        return None
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    return TensorIRProgram(start.workload, start.target, (), schedule)


def _judge(gate: Gate, start: TensorIRProgram, kind: str, level: Level) -> MutantResult:
    began = time.perf_counter()
    name = start.workload.kernel.name
    mutant = mutant_of(start, kind)
    if mutant is None:
        return MutantResult(name, kind, "no mutant", "the mutator found nothing to break", 0.0)
    check = gate.check(mutant, level)
    seconds = time.perf_counter() - began
    return MutantResult(name, kind, str(check.status), check.message, round(seconds, 4))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when every mutant was killed and every kernel passed, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="default: every kernel of the table")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK_KERNELS)}")
    parser.add_argument("--kinds", nargs="+", choices=COLUMNS, help="only these kinds")
    parser.add_argument("--level", choices=[str(level) for level in Level], default="full")
    parser.add_argument("--json", action="store_true", help="the whole report on stdout")
    given = parser.parse_args(arguments)

    def announce(done: int, total: int, label: str) -> None:
        print(f"\r\x1b[K{done}/{total} {label}", end="", file=sys.stderr, flush=True)

    report = selftest(
        given.kernels or None,
        given.quick,
        announce if sys.stderr.isatty() else None,
        kinds=given.kinds,
        level=Level(given.level),
    )
    if given.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for kind, (killed, total) in report.killed_by("kind").items():
            print(f"{kind:24s} {killed:4d} of {total:4d} killed")
        for mutant in report.survivors:
            print(f"SURVIVOR {mutant.kernel} {mutant.kind}: {mutant.status} {mutant.message}")
        print(f"kill rate {report.kill_rate:.2%}, {report.seconds:.1f} s")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
