"""Vector intrinsics for `Tensorize`, registered with TVM on first use.

TVM 0.27 ships the same dot product in `tvm.s_tir.tensor_intrin.x86`, but importing that package parses
every GPU intrinsic (13 s and more), its VNNI version does not match the operand types of the LLVM
that TVM is built with, and its version for plain AVX-512 adds products in 16 bits with saturation,
which changes results.
"""

from __future__ import annotations

from functools import cache

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

__all__ = ["OPERATIONS", "register_intrinsic"]

OPERATIONS = {"llvm.x86.avx512.vpdpbusd.512": 2 * 16 * 4}
"""Arithmetic of one call by LLVM intrinsic; a multiply-add counts two."""


@cache
def register_intrinsic(name: str) -> str:
    """Register the intrinsic called `name` and return the name that TVM knows it by."""
    known = f"tirgym.{name}"
    description, implementation = _DOTS[name]
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
