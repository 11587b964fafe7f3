"""`plain_step`: a step of a schedule environment without anything of ours that makes it fast.

Every action of the table whose nodes exist is tried on a copy, and a structural walk visits the whole
IR.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

from tirgym.harness.program import Program
from tirgym.harness.transforms.base import ScheduleTransform, Transform
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["TensorIR", "plain_step"]

_REFUSED = (RuntimeError, ValueError, TypeError, IndexError, StopIteration)
"""What an impossible transform raises when nothing was asked before."""


class TensorIR(Protocol):
    """What the plain way needs of a TensorIR program."""

    nest: Any
    schedule: Any
    mod: Any


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    """Nothing that the compiler itself writes reaches stderr: each Tensorize that it refuses prints
    warnings about the variables of its own message."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _exists(transform: Transform, loops: int, blocks: int) -> bool:
    """Whether the nodes that `transform` names are there."""
    loop, block = getattr(transform, "loop", 0), getattr(transform, "block", 0)
    return loop < loops and block < blocks


def plain_step(vocabulary: Vocabulary, program: Program, chosen: Transform) -> float:
    """CPU seconds of one step from `program`; without observation and cost."""
    with _quiet_compiler():
        return _timed_step(vocabulary, program, chosen)


def _timed_step(vocabulary: Vocabulary, program: Program, chosen: Transform) -> float:
    import tvm_ffi

    from tirgym.harness.tensorir.handles import Handles

    began = time.thread_time()
    program.apply(chosen)
    state = cast(TensorIR, program)
    loops, blocks = len(state.nest.loops), len(state.nest.blocks)
    for transform in vocabulary:
        if not isinstance(transform, ScheduleTransform) or not _exists(transform, loops, blocks):
            continue
        schedule = state.schedule
        try:
            transform.apply_to(schedule, Handles(schedule, state.nest))
        except _REFUSED:
            continue
    nodes: list[str] = []
    tvm_ffi.structural_walk(state.mod, lambda node: nodes.append(type(node).__name__))
    return time.thread_time() - began
