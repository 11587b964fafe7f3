"""`serial_module`: the same TensorIR with every loop serial."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.tirx import For, ForKind

from tirgym.harness.tensorir.pipelines import ORDER, STAGE

__all__ = ["serial_module"]


def serial_module(mod: Any) -> Any:
    """`mod` without vectorized, parallel and unrolled loops and without pragmas: what the loops
    mean is untouched, what the compiler makes of them is as plain as can be. Software pipelines stay, with
    ordinary copies."""
    functions = {name.name_hint: _serial(func) for name, func in mod.functions.items()}
    return tvm.IRModule(functions)


def _serial(func: Any) -> Any:
    def loop(node: Any) -> Any:
        kept = {k: v for k, v in node.annotations.items() if k in (STAGE, ORDER)}
        return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body, None, kept)

    def block(node: Any) -> Any:
        kept = {k: v for k, v in node.annotations.items() if not k.startswith("pragma_")}
        return SBlock(
            node.iter_vars,
            node.reads,
            node.writes,
            node.name_hint,
            node.body,
            node.init,
            node.alloc_buffers,
            node.match_buffers,
            kept,
        )

    return tvm_ffi.structural_map(func, [(For, loop), (SBlock, block)])
