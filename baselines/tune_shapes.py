"""`tune_shapes`: programs for several shapes of one kernel, for a library that picks by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tirgym.baselines.optimize import Progress, optimize
from tirgym.harness.backend import backend
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.variants import carry_over
from tirgym.harness.verification import evaluate_in_sessions
from tirgym.kernels_suite.kernel import Workload

__all__ = ["ShapeProgram", "tune_shapes"]

UNSCHEDULED = "unscheduled"
TUNED = "tuned"


@dataclass(frozen=True, slots=True)
class ShapeProgram:
    """The program for one shape, verified in full."""

    program: Program
    origin: str
    """"tuned", "from" the workload whose transforms it takes over, or "unscheduled" """
    speedup: float | None
    """over the unscheduled program of this shape; None without a number"""


def tune_shapes(
    tuned: Sequence[Workload],
    covered: Sequence[Workload] = (),
    agent: str | None = None,
    trials: int = 64,
    seed: int = 0,
    *,
    target: Target | None = None,
    progress: Callable[[Workload, Progress], None] | None = None,
) -> list[ShapeProgram]:
    """Search at each shape of `tuned`; at each of `covered` try the nearest one's transforms.

    A shape of `covered` gets the unscheduled program where those are not legal, fail the gate or
    are no faster. Raises what `optimize` raises.
    """
    target = target or backend("llvm").target()
    found: list[ShapeProgram] = []
    with LocalEvaluator(target, ":memory:", seed=seed) as evaluator:
        for workload in tuned:
            tell = None if progress is None else _about(progress, workload)
            search = partial(
                optimize, trials=trials, seed=seed, target=target, evaluator=evaluator,
                progress=tell,
            )  # fmt: skip
            result = search(workload) if agent is None else search(workload, agent)
            found.append(ShapeProgram(result.program, TUNED, result.speedup))
        programs = [made.program for made in found]
        found += [_cover(workload, programs, evaluator) for workload in covered]
    return found


def _about(
    progress: Callable[[Workload, Progress], None], workload: Workload
) -> Callable[[Progress], None]:
    return lambda at: progress(workload, at)


def _cover(workload: Workload, tuned: Sequence[Program], evaluator: LocalEvaluator) -> ShapeProgram:
    program, source = carry_over(workload, tuned)
    if source is not None:
        speedup = evaluate_in_sessions(evaluator, program).speedup
        if speedup is not None and speedup > 1.0:
            return ShapeProgram(program, f"from {source.workload}", speedup)
    start = backend(program.target.backend).start(workload, program.target)
    return ShapeProgram(start, UNSCHEDULED, 1.0)
