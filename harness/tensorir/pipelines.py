"""Software pipelines: loops whose copies into shared memory run some iterations ahead.

They are annotations of TVM's pass InjectSoftwarePipeline: a stage and a place in the order for each
statement of the loop's body. Copies have stage 0 and come first, all else has the last stage and keeps its
order, so the only values that cross stages are those in shared buffers, of which the pass makes one
more than stages lie between. Other assignments of stages were not tried and cannot be asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import BufferStore, For

from tirgym.harness.tensorir.nest import STAGE, VECTORIZED, Access, Block, LoopNest
from tirgym.harness.tensorir.rewriting import with_nodes

__all__ = [
    "ASYNC",
    "ORDER",
    "STAGE",
    "Child",
    "alignment_of",
    "copies_asynchronously",
    "pipeline_children",
    "with_ordinary_copies",
]

ORDER = "software_pipeline_order"
ASYNC = "software_pipeline_async_stages"
_BYTES = (4, 8, 16)
"""What one thread may copy at a time (PTX ISA, cp.async)."""


class Child(NamedTuple):
    """One statement in the body of a loop."""

    blocks: tuple[int, ...]
    copies: bool
    """writes shared memory alone, each element once, by no instruction of a warp"""


def pipeline_children(nest: LoopNest, loop: int) -> list[Child]:
    """The statements of the sequence that is the body of `loop`; none if it is not a sequence."""
    found: dict[int, list[int]] = {}
    for i in nest.loops[loop].blocks:
        for around, place in nest.blocks[i].positions:
            if around == loop:
                found.setdefault(place, []).append(i)
    return [
        Child(tuple(blocks), all(_copies(nest.blocks[i]) for i in blocks))
        for _, blocks in sorted(found.items())
    ]


def _copies(block: Block) -> bool:
    facts = block.facts
    plain = type(facts.node.body) is BufferStore and not facts.has_init and not block.has_predicate
    return plain and all(write.buffer.scope == "shared" for write in facts.writes)


def copies_asynchronously(nest: LoopNest) -> bool:
    """Whether there are pipelines whose copies all are such that `cp.async` can do them.

    TVM 0.27 does not ask whether addresses are aligned, and a misaligned copy stops the kernel.
    """
    found = [
        nest.blocks[i]
        for loop in nest.loops
        if loop.annotated and ASYNC in loop.node.annotations
        for child in pipeline_children(nest, loop.index)
        if child.copies
        for i in child.blocks
    ]
    return bool(found) and all(_is_aligned(nest, block) for block in found)


def with_ordinary_copies(mod: Any) -> Any:
    """`mod` with pipelines that do not ask for asynchronous copies."""

    def plain(node: Any) -> Any:
        if ASYNC not in node.annotations:
            return node
        kept = {k: v for k, v in node.annotations.items() if k != ASYNC}
        return For(node.loop_var, node.min, node.extent, node.kind, node.body, None, kept)

    return with_nodes(mod, (For, plain))


def alignment_of(block: Block) -> list[int]:
    """Factors and offsets that `StorageAlign` left at a block."""
    found = block.facts.node.annotations.get("buffer_dim_align", ())
    return [int(part) for entry in found for part in tuple(entry)[2:]]


def _is_aligned(nest: LoopNest, block: Block) -> bool:
    """Whether each thread copies aligned neighbours from global memory."""
    store = block.facts.node.body
    if type(store.value) is not TensorLoad or len(block.facts.reads) != 1:
        return False
    read, write = block.facts.reads[0], block.facts.writes[0]
    inner = nest.loops[block.chain[-1]]
    lanes = inner.extent if inner.kind == VECTORIZED else 1
    item = tvm.DataType(write.buffer.dtype).bits // 8
    if read.buffer.scope != "global" or read.buffer.dtype != write.buffer.dtype:
        return False
    if lanes * item not in _BYTES or any(step % lanes for step in alignment_of(block)):
        return False
    lane = inner.node.loop_var if lanes > 1 else None
    return all(_starts_aligned(block, access, lane, lanes) for access in (read, write))


def _starts_aligned(block: Block, access: Access, lane: Any, lanes: int) -> bool:
    """Whether the lanes are neighbours along the last dimension, the first of them at a multiple."""
    if lanes == 1:
        return True
    start, extent = access.region[-1]
    if access.buffer.shape[-1] % lanes or extent != 1 or not start.exact:
        return False
    analyzer = Analyzer()
    analyzer.bind(lane, tirx.const(0, "int32"))
    base, step = int(start.constant), 0.0
    for handle, binding, value in zip(
        block.facts.iter_handles, block.bindings, block.realize.iter_values, strict=True
    ):
        coefficient = start.coefficients.get(handle, 0.0)
        if not coefficient:
            continue
        known = analyzer.modular_set(value)
        if int(coefficient) * int(known.coeff) % lanes:
            return False
        base += int(coefficient) * int(known.base)
        step += coefficient * binding.coefficients.get(hash(lane), 0.0)
    return base % lanes == 0 and step == 1.0 and not _moves(block, access, hash(lane))


def _moves(block: Block, access: Access, variable: int) -> bool:
    """Whether a loop variable moves an access along another dimension than the last."""
    iterators = list(zip(block.facts.iter_handles, block.bindings, strict=True))
    return any(
        start.coefficients.get(handle) and binding.coefficients.get(variable)
        for start, _ in access.region[:-1]
        for handle, binding in iterators
    )
