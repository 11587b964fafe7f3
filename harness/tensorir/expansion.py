"""`expanded_statements`: how much code a TensorIR module turns into once its loops are unrolled."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore, For, ForKind, IntImm

__all__ = ["MAX_STATEMENTS", "expanded_statements"]

MAX_STATEMENTS = 1 << 15
"""Cap on `expanded_statements`: 32³ fully unrolled, which LLVM compiles for minutes, is at it."""
_PRAGMA_STEP = "pragma_auto_unroll_max_step"


def expanded_statements(mod: Any) -> int:
    """Stores in the code of `mod` after unrolling: each store counts once for every iteration of
    the unrolled loops around it, and of loops under an unroll pragma that it would expand."""
    return sum(_count(func.body, 0)[0] for func in mod.functions.values())


def _count(stmt: Any, step: int) -> tuple[int, int]:
    """Stores in the code of `stmt`, and stores it executes if it has no loops left (else 0).

    `step` is the limit of the unroll pragma around `stmt`; TVM expands a loop under it if
    everything below is straight-line code of at most that many steps.
    """
    if isinstance(stmt, For):
        here = _pragma(stmt, step)
        code, straight = _count(stmt.body, here)
        extent = int(stmt.extent) if isinstance(stmt.extent, IntImm) else 1
        if int(stmt.kind) == ForKind.UNROLLED:
            return code * extent, straight * extent
        if int(stmt.kind) == ForKind.SERIAL and 0 < straight * extent <= here:
            return code * extent, straight * extent
        return code, 0
    if isinstance(stmt, SBlockRealize):
        return _count(stmt.block, step)
    if isinstance(stmt, SBlock):
        here = _pragma(stmt, step)
        parts = [part for part in (stmt.init, stmt.body) if part is not None]
    elif hasattr(stmt, "seq"):
        here, parts = step, list(stmt.seq)
    elif isinstance(stmt, BufferStore):
        return 1, 1
    else:
        names = ("body", "then_case", "else_case")
        here, parts = step, [p for n in names if (p := getattr(stmt, n, None)) is not None]
        if not parts:
            return 1, 1
    counts = [_count(part, here) for part in parts]
    straight = 0 if any(s == 0 for _, s in counts) else sum(s for _, s in counts)
    return sum(code for code, _ in counts), straight


def _pragma(stmt: Any, step: int) -> int:
    value = dict(stmt.annotations).get(_PRAGMA_STEP)
    return step if value is None else int(value)
