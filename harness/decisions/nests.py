"""What the tasks of TensorIR design spaces ask of a program: blocks by name, loops of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import cast

from tvm.ir.expr import Call

from tirgym.errors import IllegalTransformError
from tirgym.harness.decisions.point import Option
from tirgym.harness.program import Program
from tirgym.harness.static_accesses import exact_accesses
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.nest import PARALLEL, UNROLLED, VECTORIZED, Block, LoopNest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef, Transform

__all__ = [
    "attempt",
    "by_lane",
    "calls",
    "closest",
    "closest_lanes",
    "divisors",
    "find",
    "has_reuse",
    "loop_name",
    "loop_tree",
    "numbers",
    "own_loops",
    "reduces",
    "tensorir",
]


def tensorir(program: Program) -> TensorIRProgram:
    """`program`, which these tasks were made for."""
    return cast(TensorIRProgram, program)


def attempt(program: TensorIRProgram, *transforms: Transform) -> TensorIRProgram | None:
    """The program after `transforms`, or None as soon as one of them is illegal.

    The last programs that were made are kept: what a task tries while it asks, it does again as soon
    as the question is answered.
    """
    after: TensorIRProgram | None = program
    for transform in transforms:
        after = _after(after, transform) if after is not None else None
    return after


@lru_cache(maxsize=64)
def _after(program: TensorIRProgram, transform: Transform) -> TensorIRProgram | None:
    try:
        return program.apply(transform)
    except IllegalTransformError:
        return None


def find(program: TensorIRProgram, name: str) -> Block | None:
    """The block called `name`, None unless there is exactly one."""
    found = [block for block in program.nest.blocks if block.facts.name == name]
    return found[0] if len(found) == 1 else None


def own_loops(nest: LoopNest, block: Block) -> tuple[int, ...]:
    """The innermost loops of `block` that hold nothing else, outermost first: a perfect nest."""
    return tuple(i for i in block.chain if len(nest.loops[i].blocks) == 1)


def reduces(program: TensorIRProgram, block: Block, loop: int) -> bool:
    """Whether `block` reduces over `loop`."""
    return bool(program.facts.reduced[block.index] >> loop & 1)


def has_reuse(block: Block) -> bool:
    """Whether some read does not depend on every spatial iterator, so that tiles are read again.

    MetaSchedule's condition for multi-level tiling (NeedsMultiLevelTiling).
    """
    facts = block.facts
    spatial = {
        handle
        for handle, kind, extent in zip(
            facts.iter_handles, facts.iter_types, facts.iter_extents, strict=True
        )
        if kind == 0 and extent > 1
    }
    written = {write.buffer.handle for write in facts.writes}
    for read in facts.reads:
        if read.buffer.handle in written:
            continue
        for load in exact_accesses(read, facts.node):
            if not spatial <= {h for start, _ in load.region for h in start.coefficients}:
                return True
    return False


def calls(node: object) -> bool:
    """Whether an expression calls anything: a function that costs, or a guard."""
    if type(node) is Call:
        return True
    for part in ("a", "b", "value", "condition", "true_value", "false_value", "body"):
        child = getattr(node, part, None)
        if child is not None and not isinstance(child, int | float | str) and calls(child):
            return True
    return any(calls(child) for child in getattr(node, "seq", None) or ())


def by_lane(block: Block) -> bool:
    """Whether vectors of a block are taken apart: it calls the C library, or has a guard."""
    ops = block_ops(block.facts.node)
    return bool(ops.calls or ops.branches)


def divisors(number: int, cap: int) -> list[int]:
    """Divisors of `number` from 1 to `cap`, ascending."""
    return [d for d in range(1, min(number, cap) + 1) if number % d == 0]


def closest(values: Iterable[int], goal: int) -> int:
    """Position of the value next to `goal` by ratio, the larger of equals."""
    ranked = list(values)
    return min(
        range(len(ranked)), key=lambda i: (max(ranked[i] / goal, goal / ranked[i]), -ranked[i])
    )


def closest_lanes(values: Iterable[int], lanes: int) -> int:
    """Position of the value that fills about two vector registers of `lanes`, in whole powers of two.

    Vectors of other lengths are taken apart by LLVM.
    """

    def loss(value: int) -> tuple[float, int]:
        power = min(value & -value, lanes)
        return abs(math.log2(value / (2 * lanes))) + math.log2(lanes / power) / 2, -value

    ranked = list(values)
    return min(range(len(ranked)), key=lambda i: loss(ranked[i]))


def numbers(values: Iterable[int]) -> tuple[Option, ...]:
    """Options that say nothing but a number."""
    return tuple(Option(str(value), value) for value in values)


def loop_name(nest: LoopNest, loop: int) -> str:
    """Variable and extent of a loop."""
    return f"{nest.loops[loop].node.loop_var.name} of {nest.loops[loop].extent}"


_MARKS = {PARALLEL: "parallel ", VECTORIZED: "vectorized ", UNROLLED: "unrolled "}


def loop_tree(program: TensorIRProgram, node: NodeRef) -> str:
    """The loops and blocks of the nest around `node`, one a line; the whole program without one."""
    nest = program.nest
    root = -1
    if node.kind == "loop" and node.index < len(nest.loops):
        root = nest.loops[node.index].chain[0]
    elif node.kind == "block" and node.index < len(nest.blocks):
        chain = nest.blocks[node.index].chain
        root = chain[0] if chain else -2 - node.index
    lines: list[str] = []
    shown: set[int] = set()
    for block in nest.blocks:
        top = block.chain[0] if block.chain else -2 - block.index
        if root not in (-1, top):
            continue
        for depth, i in enumerate(block.chain):
            if i not in shown:
                shown.add(i)
                loop = nest.loops[i]
                mark = _MARKS.get(loop.kind, "")
                lines.append(f"{'  ' * depth}loop {i}: {mark}{loop_name(nest, i)}")
        facts = block.facts
        reads = ", ".join(dict.fromkeys(read.buffer.name for read in facts.reads))
        writes = ", ".join(write.buffer.name for write in facts.writes)
        pad = "  " * len(block.chain)
        lines.append(f"{pad}block {block.index}: {facts.name}, {writes} from {reads or 'nothing'}")
    return "\n".join(lines)
