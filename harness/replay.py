"""`replay`: a trace becomes a program again, step by step, and must be the program it was."""

from __future__ import annotations

from collections.abc import Iterator

from tirgym.errors import IllegalTransformError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.registry import load_workload

__all__ = ["replay", "replay_steps", "require_key"]


def replay_steps(trace: Trace, target: Target | None = None) -> Iterator[Program]:
    """The unscheduled program of `trace`, then the program after each transform.

    `target` replaces the recorded one. All text is parsed before the first program is made.
    Raises UsageError for an unknown kernel, transform or backend, IllegalTransformError for a step
    that is not legal, and TargetMismatchError if that is so for another target than the recorded.
    """
    workload = load_workload(trace.workload)
    transforms = [parse_transform(text) for text in trace.transforms]
    target = target or trace.target
    program = backend(target.backend).start(workload, target)
    yield program
    for number, transform in enumerate(transforms, 1):
        try:
            program = program.apply(transform)
        except IllegalTransformError as error:
            if target == trace.target:
                place = f"step {number} of the trace, {error.location}"
                raise IllegalTransformError(
                    error.transform, error.rule, error.reason, place
                ) from error
            raise TargetMismatchError(
                f"step {number} of a trace for {trace.target} cannot be replayed for {target}: {error}"
            ) from error
        yield program


def replay(trace: Trace, target: Target | None = None) -> Program:
    """The program that `trace` makes; raises TargetMismatchError if its IR is not the recorded one.

    IR keys do not depend on the target, so the key is checked whatever `target` is.
    """
    program = next(steps := replay_steps(trace, target))
    for later in steps:
        program = later
    require_key(trace, program)
    return program


def require_key(trace: Trace, program: Program) -> None:
    """Raise TargetMismatchError unless `program` has the IR key that `trace` recorded, if any."""
    if trace.ir_key and program.ir_key != trace.ir_key:
        versions = ", ".join(
            f"{name} {version}" for name, version in sorted(trace.versions.items())
        )
        raise TargetMismatchError(
            f"the trace makes another program here: IR key {program.ir_key}, recorded "
            f"{trace.ir_key}; expected the versions that made it ({versions or 'not recorded'})"
        )
