"""The vocabulary rules: what tirgym refuses beyond what the compiler refuses, one function each.

A rule looks at a whole row of transforms at once: those that differ only in the node they act on
(`Split` by 8 of any loop, `ComputeAt` of block 2 at any loop). It gets one of them as a prototype and
answers the set of nodes it refuses, as bits; a single transform is one bit of its row. So the mask
of thousands of actions and the verdict on one of them are the same code.

Most rules exist because the compiler accepts, and then silently miscompiles, what they refuse; see
`meaning.py`. None of them looks at how the program was made: legality is a function of IR and target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tirgym.harness.tensorir import meaning
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import UNROLLED
from tirgym.harness.transforms.base import Transform

__all__ = [
    "MAX_BLOCKS",
    "MAX_LOOPS",
    "MAX_UNROLL",
    "MAX_VECTOR",
    "RULES",
    "Rule",
    "first_refusal",
    "rules_for",
]

MAX_LOOPS = 40
"""A program with as many loops gets no new ones; moves may still add a few."""
MAX_BLOCKS = 12
"""A program with as many blocks gets no new ones."""
MAX_UNROLL = 64
"""Largest product of unrolled extents around one block."""
MAX_UNROLL_EXTENT = 16
"""Largest extent of one unrolled loop."""
MAX_VECTOR = 64
"""Most lanes of a vectorized loop."""
MAX_BUFFER_BYTES = 64 << 20
"""Largest buffer that a transform may add."""

_EVERYTHING = -1


class Rule(NamedTuple):
    """One reason to refuse.

    `refused(facts, prototype, asked)` is a bit set over the row's nodes; only the members of `asked`
    matter, so that a rule need not look at nodes that are illegal anyway.
    """

    name: str
    reason: str
    kinds: tuple[str, ...]
    """class names of the transforms it judges; empty: all"""
    refused: Callable[[Facts, Any, int], int]


def _missing(facts: Facts, t: Any, asked: int) -> int:
    axis = t.axis()
    if axis == "loop":
        block = getattr(t, "block", 0)
        return ~facts.all_loops if 0 <= block < len(facts.blocks) else _EVERYTHING
    return ~facts.all_blocks if axis == "block" else 0


def _missing_read(facts: Facts, t: Any, asked: int) -> int:
    if t.read < 0:
        return _EVERYTHING
    return sum(1 << b.index for b in facts.blocks if t.read >= len(b.facts.reads))


def _too_many_loops(facts: Facts, t: Any, asked: int) -> int:
    return _EVERYTHING if len(facts.loops) >= MAX_LOOPS else 0


def _too_many_blocks(facts: Facts, t: Any, asked: int) -> int:
    return _EVERYTHING if len(facts.blocks) >= MAX_BLOCKS else 0


def _indivisible(facts: Facts, t: Any, asked: int) -> int:
    factor = t.factor
    if factor < 2:
        return _EVERYTHING
    return sum(1 << x.index for x in facts.loops if x.extent % factor or x.extent <= factor)


def _imperfect(facts: Facts, t: Any, asked: int) -> int:
    return ~facts.over_loop


def _frozen(facts: Facts, t: Any, asked: int) -> int:
    refused = facts.vectorized | facts.bound
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def _parallel_frozen(facts: Facts, t: Any, asked: int) -> int:
    refused = facts.parallel
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def _marked(facts: Facts, t: Any, asked: int) -> int:
    return ~facts.serial


def _annotated(facts: Facts, t: Any, asked: int) -> int:
    refused = facts.annotated
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def _not_over_block(facts: Facts, t: Any, asked: int) -> int:
    return ~facts.over_block


def _vector_extent(facts: Facts, t: Any, asked: int) -> int:
    return sum(1 << x.index for x in facts.loops if not 2 <= x.extent <= MAX_VECTOR)


def _unroll_extent(facts: Facts, t: Any, asked: int) -> int:
    loops = facts.loops
    refused = 0
    for loop in loops:
        if not 2 <= loop.extent <= MAX_UNROLL_EXTENT:
            refused |= 1 << loop.index
            continue
        if not facts.unrolled:
            continue
        for block in loop.blocks:
            copies = loop.extent
            for i in facts.blocks[block].chain:
                if loops[i].kind == UNROLLED:
                    copies *= loops[i].extent
            if copies > MAX_UNROLL:
                refused |= 1 << loop.index
    return refused


def _no_threads(facts: Facts, t: Any, asked: int) -> int:
    return _EVERYTHING if facts.num_threads < 2 else 0


def _not_outermost(facts: Facts, t: Any, asked: int) -> int:
    refused = facts.around(facts.parallel)
    for loop in facts.loops:
        inside = any(facts.loops[i].extent != 1 for i in loop.chain[:-1])
        if inside or facts.below[loop.index] & facts.parallel:
            refused |= 1 << loop.index
    return refused


def _nothing_to_decompose(facts: Facts, t: Any, asked: int) -> int:
    return sum(1 << i for i, block in enumerate(facts.first_init) if block < 0)


def _rfactor_bytes(facts: Facts, t: Any, asked: int) -> int:
    refused = 0
    for loop in facts.loops:
        if len(loop.blocks) == 1:
            written = facts.blocks[loop.blocks[0]].facts.writes
            if sum(w.buffer.nbytes for w in written) * loop.extent > MAX_BUFFER_BYTES:
                refused |= 1 << loop.index
    return refused


def _thread_binding(facts: Facts, t: Any, asked: int) -> int:
    return _EVERYTHING


STRUCTURAL = ("Split", "Reorder", "Fuse")
MARKS = ("Vectorize", "Parallel", "Unroll", "UnrollPragma")
MOVES = ("ComputeAt", "ReverseComputeAt")
INLINES = ("ComputeInline", "ReverseComputeInline")
STAGES = ("CacheRead", "CacheWrite")

RULES: tuple[Rule, ...] = (
    Rule("exists", "the program has no such loop or block", (), _missing),
    Rule("read exists", "the block has no such read region", ("CacheRead",), _missing_read),
    Rule("no thread binding", "this backend has no thread axes", ("Bind",), _thread_binding),
    Rule(
        "loop cap",
        f"the program has {MAX_LOOPS} loops already",
        ("Split", *STAGES, "DecomposeReduction", "RFactor"),
        _too_many_loops,
    ),
    Rule(
        "block cap",
        f"the program has {MAX_BLOCKS} blocks already",
        (*STAGES, "DecomposeReduction", "RFactor"),
        _too_many_blocks,
    ),
    Rule(
        "factor divides",
        "the factor does not divide the extent, or leaves one iteration",
        ("Split",),
        _indivisible,
    ),
    Rule("perfect nest", "the body is not exactly one loop", ("Reorder", "Fuse"), _imperfect),
    Rule(
        "vectorized is frozen",
        "a vectorized or thread-bound loop is not changed any more",
        (*STRUCTURAL, *MARKS),
        _frozen,
    ),
    Rule(
        "parallel is frozen",
        "a parallel loop is not changed any more",
        STRUCTURAL,
        _parallel_frozen,
    ),
    Rule(
        "annotated is frozen",
        "the loop, or the one inside it, carries a pragma",
        ("Split", "Fuse", "UnrollPragma"),
        _annotated,
    ),
    Rule("serial", "the loop is not serial", (*MARKS, "RFactor"), _marked),
    Rule("ordered block", "a block below needs its order", ("Reorder",), meaning.ordered),
    Rule(
        "no reordering of recomputed sums",
        "a reduction below is computed again and again, and its loops must stay in order",
        ("Reorder",),
        meaning.recomputed_reorder,
    ),
    Rule("vector body", "the body is not exactly one block", ("Vectorize",), _not_over_block),
    Rule(
        "vector extent",
        f"the extent is not within 2 to {MAX_VECTOR}",
        ("Vectorize",),
        _vector_extent,
    ),
    Rule(
        "vector lanes",
        "the lanes do not write different elements",
        ("Vectorize",),
        meaning.colliding_lanes,
    ),
    Rule(
        "unroll extent",
        f"the extent is not within 2 to {MAX_UNROLL_EXTENT}, or more than {MAX_UNROLL} copies",
        ("Unroll",),
        _unroll_extent,
    ),
    Rule("threads", "the target has one thread", ("Parallel",), _no_threads),
    Rule(
        "parallel outermost",
        "the loop lies inside another loop or around a parallel one",
        ("Parallel",),
        _not_outermost,
    ),
    Rule(
        "parallel writes",
        "iterations write the same elements of a shared buffer",
        ("Parallel",),
        meaning.shared_writes,
    ),
    Rule(
        "reduction below",
        "no reduction with an initialisation lies below",
        ("DecomposeReduction",),
        _nothing_to_decompose,
    ),
    Rule(
        "no decomposition above recomputation",
        "a loop from here on repeats the sum, which would be added up again",
        ("DecomposeReduction",),
        meaning.decomposes_recomputation,
    ),
    Rule(
        "rfactor memory", "the partial results need too much memory", ("RFactor",), _rfactor_bytes
    ),
    Rule(
        "rfactor once",
        "the reduction is recomputed, guarded, or holds a vectorized or parallel loop",
        ("RFactor",),
        meaning.rfactor_repeats,
    ),
    Rule(
        "rfactor siblings",
        "a block without a loop of its own shares a loop with the reduction",
        ("RFactor",),
        meaning.rfactor_sibling,
    ),
    Rule(
        "no moves of vectorized code",
        "the block or the loop is vectorized",
        MOVES,
        meaning.vectorized_move,
    ),
    Rule(
        "not overwritten",
        "a later block writes what this block reads",
        (*MOVES, *INLINES, *STAGES),
        meaning.overwritten,
    ),
    Rule(
        "no partial sums",
        "a producer is still reducing over this loop",
        MOVES,
        meaning.partial_sums,
    ),
    Rule(
        "needs a producer",
        "no other block produces what this block reads",
        ("ReverseComputeAt",),
        meaning.without_producer,
    ),
    Rule(
        "plain reads",
        "the block reads what was produced with an offset, a stride or a guard",
        ("ReverseComputeAt",),
        meaning.shifted_reads,
    ),
    Rule(
        "dense region",
        "a producer covers no dense box below the loop, or producers differ",
        ("ReverseComputeAt",),
        meaning.scattered_region,
    ),
    Rule(
        "sums stay whole",
        "a reduction would add terms more than once, or be read before its end",
        ("ReverseComputeAt",),
        meaning.repeated_terms,
    ),
    Rule(
        "sole reader",
        "another block reads the buffer that would be dropped",
        ("ReverseComputeInline",),
        meaning.shared_producer,
    ),
    Rule(
        "parallel stages",
        "a block below a parallel loop that computes for itself is not staged",
        STAGES,
        meaning.private_stage,
    ),
    Rule(
        "work",
        f"the program would do over {meaning.MAX_WORK} times the work of one without recomputation",
        MOVES,
        meaning.too_much_work,
    ),
    Rule(
        "inline size",
        f"the expression would grow beyond {meaning.MAX_EXPRESSION} nodes",
        ("ComputeInline",),
        meaning.swollen_inline,
    ),
)
"""Every rule, in the order in which they are asked; the first that refuses gives the reason."""


@cache
def rules_for(kind: str) -> tuple[Rule, ...]:
    """The rules that judge transforms of class `kind`."""
    return tuple(rule for rule in RULES if not rule.kinds or kind in rule.kinds)


def first_refusal(facts: Facts, transform: Transform) -> Rule | None:
    """The first rule that refuses `transform`."""
    axis = transform.axis()
    node = getattr(transform, axis) if axis else 0
    if node < 0:
        return RULES[0]
    here = 1 << node
    rules = rules_for(transform.name)
    return next((r for r in rules if r.refused(facts, transform, here) & here), None)
