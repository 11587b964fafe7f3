"""`nest_counts`: what one call of a TensorIR program executes, counted and not estimated.

Counts are of the IR as it stands, before the compiler removes or merges anything: an expression that
a block uses several times counts once, both sides of a condition inside a block count, and a block
counts only where its predicate holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Call, StringImm
from tvm.tirx import IntImm
from tvm_ffi import structural_hash

from tirgym.harness.static_accesses import access_plan, bound_accesses
from tirgym.harness.static_body import loaded
from tirgym.harness.static_domain import Clause, clauses, evaluate, times_true
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.block_view import block_view
from tirgym.harness.tensorir.intrinsics import OPERATIONS
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    REDUCE,
    VECTORIZED,
    Access,
    Block,
    Buffer,
    LoopNest,
    items,
)
from tirgym.harness.tensorir.wmma import CALLS

__all__ = ["NestCounts", "nest_counts", "vector_intrinsic"]

_SWEEP = 4096
"""Iterations of an innermost loop that are looked at for strides."""


@dataclass(frozen=True, slots=True)
class NestCounts:
    """Totals of one call."""

    executions: int
    """of blocks, where their predicates hold"""
    flops: int
    """arithmetic on values; a multiply-add counts two, a call one"""
    calls: int
    """of scalar mathematical functions (exp, tanh, …)"""
    load_bytes: int
    store_bytes: int
    """initialisations of reductions included"""
    moving_bytes: int
    """bytes of `load_bytes` and `store_bytes` inside a loop of more than one iteration"""
    strided_bytes: float
    """those of `moving_bytes` that a step of the innermost such loop puts more than one element
    from the last"""
    vector_executions: int
    """inside vectorized loops, or by a vector intrinsic"""
    parallel_executions: int
    predicates: int
    """tests of predicates"""
    first_steps: int
    """tests whether a reduction is at its first step, to initialise it"""
    branches: int
    """conditions inside blocks that choose what is executed"""
    selects: int
    """conditions inside blocks that choose between two computed values"""
    exact: bool
    """False: a predicate could not be counted and was taken as true; totals are upper bounds"""
    loads: Mapping[str, int]
    """`load_bytes` by buffer name"""
    stores: Mapping[str, int]
    """`store_bytes` by buffer name"""

    @property
    def conditions(self) -> int:
        """Conditions of all kinds that are tested."""
        return self.predicates + self.first_steps + self.branches + self.selects


class _Move(NamedTuple):
    """Elements of one buffer that one execution of a block loads or stores."""

    buffer: Buffer
    write: bool
    elements: int
    times: int
    """executions in one call"""
    indices: tuple[Any, ...]
    """of the first element, in the iterators of the block"""

    @property
    def nbytes(self) -> int:
        """In one call."""
        item = self.buffer.nbytes // max(1, math.prod(self.buffer.shape))
        return self.times * self.elements * item


class _Runs(NamedTuple):
    """How often the parts of a block are executed."""

    visits: int
    """iterations of the loops around it"""
    body: int
    init: int
    exact: bool


def nest_counts(nest: LoopNest) -> NestCounts:
    """Count in a loop nest; loops whose extent is no constant count as one iteration."""
    totals: dict[str, float] = dict.fromkeys(NestCounts.__dataclass_fields__, 0)
    exact = True
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    for block in nest.blocks:
        runs = _runs(nest, block)
        exact = exact and runs.exact
        for name, count in _work(nest, block, runs).items():
            totals[name] += count
        for move in _moves(block, runs):
            into, total = (stores, "store_bytes") if move.write else (loads, "load_bytes")
            into[move.buffer.name] = into.get(move.buffer.name, 0) + move.nbytes
            totals[total] += move.nbytes
            far = _far_share(nest, block, move)
            if far is not None:
                totals["moving_bytes"] += move.nbytes
                totals["strided_bytes"] += far * move.nbytes
    return NestCounts(**{**totals, "exact": exact, "loads": loads, "stores": stores})  # type: ignore[arg-type]


def _runs(nest: LoopNest, block: Block) -> _Runs:
    """Executions of the body and of the initialisation of a block."""
    extents = {nest.loops[i].var: max(1, nest.loops[i].extent) for i in block.chain}
    visits = math.prod(extents.values())
    guards = clauses(block.realize.predicate) if block.has_predicate else []
    body = times_true(guards, extents)
    if not block.facts.has_init:
        return _Runs(visits, body.times, 0, body.exact)
    firsts = [
        Clause(value, int(iterator.dom.min))
        for iterator, value, kind in zip(
            items(block.facts.node.iter_vars),
            items(block.realize.iter_values),
            block.facts.iter_types,
            strict=True,
        )
        if kind == REDUCE
    ]
    init = times_true([*guards, *firsts], extents)
    return _Runs(visits, body.times, init.times, body.exact and init.exact)


def _work(nest: LoopNest, block: Block, runs: _Runs) -> dict[str, int]:
    """The totals of one block that do not depend on where its accesses go."""
    ops = block_ops(block.facts.node)
    kinds = {nest.loops[i].kind for i in block.chain}
    intrinsic = vector_intrinsic(block)
    return {
        "executions": runs.body,
        "flops": runs.body * OPERATIONS.get(intrinsic, ops.flops),
        "calls": 0 if intrinsic in OPERATIONS else runs.body * ops.calls,
        "vector_executions": runs.body if VECTORIZED in kinds or intrinsic in OPERATIONS else 0,
        "parallel_executions": runs.body if PARALLEL in kinds else 0,
        "predicates": runs.visits if block.has_predicate else 0,
        "first_steps": runs.body if block.facts.has_init else 0,
        "branches": runs.body * ops.branches,
        "selects": runs.body * ops.selects,
    }


def vector_intrinsic(block: Block) -> str:
    """Name of the LLVM intrinsic, or of TVM's operator on fragments, that a block consists of; "" for
    ordinary arithmetic."""
    if not block_view(block.placement).intrinsic:
        return ""
    todo = [block.facts.node.body]
    while todo:
        node = todo.pop()
        name = str(getattr(node.op, "name", "")) if type(node) is Call else ""
        if name in CALLS:
            return name
        if name.startswith("tirx.call_llvm"):
            return _llvm_name(node.args[0])
        todo += items(node.seq) if hasattr(node, "seq") else ()
        value = getattr(node, "value", None)
        if value is not None and not isinstance(value, int | float | str):
            todo.append(value)
        todo += items(node.args) if type(node) is Call else ()
    return ""


def _llvm_name(argument: Any) -> str:
    from tvm.target.codegen import llvm_get_intrinsic_name

    if type(argument) is IntImm:
        return str(llvm_get_intrinsic_name(argument.value))
    return str(argument.value) if type(argument) is StringImm else str(argument)


def _moves(block: Block, runs: _Runs) -> list[_Move]:
    """What a block loads and stores; intrinsics load and store their whole regions."""
    facts = block.facts
    if block_view(block.placement).intrinsic:
        return [
            _region_move(access, part, write, runs.body)
            for accesses, parts, write in (
                (facts.reads, facts.node.reads, False),
                (facts.writes, facts.node.writes, True),
            )
            for access, part in zip(accesses, items(parts), strict=True)
        ]
    buffers = {access.buffer.handle: access.buffer for access in (*facts.reads, *facts.writes)}
    found: dict[tuple[int, ...], _Move] = {}
    for source, indices in loaded(facts.node):
        if hash(source) in buffers:
            key = (hash(source), *(structural_hash(index) for index in indices))
            found.setdefault(key, _Move(buffers[hash(source)], False, 1, runs.body, indices))
    moves = list(found.values())
    for access, part in zip(facts.writes, items(facts.node.writes), strict=True):
        moves.append(_region_move(access, part, True, runs.body)._replace(elements=1))
        if runs.init:
            moves.append(moves[-1]._replace(times=runs.init))
    return moves


def _region_move(access: Access, part: Any, write: bool, times: int) -> _Move:
    elements = math.prod(max(1, extent) for _, extent in access.region)
    starts = tuple(each.min for each in items(part.region))
    return _Move(access.buffer, write, elements, times, starts)


def _far_share(nest: LoopNest, block: Block, move: _Move) -> float | None:
    """Share of the steps of the innermost loop that move an access by more than one element.

    Of the loop of more than one iteration; None without such a loop. Indices that depend on data
    go by their linear part.
    """
    inner = [nest.loops[i] for i in block.chain if nest.loops[i].extent > 1]
    if not inner:
        return None
    axes = {nest.loops[i].var: np.zeros(1, np.int64) for i in block.chain}
    axes[inner[-1].var] = np.arange(min(inner[-1].extent, _SWEEP))
    iterators: dict[int, NDArray[Any]] = {}
    values = items(block.realize.iter_values)
    for handle, value in zip(block.facts.iter_handles, values, strict=True):
        known = evaluate(value, axes)
        if known is not None:
            iterators[handle] = known
    offset: Any = np.zeros(1, np.int64)
    for size, index in zip(move.buffer.shape, move.indices, strict=True):
        place = evaluate(index, iterators)
        if place is None:
            return _linear_share(block, move, inner[-1].var)
        offset = offset * size + place
    steps = np.diff(np.broadcast_to(offset, axes[inner[-1].var].shape))
    return float(np.mean(np.abs(steps) > 1))


def _linear_share(block: Block, move: _Move, variable: int) -> float:
    """1 if the linear part of an access moves by more than one element with `variable`, else 0."""
    accesses = bound_accesses(access_plan(block.facts), block.bindings)
    strides = [a.strides.get(variable, 0.0) for a in accesses if a.buffer == move.buffer.handle]
    return float(any(abs(stride) > 1.0 for stride in strides))
