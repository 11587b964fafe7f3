"""`completed`: every statement of a program bound to threads, so that a GPU can run it.

The rule, which the unscheduled program gets too (it is TVM's DefaultGPUSchedule at heart): a statement
of the function's root in which the agent bound a loop stays as it is. In any other one the outermost
serial loops, as many as lie perfectly inside each other and whose iterations write different
elements, are fused and split into blocks of `THREADS` threads. Where a buffer in it lies in shared
memory a block has one thread. Where no loop qualifies the statement runs on one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm.tirx import For, ForKind, IterVar, Var

from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.fragments import without_mixed_fragments
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rewriting import with_nodes
from tirgym.harness.tensorir.rule_loops import disjoint
from tirgym.harness.tensorir.rule_threads import axes_of, own_buffer
from tirgym.harness.tensorir.wmma import WARP

__all__ = ["THREADS", "completed"]

THREADS = 64
"""Threads of a block that completion makes: two warps of NVIDIA's GPUs, one of AMD's."""


def completed(program: TensorIRProgram) -> TensorIRProgram:
    """`program` with every statement bound; the program itself where nothing is missing.

    Intermediate buffers in global memory that one kernel alone uses become local ones: device compilers
    have no global memory within a kernel.
    """
    program = without_mixed_fragments(program)
    while True:
        facts = program.facts
        bare = next((n for n, (part, _, _) in enumerate(facts.parts) if not part.bound), None)
        if bare is None:
            return _kept_by_threads(_with_warps(program))
        program = _bound(program, facts, bare)


def _with_warps(program: TensorIRProgram) -> TensorIRProgram:
    """`program` with threadIdx.x for kernels with instructions of a warp and no loop on that axis."""
    facts, axes = program.facts, axes_of(program.facts)
    outer: dict[int, int] = {}
    for part, first, block in facts.parts:
        loops = range(first, first + len(part.extents))
        warps = facts.collective >> block & (1 << len(part.views)) - 1
        if not warps or any(axes.get(i) == "threadIdx.x" for i in loops):
            continue
        inner = first
        while (
            axes[inner].startswith("blockIdx")
            and facts.over_loop >> inner & 1
            and (axes.get(inner + 1, "").startswith("blockIdx"))
        ):
            inner += 1
        outer[facts.variables[inner]] = inner
    return _remade(program, _with_lanes(program.mod, outer, axes)) if outer else program


def _with_lanes(mod: Any, outer: Mapping[int, int], axes: Mapping[int, str]) -> Any:
    """`mod` with a loop over the threads of a warp inside of loops bound to blocks, around others; `outer`
    are their numbers by handle of the loop variable."""

    def lanes(body: Any) -> Any:
        return _thread_loop(Var("lane", "int32"), WARP, "threadIdx.x", body)

    def wrapped(node: Any) -> Any:
        loop = outer.get(hash(node.loop_var))
        if loop is None:
            return node
        if not axes[loop].startswith("blockIdx"):
            return lanes(node)
        return _thread_loop(node.loop_var, node.extent, axes[loop], lanes(node.body))

    return with_nodes(mod, (For, wrapped))


def _thread_loop(variable: Any, extent: Any, axis: str, body: Any) -> Any:
    thread = IterVar(None, Var("", "int32"), IterVar.ThreadIndex, axis)
    return For(variable, 0, extent, ForKind.THREAD_BINDING, body, thread)


def _remade(program: TensorIRProgram, mod: Any) -> TensorIRProgram:
    return TensorIRProgram(program.workload, program.target, program.steps, new_schedule(mod))


def _bound(program: TensorIRProgram, facts: Facts, number: int) -> TensorIRProgram:
    """`program` with its root's statement `number` bound."""
    part, first, block = facts.parts[number]
    schedule = program.schedule
    at = Handles(schedule, program.nest)
    loops = _fusible(facts, first, len(part.extents), range(block, block + len(part.views)))
    if not loops:
        below = at.loop(first) if part.extents else at.block(block)
        axes = {"blockIdx.x": schedule.add_unit_loop(below)}
    else:
        handles = [at.loop(i) for i in loops]
        fused = schedule.fuse(*handles) if len(handles) > 1 else handles[0]
        blocks = range(block, block + len(part.views))
        if _uses_shared(facts, blocks) or any(facts.collective >> b & 1 for b in blocks):
            axes = {"blockIdx.x": fused}
        else:
            total = prod(facts.extents[i] for i in loops)
            outer, inner = schedule.split(fused, [None, min(THREADS, total)])
            axes = {"blockIdx.x": outer, "threadIdx.x": inner}
    named = {hash(schedule.get(loop).loop_var): axis for axis, loop in axes.items()}
    return _remade(program, _with_axes(schedule.mod, named))


def _with_axes(mod: Any, axes: Mapping[int, str]) -> Any:
    """`mod` with loops bound, given as axis by handle of the loop variable.

    TVM's own primitive asks for more than that iterations write different elements: it refuses every
    loop above the halves of a decomposed reduction.
    """

    def bound(node: Any) -> Any:
        axis = axes.get(hash(node.loop_var))
        if axis is None:
            return node
        return _thread_loop(node.loop_var, node.extent, axis, node.body)

    return with_nodes(mod, (For, bound))


def _kept_by_threads(program: TensorIRProgram) -> TensorIRProgram:
    """`program` with local buffers where one kernel alone uses them."""
    facts = program.facts
    found: dict[int, tuple[int, int]] = {}
    for b, block in enumerate(facts.blocks):
        for number, access in enumerate(block.facts.writes):
            buffer = access.buffer
            if buffer.scope == "global" and own_buffer(facts, buffer.handle):
                found.setdefault(buffer.handle, (b, number))
    if not found:
        return program
    schedule = program.schedule
    at = Handles(schedule, program.nest)
    for b, number in found.values():
        schedule.set_scope(at.block(b), number, "local")
    return _remade(program, schedule.mod)


def _fusible(facts: Facts, first: int, count: int, blocks: range) -> list[int]:
    """The outermost loops that completion may spread over threads."""
    found: list[int] = []
    for i in range(first, first + count):
        plain = facts.serial >> i & 1 and not facts.annotated >> i & 1 and facts.extents[i] > 0
        below = [b for b in blocks if facts.chain[b] >> i & 1]
        if not plain or any(facts.views[b].ordered or not disjoint(facts, b, i) for b in below):
            break
        found.append(i)
        if not facts.over_loop >> i & 1:
            break
    return found


def _uses_shared(facts: Facts, blocks: range) -> bool:
    accesses = [
        access
        for b in blocks
        for access in (*facts.blocks[b].facts.reads, *facts.blocks[b].facts.writes)
    ]
    return any(access.buffer.scope == "shared" for access in accesses)
