"""Vector intrinsics for `Tensorize`, registered with TVM on first use: dot products, transposes.

TVM 0.27 ships the same dot product in `tvm.s_tir.tensor_intrin.x86`, but importing that package parses
every GPU intrinsic (13 s and more), its VNNI version does not match the operand types of the LLVM
that TVM is built with, and its version for plain AVX-512 adds products in 16 bits with saturation,
which changes results.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import (
    Bind,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IntImm,
    IterVar,
    Ramp,
    SeqStmt,
    Shuffle,
    Var,
)

from tirgym.harness.tensorir.wmma import CALLS, MMA_CALL, SIDE

__all__ = ["OPERATIONS", "TRANSPOSES", "register_intrinsic"]

OPERATIONS = {
    "llvm.x86.avx512.vpdpbusd.512": 2 * 16 * 4,
    MMA_CALL: 2 * SIDE**3,
    **dict.fromkeys(CALLS - {MMA_CALL}, 0),
}
"""Arithmetic of one call by LLVM intrinsic or TVM's operator; a multiply-add counts two."""


@cache
def register_intrinsic(name: str, columns_first: bool = False) -> str:
    """Register the intrinsic called `name` and return the name that TVM knows it by.

    The compiler compares iterators in their order, so that transposes have two descriptions: the
    block's iterator of rows comes first, or that of columns.
    """
    known = f"tirgym.{name}{'.columns_first' if columns_first else ''}"
    if name in _DOTS:
        description, implementation = _DOTS[name]
    else:
        description, implementation = _transposes(TRANSPOSES[name], columns_first)
    TensorIntrin.register(known, description, implementation, override=True)
    return known


@T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
def _dot_16x4_description(
    A: T.Buffer((4,), "uint8", offset_factor=1),  # type: ignore[valid-type]
    B: T.Buffer((16, 4), "int8", offset_factor=1),  # type: ignore[valid-type]
    C: T.Buffer((16,), "int32", offset_factor=1),  # type: ignore[valid-type]
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        for i in T.serial(0, 16):
            for k in T.serial(0, 4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")


@T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
def _dot_16x4_vnni(
    A: T.Buffer((4,), "uint8", offset_factor=1),  # type: ignore[valid-type]
    B: T.Buffer((16, 4), "int8", offset_factor=1),  # type: ignore[valid-type]
    C: T.Buffer((16,), "int32", offset_factor=1),  # type: ignore[valid-type]
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        four = T.reinterpret(A.vload([0], "uint8x4"), dtype="int32")
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C.vload([0], dtype="int32x16"),
            T.reinterpret(T.broadcast(four, 16), dtype="int8x64"),
            B.vload([0, 0], dtype="int8x64"),
            dtype="int32x16",
        )


_DOTS = {"dot_16x4_vnni": (_dot_16x4_description, _dot_16x4_vnni)}

TRANSPOSES = {"transpose_16x16": 16, "transpose_8x8": 8}
"""Float32 elements on a side."""


def _transposes(size: int, columns_first: bool) -> tuple[Any, Any]:
    """B[i, j] = A[j, i] for float32 squares, as loops and in vector registers.

    In registers, log2(size) rounds swap the off-diagonal quarters of ever larger squares, two rows
    at a time (Eklundh, "A fast computer method for matrix transposing", 1972).
    """
    loops = partial(_transpose_loops, columns_first)
    return _square(size, loops), _square(size, _transpose_in_registers)


def _square(size: int, body: Any) -> Any:
    """A function of two squares, rows apart by any stride, with the statement that `body` makes."""
    one = IntImm("int32", 1)
    squares = [
        tirx.decl_buffer(
            (size, size),
            "float32",
            name,
            strides=[Var(f"row_{name}", "int32"), one],
            offset_factor=1,
        )
        for name in "AB"
    ]
    whole = [BufferRegion(b, [Range.from_min_extent(0, size)] * 2) for b in squares]
    root = SBlock([], whole[:1], whole[1:], "root", body(size, *squares))
    return tirx.PrimFunc(squares, SBlockRealize([], True, root))


def _transpose_loops(columns_first: bool, size: int, a: Any, b: Any) -> Any:
    i, j = Var("i", "int32"), Var("j", "int32")
    rows, columns = (IterVar(Range(0, size), Var(name, "int32"), 0) for name in ("vi", "vj"))
    read, written = (
        BufferRegion(buffer, [Range.from_min_extent(iterator.var, 1) for iterator in place])
        for buffer, place in ((a, (columns, rows)), (b, (rows, columns)))
    )
    copy = BufferStore(b, BufferLoad(a, [columns.var, rows.var]), [rows.var, columns.var])
    iterators, values = ([columns, rows], [j, i]) if columns_first else ([rows, columns], [i, j])
    block = SBlock(iterators, [read], [written], "transpose", copy)
    inner = For(j, 0, size, 0, SBlockRealize(values, True, block))
    return For(i, 0, size, 0, inner)


def _transpose_in_registers(size: int, a: Any, b: Any) -> Any:
    statements: list[Any] = []
    lanes = Ramp(IntImm("int32", 0), IntImm("int32", 1), size)

    def named(value: Any) -> Any:
        register = Var("row", f"float32x{size}")
        statements.append(Bind(register, value))
        return register

    def mixed(one: Any, other: Any, picked: list[int]) -> Any:
        return named(Shuffle([one, other], [IntImm("int32", lane) for lane in picked]))

    rows = [named(BufferLoad(a, [i, lanes])) for i in range(size)]
    half = 1
    while half < size:
        for i in [i for i in range(size) if not i & half]:
            one, other = rows[i], rows[i + half]
            lane = range(size)
            rows[i] = mixed(one, other, [size + c - half if c & half else c for c in lane])
            rows[i + half] = mixed(one, other, [size + c if c & half else c + half for c in lane])
        half *= 2
    statements += [BufferStore(b, row, [i, lanes]) for i, row in enumerate(rows)]
    return SeqStmt(statements)
