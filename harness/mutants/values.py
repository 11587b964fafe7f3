"""Mutants that change what is computed: operators, operands, constants, indices, precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import (
    GE,
    GT,
    LE,
    LT,
    Add,
    BufferLoad,
    BufferStore,
    Div,
    FloatImm,
    FloorMod,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
)

from tirgym.harness.mutants.rewrite import (
    Site,
    computations,
    data_nodes,
    dtype_of,
    is_float,
    main,
    map_data,
    output_sites,
    outputs,
    rounded,
    sites,
    with_main,
)

__all__ = [
    "accumulate_float16",
    "constant_changed",
    "edge_read",
    "epilogue_skipped",
    "index_off_by_one",
    "inputs_float16",
    "operands_swapped",
    "operator_changed",
    "read_offset",
]

Change = Callable[[Any], Any | None]

_OPPOSITE = {Add: Sub, Sub: Add, Mul: Add, Div: Mul, Max: Min, Min: Max}
_COMPARE = {LT: GT, GT: LT, LE: GE, GE: LE}


def _last_change(mod: Any, change: Change) -> Any | None:
    """Change the data node nearest to the outputs for which `change(node)` is not None."""
    func = main(mod)
    for site in reversed(computations(func)):
        for node in reversed(list(data_nodes(site.store.value))):
            new = change(node)
            if new is not None:
                return with_main(map_data(func, node, new, site))
    return None


def operator_changed(mod: Any) -> Any | None:
    """The last data operator becomes another: + ↔ -, * → +, / → *, max ↔ min, < ↔ >."""

    def change(node: Any) -> Any | None:
        other = _OPPOSITE.get(type(node)) or _COMPARE.get(type(node))
        return None if other is None else other(node.a, node.b)

    return _last_change(mod, change)


def operands_swapped(mod: Any) -> Any | None:
    """The operands of the last non-commutative data operator change places.

    Subtraction, division, comparison and select; never +, *, min or max.
    """

    def change(node: Any) -> Any | None:
        if isinstance(node, Sub | Div) or type(node) in _COMPARE:
            return type(node)(node.b, node.a)
        if isinstance(node, Select):
            return Select(node.condition, node.false_value, node.true_value)
        return None

    return _last_change(mod, change)


def constant_changed(mod: Any) -> Any | None:
    """The last floating-point constant that matters is multiplied by 1.5; a zero becomes 0.5.

    Constants below 1e-3 that are not zero (such as the epsilon of a norm) and above 1e30 (such
    as the start of a maximum) are left alone: changing them need not show in the result.
    """

    def scaled(node: Any) -> Any | None:
        if isinstance(node, FloatImm) and 1e-3 <= abs(node.value) < 1e30:
            return FloatImm(dtype_of(node), node.value * 1.5)
        return None

    def shifted(node: Any) -> Any | None:
        if isinstance(node, FloatImm) and node.value == 0.0:
            return FloatImm(dtype_of(node), 0.5)
        return None

    found = _last_change(mod, scaled)
    return _last_change(mod, shifted) if found is None else found


def epilogue_skipped(mod: Any) -> Any | None:
    """The last store writes an operand of its epilogue as it is: `D = max(C - b, 0)` → `D = C`."""
    func = main(mod)
    site = output_sites(func)[-1]
    store = site.store
    loads = [
        n
        for n in data_nodes(store.value)
        if isinstance(n, TensorLoad)
        and dtype_of(n) == dtype_of(store.value)
        and not n.source.same_as(store.buffer)
    ]
    if not loads or isinstance(store.value, TensorLoad) or site.block.init is not None:
        return None
    inputs = [p for p in func.params if not p.same_as(store.buffer)]
    made = [n for n in loads if not any(n.source.same_as(p) for p in inputs)]
    return with_main(map_data(func, store.value, (made or loads)[0], site))


def _round_stores(mod: Any, wanted: list[Site]) -> Any | None:
    """Every value stored at `wanted` is rounded to float16."""
    targets = [s.store for s in wanted if is_float(s.store.value)]
    if not targets:
        return None

    def narrow(store: Any) -> Any:
        if not any(store.same_as(t) for t in targets):
            return store
        return BufferStore(store.buffer, rounded(store.value, "float16"), store.indices)

    return with_main(tvm_ffi.structural_map(main(mod), (BufferStore, narrow)))


def accumulate_float16(mod: Any) -> Any | None:
    """Every partial result of every reduction is rounded to float16."""
    reductions = [s for s in sites(main(mod)) if not s.is_init and s.block.init is not None]
    return _round_stores(mod, reductions)


def inputs_float16(mod: Any) -> Any | None:
    """Every floating-point input is rounded to float16 when it is read."""
    func = main(mod)
    written = outputs(func)
    inputs = [p for p in func.params if is_float(p) and not any(p.same_as(w) for w in written)]
    if not inputs:
        return None

    def narrow(load: Any) -> Any:
        return rounded(load, "float16") if any(load.source.same_as(p) for p in inputs) else load

    return with_main(tvm_ffi.structural_map(func, (TensorLoad, narrow)))


def _input_read(func: Any) -> tuple[Site, Any] | None:
    """The last read of an input that moves along its rows as a block iterator grows."""
    written = outputs(func)
    inputs = [p for p in func.params if not any(p.same_as(w) for w in written)]
    for site in reversed(computations(func)):
        iterators = [iv.var for iv in site.block.iter_vars if int(iv.dom.extent) > 1]
        for node in reversed(list(data_nodes(site.store.value))):
            if isinstance(node, TensorLoad) and any(node.source.same_as(p) for p in inputs):
                found: list[Any] = []
                tvm_ffi.structural_walk(node.indices[-1], (Var, found.append))
                if any(v.same_as(i) for v in found for i in iterators):
                    return site, node
    return None


def read_offset(mod: Any) -> Any | None:
    """One read of an input is shifted by one element, inside its row: `A[i, (j + 1) % n]`."""
    func = main(mod)
    found = _input_read(func)
    if found is None:
        return None
    site, load = found
    shifted = FloorMod(load.indices[-1] + 1, load.source.shape[-1])
    return with_main(
        map_data(func, load, BufferLoad(load.source, [*load.indices[:-1], shifted]), site)
    )


def edge_read(mod: Any) -> Any | None:
    """One read of an input goes one too far at the end of a row alone: `A[i, n]` for `A[i, n-1]`.

    In the last row that is past the end of the buffer.
    """
    func = main(mod)
    found = _input_read(func)
    if found is None:
        return None
    site, load = found
    last = load.indices[-1]
    index = Select(last < load.source.shape[-1] - 1, last, last + 1)
    new = BufferLoad(load.source, [*load.indices[:-1], index])
    return with_main(map_data(func, load, new, site))


def index_off_by_one(mod: Any) -> Any | None:
    """An index that is data is one too high: where a gather reads, or where an argmax remembers."""
    func = main(mod)
    for site in reversed(computations(func)):
        iterators = [iv.var for iv in site.block.iter_vars]
        for node in data_nodes(site.store.value):
            gathered = _shifted_gather(node)
            new = _shifted_choice(node, iterators) if gathered is None else gathered
            if new is not None:
                return with_main(map_data(func, node, new, site))
    return None


def _shifted_choice(node: Any, iterators: list[Any]) -> Any | None:
    """`Select(c, old, k)` → `Select(c, old, k + 1)` for an iterator k; None for any other node."""
    if not isinstance(node, Select) or not any(node.false_value.same_as(i) for i in iterators):
        return None
    return Select(node.condition, node.true_value, node.false_value + 1)


def _shifted_gather(node: Any) -> Any | None:
    """`A[idx[i]]` → `A[(idx[i] + 1) % n]`; None for a node that is no such load."""
    if not isinstance(node, TensorLoad):
        return None
    for axis, index in enumerate(node.indices):
        loads: list[Any] = []
        tvm_ffi.structural_walk(index, (TensorLoad, lambda n, into=loads: into.append(n)))
        if loads:
            extent = node.source.shape[axis]
            shifted = FloorMod(index + 1, extent)
            return BufferLoad(
                node.source, [*node.indices[:axis], shifted, *node.indices[axis + 1 :]]
            )
    return None
