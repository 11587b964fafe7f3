"""`shorten`: the same program with fewer steps, so that a trace shows what matters."""

from __future__ import annotations

from collections.abc import Sequence

from tirgym.errors import IllegalTransformError
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import Transform

__all__ = ["shorten"]


def shorten(program: Program, start: Program) -> Program:
    """`program` without steps, or pairs of steps, that leave its IR key as it is.

    `start` is a program on the way to `program`; its steps stay. Searches pick up steps that do
    nothing, and pairs that undo each other.
    """
    short, given = program, len(start.steps)
    for size in (1, 2):
        while (found := _without(size, start, short.steps[given:], program.ir_key)) is not None:
            short = found
    return short


def _without(
    size: int, program: Program, steps: Sequence[Transform], ir_key: str
) -> Program | None:
    """`program` after `steps` but for some `size` of them, if that has `ir_key`.

    What comes before the first step that is left out is applied once for all choices.
    """
    try:
        for at, step in enumerate(steps):
            if size:
                found = _without(size - 1, program, steps[at + 1 :], ir_key)
                if found is not None:
                    return found
            program = program.apply(step)
    except IllegalTransformError:
        return None
    return program if not size and program.ir_key == ir_key else None
