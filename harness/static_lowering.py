"""What the compiler's first lowering passes make of a TensorIR program: loops left, memory allocated.

No machine code is generated, so this takes about 0.3 ms. Temporary buffers get the size that
TVM's CompactBufferAllocation leaves them, which is what one iteration of the loops around needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import AttrStmt, BufferStore, Evaluate, For, IfThenElse, IntImm, SeqStmt

from tirgym.harness.static_checks import STATEMENT_LIMIT, statement_count
from tirgym.harness.tensorir.nest import UNROLLED, VECTORIZED, items
from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["Allocation", "LoweredCounts", "lowered_counts"]

_PASSES = (
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.CompactBufferAllocation,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.LowerOpaqueBlock,
)
"""In the order of TVM's "s_tir" pipeline (tvm/s_tir/pipeline.py)."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One temporary buffer as it is allocated."""

    name: str
    nbytes: int
    """padding of aligned rows included"""
    scope: str
    """"global" or "local" on CPUs"""


@dataclass(frozen=True, slots=True)
class LoweredCounts:
    """Loops and memory of a program that is about to become machine code."""

    allocations: tuple[Allocation, ...]
    """temporaries in the order of the code"""
    iterations: int
    """iterations of loops in one call, those of unrolled, vectorized and thread-bound loops not
    counted"""
    statements: int
    """stores and calls in the code after unrolling, each vector one"""

    @property
    def temporary_bytes(self) -> int:
        """All temporaries together."""
        return sum(each.nbytes for each in self.allocations)

    @property
    def local_bytes(self) -> int:
        """Those outside the scope "global"."""
        return sum(each.nbytes for each in self.allocations if each.scope != "global")


def lowered_counts(program: TensorIRProgram) -> LoweredCounts:
    """Count in the lowered form of `program`.

    Pragmas unroll what the compiler unrolls for them, unless the code would be too large to build.
    """
    mod = program.mod
    for lower in _PASSES:
        mod = lower()(mod)
    if statement_count(program.nest) <= STATEMENT_LIMIT:
        mod = tirx.transform.UnrollLoop()(mod)
    walk = _Walk()
    walk.visit(mod["main"].body, 1, 1)
    return LoweredCounts(tuple(walk.allocations), walk.iterations, walk.statements)


class _Walk:
    """Visits the statements of a lowered function."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.iterations = self.statements = 0

    def visit(self, stmt: Any, times: int, copies: int) -> None:
        """`times`: executions in one call; `copies`: how often unrolling writes it down."""
        kind = type(stmt)
        if kind is For:
            extent = stmt.extent.value if type(stmt.extent) is IntImm else 1
            mark = int(stmt.kind)
            if mark == UNROLLED:
                copies *= max(1, extent)
            elif mark != VECTORIZED and extent > 1:
                self.iterations += times * extent
            self.visit(stmt.body, times * max(1, extent), copies)
        elif kind is SeqStmt:
            for child in items(stmt.seq):
                self.visit(child, times, copies)
        elif kind is BufferStore or kind is Evaluate:
            self.statements += copies
        elif kind is IfThenElse:
            self.visit(stmt.then_case, times, copies)
            if stmt.else_case is not None:
                self.visit(stmt.else_case, times, copies)
        else:
            self._other(stmt, times, copies)

    def _other(self, stmt: Any, times: int, copies: int) -> None:
        """Allocations, attributes, and named values."""
        if type(stmt) is AttrStmt and stmt.attr_key == "thread_extent":
            times *= max(1, int(stmt.value))
        buffer = getattr(stmt, "buffer", None)
        if buffer is not None and hasattr(buffer, "scope"):
            self.allocations.append(_allocation(buffer))
        body = getattr(stmt, "body", None)
        if body is not None:
            self.visit(body, times, copies)


def _allocation(buffer: Any) -> Allocation:
    """Rows count with their stride; the buffer of an aligned block has explicit strides."""
    shape = [int(extent) for extent in items(buffer.shape)]
    strides = [int(stride) for stride in items(buffer.strides)]
    elements = shape[0] * strides[0] if strides and shape else math.prod(shape)
    bits = tvm.DataType(str(buffer.dtype)).bits
    return Allocation(str(buffer.name), elements * bits // 8, str(buffer.scope()))
