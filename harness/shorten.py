"""`shorten`: the same program with fewer steps, so that a trace shows what matters."""

from __future__ import annotations

from itertools import combinations

from tirgym.errors import IllegalTransformError
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import Transform

__all__ = ["shorten"]


def shorten(program: Program, start: Program) -> Program:
    """`program` without steps, or pairs of steps, that leave its IR key as it is.

    `start` is a program on the way to `program`; its steps stay. Searches pick up steps that do
    nothing, and pairs that undo each other.
    """
    short = program
    for size in (1, 2):
        while (found := _without(short, start, size)) is not None:
            short = found
    return short


def _without(program: Program, start: Program, size: int) -> Program | None:
    """`program` without some `size` steps, if that is the same program."""
    steps = program.steps[len(start.steps) :]
    for left_out in combinations(range(len(steps)), size):
        kept = [step for i, step in enumerate(steps) if i not in left_out]
        made = _replay(start, kept)
        if made is not None and made.ir_key == program.ir_key:
            return made
    return None


def _replay(start: Program, steps: list[Transform]) -> Program | None:
    program = start
    try:
        for step in steps:
            program = program.apply(step)
    except IllegalTransformError:
        return None
    return program
