"""Rules about instructions that stand for a loop nest; see `rules.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore, FloatImm, IntImm

from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.nest import Access, Block, Buffer
from tirgym.harness.tensorir.pipelines import alignment_of
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_threads import axes_of, thread_fault
from tirgym.harness.tensorir.wmma import (
    ACCUMULATOR,
    MATRIX_A,
    MATRIX_B,
    OPERANDS,
    SIDE,
    SUMS,
    WMMA,
    Instruction,
    layout_of,
)
from tirgym.harness.transforms.tensorize import INTRINSICS

__all__ = ["broken_warp", "foreign_intrinsic", "moved_fragment", "unlike_intrinsic"]

Loops = Sequence[int]
"""Variables of the loops around a block, outermost first."""


def foreign_intrinsic(facts: Facts, t: Any, asked: int) -> int:
    """Tensorize with an instruction that the target does not have."""
    return 0 if INTRINSICS[t.intrinsic] in facts.features else EVERYTHING


def unlike_intrinsic(facts: Facts, t: Any, asked: int) -> int:
    """Tensorize of a nest that is not what the intrinsic computes.

    The weights of dot products must be stored as rows of exactly 16 x 4 bytes: the instruction reads
    64 bytes in a row, which the compiler does not check. It does check copies. Of products on tensor
    cores it does not check the layout in which B was loaded, nor alignments.
    """
    extents, alike = _ALIKE[t.intrinsic]
    depth = len(extents)
    refused = ~facts.over_loop
    for i in bits(asked & facts.over_loop):
        last, whole = i + depth - 1, (1 << depth) - 1 << i
        around = whole & ~(1 << last)
        if not (
            tuple(facts.extents[i : last + 1]) == extents
            and facts.over_loop & around == around
            and facts.over_block >> last & 1
            and facts.serial & whole == whole
            and alike(facts, facts.blocks[facts.firsts[i]], facts.variables[i : last + 1])
        ):
            refused |= 1 << i
    return refused


def _dots(_: Facts, block: Block, loops: Loops) -> bool:
    facts = block.facts
    if facts.has_init or block.has_predicate or len(facts.writes) != 1:
        return False
    if facts.writes[0].buffer.dtype != "int32":
        return False
    weights = [r.buffer for r in facts.reads if r.buffer.dtype == "int8"]
    return len(weights) == 1 and weights[0].shape[-2:] == (16, 4)


def _turns(_: Facts, block: Block, loops: Loops) -> bool:
    """Whether a block moves float32 elements one by one from [.., inner, outer] to [.., outer, inner]."""
    outer, inner = loops
    if not _is_copy(block):
        return False
    read, write = block.facts.reads[0], block.facts.writes[0]
    along = _driven(block, write, outer), _driven(block, write, inner)
    across = _driven(block, read, inner), _driven(block, read, outer)
    return write.buffer.dtype == "float32" and along == across == (-2, -1)


def _is_copy(block: Block) -> bool:
    body = block.facts.node.body
    plain = type(body) is BufferStore and type(body.value) is TensorLoad
    return plain and not block.has_predicate


def _driven(block: Block, access: Access, var: int) -> int:
    """The one dimension, counted from the last, that a loop moves an access along element by element;
    0 if there is none or are more."""
    steps = []
    for start, _ in access.region:
        step = 0.0
        for handle, binding in zip(block.facts.iter_handles, block.bindings, strict=True):
            step += start.coefficients.get(handle, 0.0) * binding.coefficients.get(var, 0.0)
        steps.append(step)
    moved = [d - len(steps) for d, step in enumerate(steps) if step]
    return moved[0] if len(moved) == 1 and steps[moved[0]] == 1.0 else 0


# --- tensor cores ----------------------------------------------------------------------------


def _on_fragments(what: Instruction, facts: Facts, block: Block, loops: Loops) -> bool:
    """Whether `block` in `loops` does what an instruction of `WMMA` does."""
    here = block.facts
    accesses = (*here.reads, *here.writes)
    plain = not (here.has_init or here.annotated or block.has_predicate) and len(here.writes) == 1
    return plain and all(map(_is_plain, accesses)) and _DOES[what.kind](what, facts, block, loops)


def _is_plain(access: Access) -> bool:
    """Whether the indices are iterators, so that tiles start at multiples of their side."""
    return len(access.region) > 1 and all(
        extent == 1
        and start.exact
        and not start.constant
        and list(start.coefficients.values()) in ([], [1.0])
        for start, extent in access.region
    )


def _in_tile(block: Block, access: Access, rows: int, columns: int) -> bool:
    return (_driven(block, access, rows), _driven(block, access, columns)) == (-2, -1)


def _moves_tile(block: Block, loops: Loops) -> bool:
    read, write = block.facts.reads[:1], block.facts.writes
    return _is_copy(block) and all(_in_tile(block, x, *loops) for x in (*read, *write))


def _in_memory(facts: Facts, buffer: Buffer) -> bool:
    """Whether a warp can move tiles of `buffer`: its rows are aligned, and it is no thread's own."""
    if buffer.scope != "shared" and (
        buffer.scope != "global" or buffer.handle in facts.intermediates
    ):
        return False
    steps = [buffer.shape[-1]]
    for writer in facts.writers.get(buffer.handle, ()):
        steps += alignment_of(facts.blocks[writer])
    return not any(step % SIDE for step in steps)


def _becomes_fragment(facts: Facts, buffer: Buffer) -> bool:
    return buffer.handle in facts.intermediates and buffer.scope in ("global", "local")


def _loads(what: Instruction, facts: Facts, block: Block, loops: Loops) -> bool:
    if not _moves_tile(block, loops):
        return False
    source, made = block.facts.reads[0].buffer, block.facts.writes[0].buffer
    return (
        made.dtype in OPERANDS
        and _in_memory(facts, source)
        and _becomes_fragment(facts, made)
        and len(facts.writers[made.handle]) == 1
    )


def _stores(what: Instruction, facts: Facts, block: Block, loops: Loops) -> bool:
    if not _moves_tile(block, loops):
        return False
    source, target = block.facts.reads[0].buffer, block.facts.writes[0].buffer
    return source.scope == ACCUMULATOR and _in_memory(facts, target)


def _fills(what: Instruction, facts: Facts, block: Block, loops: Loops) -> bool:
    body, (write,) = block.facts.node.body, block.facts.writes
    return (
        type(body) is BufferStore
        and type(body.value) in (FloatImm, IntImm)
        and float(body.value.value) == 0.0
        and any(write.buffer.dtype in sums for sums in SUMS.values())
        and _becomes_fragment(facts, write.buffer)
        and _in_tile(block, write, *loops)
    )


def _multiplies(what: Instruction, facts: Facts, block: Block, loops: Loops) -> bool:
    """The compiler compares the arithmetic."""
    scopes = {access.buffer.scope: access.buffer for access in block.facts.reads}
    total = block.facts.writes[0].buffer
    if (
        set(scopes) != {MATRIX_A, MATRIX_B, ACCUMULATOR}
        or scopes[ACCUMULATOR].handle != total.handle
    ):
        return False
    a, b = scopes[MATRIX_A], scopes[MATRIX_B]
    layouts = {layout_of(facts.blocks[w].facts.node) for w in facts.writers[b.handle]}
    return (
        a.dtype == b.dtype
        and total.dtype in SUMS[a.dtype]
        and layouts == {"col_major" if what.transposed else "row_major"}
    )


_DOES: dict[str, Callable[[Instruction, Facts, Block, Loops], bool]] = {
    "load": _loads,
    "fill": _fills,
    "mma": _multiplies,
    "store": _stores,
}

_ALIKE: dict[str, tuple[tuple[int, ...], Callable[[Facts, Block, Loops], bool]]] = {
    "dot_16x4_vnni": ((16, 4), _dots),
    "transpose_16x16": ((16, 16), _turns),
    "transpose_8x8": ((8, 8), _turns),
    **{
        name: ((SIDE,) * (3 if what.kind == "mma" else 2), partial(_on_fragments, what))
        for name, what in WMMA.items()
    },
}
"""By intrinsic: extents of the loops, and what the block must do in them."""


def broken_warp(facts: Facts, t: Any, asked: int) -> int:
    """Tensorize of what not all threads of a warp would run together."""
    limits = device_limits(facts.target)
    if limits is None or t.intrinsic not in WMMA:
        return 0
    axes, refused = axes_of(facts), 0
    for i in bits(asked & facts.all_loops) if axes else ():
        if thread_fault(facts, limits, axes, collective=1 << facts.firsts[i]) is not None:
            refused |= 1 << i
    return refused


def moved_fragment(facts: Facts, t: Any, asked: int) -> int:
    """Transforms that would put an instruction of a warp elsewhere, or change the memory that it uses."""
    warps = facts.collective
    if not warps:
        return 0
    if t.node_field() == "loop":
        return EVERYTHING if warps >> t.block & 1 else 0
    refused = warps
    for i in bits(asked & facts.all_blocks & ~warps):
        if any(warps >> other & 1 for other in _touched(facts, t, i)):
            refused |= 1 << i
    return refused


def _touched(facts: Facts, t: Any, block: int) -> tuple[int, ...]:
    """Blocks whose memory or operands a transform of `block` changes."""
    if t.name == "ComputeInline":
        return facts.consumers[block]
    if t.name == "ReverseComputeInline":
        return facts.producers[block]
    aligned = t.name == "StorageAlign" and not (t.factor % SIDE or t.offset % SIDE)
    if aligned or t.name not in ("SetScope", "StorageAlign"):
        return ()
    buffers = facts.views[block].writes[:1]
    return tuple(
        user
        for buffer in buffers
        for user in (*facts.writers.get(buffer, ()), *facts.readers.get(buffer, ()))
    )
