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

import tvm
import tvm_ffi
from tvm.tirx import For, ForKind, IterVar, Var

from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rule_loops import disjoint
from tirgym.harness.tensorir.rule_threads import own_buffer

__all__ = ["THREADS", "completed"]

THREADS = 64
"""Threads of a block that completion makes: two warps of NVIDIA's GPUs, one of AMD's."""


def completed(program: TensorIRProgram) -> TensorIRProgram:
    """`program` with every statement bound; the program itself where nothing is missing.

    Intermediate buffers in global memory that one kernel alone uses become local ones: device compilers
    have no global memory within a kernel.
    """
    while True:
        facts = program.facts
        bare = next((n for n, (part, _, _) in enumerate(facts.parts) if not part.bound), None)
        if bare is None:
            return _kept_by_threads(program)
        program = _bound(program, facts, bare)


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
        if _uses_shared(facts, range(block, block + len(part.views))):
            axes = {"blockIdx.x": fused}
        else:
            total = prod(facts.extents[i] for i in loops)
            blocks, threads = schedule.split(fused, [None, min(THREADS, total)])
            axes = {"blockIdx.x": blocks, "threadIdx.x": threads}
    named = {hash(schedule.get(loop).loop_var): axis for axis, loop in axes.items()}
    made = new_schedule(_with_axes(schedule.mod, named))
    return TensorIRProgram(program.workload, program.target, program.steps, made)


def _with_axes(mod: Any, axes: Mapping[int, str]) -> Any:
    """`mod` with loops bound, given as axis by handle of the loop variable.

    TVM's own primitive asks for more than that iterations write different elements: it refuses every
    loop above the halves of a decomposed reduction.
    """

    def bound(node: Any) -> Any:
        axis = axes.get(hash(node.loop_var))
        if axis is None:
            return node
        thread = IterVar(None, Var("", "int32"), IterVar.ThreadIndex, axis)
        kind = ForKind.THREAD_BINDING
        return For(node.loop_var, node.min, node.extent, kind, node.body, thread)

    functions = {
        name.name_hint: tvm_ffi.structural_map(func, [(For, bound)])
        for name, func in mod.functions.items()
    }
    return tvm.IRModule(functions)


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
    made = new_schedule(schedule.mod)
    return TensorIRProgram(program.workload, program.target, program.steps, made)


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
