"""The one definition of legality: the vocabulary rules pass and the compiler accepts on a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule

from tirgym.errors import IllegalTransformError
from tirgym.harness.tensorir.handles import Handles
from tirgym.harness.tensorir.rules import first_refusal
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["apply", "mask"]


def apply(program: TensorIRProgram, transform: Transform) -> Schedule:
    """The schedule after `transform`; raises IllegalTransformError. `program` does not change."""
    refusal = first_refusal(program, transform)
    if refusal is not None:
        raise IllegalTransformError(str(transform), *refusal)
    return compile_on_copy(program, transform)


def compile_on_copy(program: TensorIRProgram, transform: Transform) -> Schedule:
    """Let the compiler apply `transform` to a copy; raises IllegalTransformError if it refuses."""
    schedule = program.schedule
    at = Handles(schedule, program.nest)
    try:
        transform.apply_to(schedule, at)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = f"the compiler refuses ({type(error).__name__})"
        raise IllegalTransformError(str(transform), "compiler", reason) from None
    at.release()
    return schedule


def mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Shape (len(vocabulary),), read-only: which transforms are legal, by the definition."""
    legal = np.zeros(len(vocabulary), dtype=np.bool_)
    for i, transform in enumerate(vocabulary):
        try:
            apply(program, transform)
        except IllegalTransformError:
            continue
        legal[i] = True
    legal.setflags(write=False)
    return legal
