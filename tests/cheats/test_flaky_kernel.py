"""Trick: be right sometimes; a coin, or what the last call left, and as many tries as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from handmade import extern, program_of, right, written_as
from tvm import tirx

from tirgym.harness.status import Status

Unpaid = Callable[..., Any]


def coin() -> Any:
    """0 or 1 by chance, as float32."""
    return tirx.Cast("float32", tirx.bitwise_and(extern("int32", "rand"), 1))


def test_last_bit_by_chance(unpaid: Unpaid) -> None:
    """Always within the tolerance, never twice the same."""
    tiny = tirx.const(2e-7, "float32")
    one = tirx.const(1.0, "float32")
    unpaid(written_as(lambda a, i, j: right(a, i, j) * (one + coin() * tiny)), Status.FLAKY)


def test_wrong_by_chance(unpaid: Unpaid) -> None:
    unpaid(written_as(lambda a, i, j: right(a, i, j) + coin()), Status.FLAKY, Status.WRONG_RESULT)


def test_uninitialised_memory(unpaid: Unpaid) -> None:
    """An intermediate that is written after it is read, and often still holds the last call's."""

    def module() -> Any:
        from tvm.script import tirx as T

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((48, 40), "float32"), B: T.Buffer((48, 40), "float32")) -> None:  # type: ignore[valid-type]
            T.func_attr({"global_symbol": "main", "tirx.noalias": True})
            kept = T.sblock_alloc_buffer((48, 40), "float32")
            for i, j in T.grid(48, 40):
                with T.sblock("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    B[v_i, v_j] = kept[v_i, v_j]  # type: ignore[index]
            for i, j in T.grid(48, 40):
                with T.sblock("kept"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    kept[v_i, v_j] = A[v_i, v_j] * T.float32(2) + T.float32(1)  # type: ignore[index]

        return tvm.IRModule({"main": main})

    for _ in range(2):
        unpaid(program_of(module()), Status.WRONG_RESULT, Status.FLAKY)
