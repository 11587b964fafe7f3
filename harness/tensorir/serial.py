"""`serial_module`: the same TensorIR with every loop serial."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import SBlock
from tvm.tirx import For, ForKind

from tirgym.harness.tensorir.pipelines import ORDER, STAGE
from tirgym.harness.tensorir.rewriting import with_nodes, with_parts

__all__ = ["serial_module"]


def serial_module(mod: Any) -> Any:
    """`mod` without vectorized, parallel and unrolled loops and without pragmas: what the loops
    mean is untouched, what the compiler makes of them is as plain as can be. Software pipelines stay, with
    ordinary copies."""

    def loop(node: Any) -> Any:
        kept = {k: v for k, v in node.annotations.items() if k in (STAGE, ORDER)}
        return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body, None, kept)

    def block(node: Any) -> Any:
        kept = {k: v for k, v in node.annotations.items() if not k.startswith("pragma_")}
        return with_parts(node, annotations=kept)

    return with_nodes(mod, (For, loop), (SBlock, block))
