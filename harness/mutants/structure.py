"""Mutants that change which iterations run and which stores happen."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import (
    And,
    BufferLoad,
    BufferStore,
    Evaluate,
    FloorDiv,
    FloorMod,
    For,
    IntImm,
    IterVar,
    Max,
    const,
)
from tvm.tirx import abs as abs_

from tirgym.harness.mutants.rewrite import (
    Site,
    append,
    dtype_of,
    is_float,
    main,
    output_sites,
    outputs,
    replace_block,
    sites,
    with_body,
    with_main,
)
from tirgym.harness.tensorir.rewriting import with_parts

__all__ = [
    "constant_output",
    "init_dropped",
    "input_modified",
    "last_element_unwritten",
    "loop_long",
    "loop_short",
    "one_element_wrong",
    "reduction_halved",
    "row_skipped",
    "stale_output",
    "store_deleted",
    "transposed_write",
]

SPATIAL, REDUCE = 0, 2


def store_deleted(mod: Any) -> Any | None:
    """The first store that is no init is deleted: `C[i] = …` → nothing."""
    func = main(mod)
    target = next(s for s in sites(func) if not s.is_init).store

    def drop(store: Any) -> Any:
        return Evaluate(0) if store.same_as(target) else store

    return with_main(tvm_ffi.structural_map(func, (BufferStore, drop)))


def stale_output(mod: Any) -> Any | None:
    """Nothing is computed: whatever the output buffers held before the call stays."""
    return with_main(with_body(main(mod), Evaluate(0)))


def constant_output(mod: Any) -> Any | None:
    """Every store to an output writes 0."""
    func = main(mod)
    params = outputs(func)

    def zero(store: Any) -> Any:
        if not any(store.buffer.same_as(p) for p in params):
            return store
        return BufferStore(store.buffer, const(0, dtype_of(store.value)), store.indices)

    return with_main(tvm_ffi.structural_map(func, (BufferStore, zero)))


def _resized(func: Any, loop: Any, extent: int) -> Any:
    """`func` with another trip count of `loop`, and of the iterators that it alone binds."""

    def change_loop(node: Any) -> Any:
        if not node.loop_var.same_as(loop.loop_var):
            return node
        return For(node.loop_var, node.min, extent, node.kind, node.body)

    def change_block(node: Any) -> Any:
        values = zip(node.block.iter_vars, node.iter_values, strict=True)
        iter_vars = [
            IterVar((0, extent), iv.var, iv.iter_type) if v.same_as(loop.loop_var) else iv
            for iv, v in values
        ]
        block = with_parts(node.block, iter_vars=iter_vars)
        return SBlockRealize(node.iter_values, node.predicate, block)

    return tvm_ffi.structural_map(func, [(For, change_loop), (SBlockRealize, change_block)])


def _loop(site: Site, iter_type: int, innermost: bool) -> Any | None:
    """A loop with a constant extent over 1 that binds an iterator of `iter_type`, or None."""
    loops = [f for f, _ in site.bound(iter_type) if isinstance(f.extent, IntImm) and f.extent > 1]
    return (loops[-1] if innermost else loops[0]) if loops else None


def reduction_halved(mod: Any) -> Any | None:
    """The last reduction loop runs for the first half of its iterations only."""
    func = main(mod)
    for site in reversed(sites(func)):
        loop = _loop(site, REDUCE, innermost=True)
        if loop is not None:
            return with_main(_resized(func, loop, int(loop.extent) // 2))
    return None


def loop_short(mod: Any) -> Any | None:
    """The outermost loop over the output misses its last iteration: `range(n)` → `range(n - 1)`."""
    func = main(mod)
    loop = _loop(output_sites(func)[-1], SPATIAL, innermost=False)
    return None if loop is None else with_main(_resized(func, loop, int(loop.extent) - 1))


def loop_long(mod: Any) -> Any | None:
    """The innermost loop over the output runs once too often: `range(n)` → `range(n + 1)`.

    The extra element lies at the start of the next row, which is written again afterwards, and,
    in the last row, one past the end of the buffer.
    """
    func = main(mod)
    loop = _loop(output_sites(func)[-1], SPATIAL, innermost=True)
    return None if loop is None else with_main(_resized(func, loop, int(loop.extent) + 1))


def init_dropped(mod: Any) -> Any | None:
    """The last reduction starts from whatever its buffer holds: its init is deleted."""
    func = main(mod)
    inits = [s for s in sites(func) if s.is_init]
    if not inits:
        return None
    target = inits[-1].block

    def drop(block: Any) -> Any:
        return with_parts(block, init=None) if block.same_as(target) else block

    return with_main(tvm_ffi.structural_map(func, (SBlock, drop)))


def _only_where(mod: Any, condition: Any) -> Any | None:
    """The last store to an output happens only where `condition(loops of spatial iterators)`."""
    func = main(mod)
    site = output_sites(func)[-1]
    loops = [f for f, _ in site.bound(SPATIAL)]
    if not any(int(f.extent) > 1 for f in loops):
        return None

    def guard(realize: Any) -> Any:
        predicate = And(realize.predicate, condition(loops))
        return SBlockRealize(realize.iter_values, predicate, realize.block)

    return with_main(replace_block(func, site, guard))


def row_skipped(mod: Any) -> Any | None:
    """The first row of the output is never written."""

    def not_first(loops: list[Any]) -> Any:
        return next(f for f in loops if int(f.extent) > 1).loop_var > 0

    return _only_where(mod, not_first)


def last_element_unwritten(mod: Any) -> Any | None:
    """The very last element of the output is never written."""

    def not_last(loops: list[Any]) -> Any:
        condition: Any = loops[0].loop_var < loops[0].extent - 1
        for loop in loops[1:]:
            condition = condition | (loop.loop_var < loop.extent - 1)
        return condition

    return _only_where(mod, not_last)


def transposed_write(mod: Any) -> Any | None:
    """The last two dimensions of the last output are written in the other order.

    Element (i, j) of an m by n output goes to the place j·m + i of the flat m·n elements.
    """
    func = main(mod)
    target = output_sites(func)[-1].store.buffer
    shape = [int(s) for s in target.shape]
    if len(shape) < 2 or 1 in shape[-2:]:
        return None
    rows, columns = shape[-2:]

    def moved(indices: Any) -> list[Any]:
        flat = indices[-1] * rows + indices[-2]
        return [*indices[:-2], FloorDiv(flat, columns), FloorMod(flat, columns)]

    def move_store(store: Any) -> Any:
        if not store.buffer.same_as(target):
            return store
        return BufferStore(store.buffer, store.value, moved(store.indices))

    def move_load(load: Any) -> Any:
        return BufferLoad(load.source, moved(load.indices)) if load.source.same_as(target) else load

    changed = tvm_ffi.structural_map(func, [(BufferStore, move_store), (TensorLoad, move_load)])
    return with_main(changed)


def one_element_wrong(mod: Any) -> Any | None:
    """One element in the middle of the last output is off by 1 %, at least 0.01; integers by 1."""
    func = main(mod)
    buffer = outputs(func)[-1]
    cell = [int(s) // 2 for s in buffer.shape]
    value = BufferLoad(buffer, cell)
    dtype = str(buffer.dtype)
    if is_float(buffer):
        size = Max(abs_(value), const(1.0, dtype))
        value = value + size * const(0.01, dtype)
    else:
        value = value + const(1, dtype)
    return with_main(append(func, BufferStore(buffer, value, cell)))


def input_modified(mod: Any) -> Any | None:
    """The first input is changed after the right outputs were written: `A[0] = A[0] + 1`."""
    func = main(mod)
    written = outputs(func)
    inputs = [p for p in func.params if not any(p.same_as(w) for w in written)]
    cell = [0] * len(inputs[0].shape)
    value = BufferLoad(inputs[0], cell) + const(1, str(inputs[0].dtype))
    return with_main(append(func, BufferStore(inputs[0], value, cell)))
