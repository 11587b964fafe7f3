"""What instructions on fragments mean, as loops: for half-way states, and for runs without tensor cores.

The meaning is read off the call itself, not off the nest that it replaced: a product of what was loaded
in another layout, or a store by columns, comes out as what the device would make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm.s_tir import SBlock
from tvm.tirx import BufferLoad, BufferStore, Cast, For, Var

from tirgym.errors import InvalidValueError
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.nest import read_nest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rewriting import with_nodes, with_parts
from tirgym.harness.tensorir.wmma import (
    MATRIX_B,
    MMA_CALL,
    SIDE,
    call_of,
    is_fragment,
    layout_of,
)

__all__ = ["as_loops", "without_mixed_fragments"]


def as_loops(mod: Any) -> Any:
    """`mod` with loops in place of instructions on fragments."""
    return _changed(mod, lambda node, call: _MEANINGS[str(call.op.name)](call))


def without_mixed_fragments(program: TensorIRProgram) -> TensorIRProgram:
    """`program` without fragments that ordinary code touches too, which no device could run: they become
    memory of each thread's own, and loops stand for the instructions that use them."""
    facts = program.facts
    buffers, blocks = _mixed(facts)
    if not buffers:
        return program
    schedule = program.schedule
    at = Handles(schedule, program.nest)
    for buffer in sorted(buffers, key=lambda each: facts.writers[each]):
        first = facts.writers[buffer][0]
        number = facts.views[first].writes.index(buffer)
        schedule.set_scope(at.block(first), number, "local")
    nest = read_nest(schedule.mod)
    turned = {nest.blocks[b].facts.handle: _has_turned_operand(facts, b) for b in blocks}

    def ordinary(node: Any, call: Any) -> Any:
        return (
            _MEANINGS[str(call.op.name)](call, turned[hash(node)])
            if hash(node) in turned
            else node.body
        )

    made = new_schedule(_changed(schedule.mod, ordinary))
    return TensorIRProgram(program.workload, program.target, program.steps, made)


def _changed(mod: Any, body: Callable[[Any, Any], Any]) -> Any:
    """`mod` with `body(block, call)` as the body of each block that is a call on fragments."""

    def block(node: Any) -> Any:
        call = call_of(node)
        return node if call is None else with_parts(node, body=body(node, call))

    return with_nodes(mod, (SBlock, block))


def _mixed(facts: Facts) -> tuple[set[int], tuple[int, ...]]:
    """Fragments that ordinary code touches too, and the instructions that touch those; as handles of
    buffers and numbers of blocks. What stands for the latter touches other fragments, and so on."""
    plain = ~facts.collective
    buffers: set[int] = set()
    size = -1
    while size < len(buffers):
        size = len(buffers)
        for i in bits(facts.all_blocks):
            mine = _fragments(facts, i)
            if plain >> i & 1 or mine & buffers:
                plain |= 1 << i
                buffers |= mine
    return buffers, bits(facts.collective & plain)


def _has_turned_operand(facts: Facts, block: int) -> bool:
    """Whether what `block` multiplies by was loaded by columns."""
    return any(
        layout_of(facts.blocks[writer].facts.node) == "col_major"
        for access in facts.blocks[block].facts.reads
        if access.buffer.scope == MATRIX_B
        for writer in facts.writers[access.buffer.handle]
    )


def _fragments(facts: Facts, block: int) -> set[int]:
    here = facts.blocks[block].facts
    accesses = (*here.reads, *here.writes)
    return {a.buffer.handle for a in accesses if is_fragment(a.buffer.scope)}


# --- meanings --------------------------------------------------------------------------------


def _over(count: int, statement: Callable[..., Any]) -> Any:
    """`count` loops over the tile around `statement(*variables)`."""
    loops = [Var(name, "int32") for name in "ijk"[:count]]
    made = statement(*loops)
    for loop in reversed(loops):
        made = For(loop, 0, SIDE, 0, made)
    return made


def _buffer(data: Any) -> Any:
    """The buffer whose memory an argument means: its data, or a pointer into it."""
    name = str(getattr(getattr(data, "op", None), "name", ""))
    if name == "tirx.tvm_access_ptr":
        return _buffer(data.args[1])
    if name != "tirx.buffer_data":
        raise InvalidValueError("operand of an instruction on fragments", str(data), "a buffer")
    return data.args[0]


def _is_turned(call: Any) -> bool:
    return str(call.args[7].value) == "col_major"


def _moved(call: Any, turned: bool) -> tuple[Any, Any, Callable[[Any, Any], list[Any]]]:
    """Fragment and memory of a load or store, and indices of the fragment for those of the memory."""
    return (
        _buffer(call.args[0]),
        _buffer(call.args[5]),
        lambda i, j: [j, i] if turned else [i, j],
    )


def _load(call: Any, turned: bool | None = None) -> Any:
    by_columns = str(call.args[7].value) == "col_major" if turned is None else False
    fragment, memory, at = _moved(call, by_columns)
    return _over(2, lambda i, j: BufferStore(fragment, BufferLoad(memory, [i, j]), at(i, j)))


def _store(call: Any, turned: bool | None = None) -> Any:
    fragment, memory, at = _moved(call, str(call.args[7].value) == "col_major")
    return _over(2, lambda i, j: BufferStore(memory, BufferLoad(fragment, at(i, j)), [i, j]))


def _fill(call: Any, turned: bool | None = None) -> Any:
    fragment, value = _buffer(call.args[0]), call.args[5]
    return _over(2, lambda i, j: BufferStore(fragment, _as(fragment, value), [i, j]))


def _multiply(call: Any, turned: bool | None = None) -> Any:
    total, a, b, before = (_buffer(call.args[place]) for place in (0, 2, 4, 6))

    def add(i: Any, j: Any, k: Any) -> Any:
        places = ((a, [i, k]), (b, [j, k] if turned else [k, j]))
        one, other = (_as(total, BufferLoad(tile, at)) for tile, at in places)
        return BufferStore(total, BufferLoad(before, [i, j]) + one * other, [i, j])

    return _over(3, add)


def _as(buffer: Any, value: Any) -> Any:
    dtype = str(buffer.dtype)
    return value if str(value.ty) == dtype else Cast(dtype, value)


_MEANINGS: Mapping[str, Callable[..., Any]] = {
    "tirx.tvm_load_matrix_sync": _load,
    "tirx.tvm_fill_fragment": _fill,
    MMA_CALL: _multiply,
    "tirx.tvm_store_matrix_sync": _store,
}
"""By operator: statement in rows and columns of the matrices, whatever their layout in memory; if it is
said whether B was loaded by columns, in those of the buffers, which loads copy."""
