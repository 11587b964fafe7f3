"""Rules about what exists, what is frozen, and how large things may get; see `rules.py`."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits

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

EVERYTHING = -1
"""The set of all nodes."""


def missing(facts: Facts, t: Any, asked: int) -> int:
    """No loop or block has that number."""
    axis = t.node_field()
    if axis == "loop":
        block = getattr(t, "block", 0)
        return ~facts.all_loops if 0 <= block < len(facts.blocks) else EVERYTHING
    return ~facts.all_blocks if axis == "block" else 0


def missing_read(facts: Facts, t: Any, asked: int) -> int:
    """The block has no read region of that number."""
    if t.read < 0:
        return EVERYTHING if facts.target.backend == "llvm" else 0
    refused = 0
    here = 1
    for place in facts.placed:
        if t.read >= len(place.facts.reads):
            refused |= here
        here <<= 1
    return refused


def too_many_loops(facts: Facts, t: Any, asked: int) -> int:
    """The program has its fill of loops."""
    return EVERYTHING if facts.nest.size >= MAX_LOOPS else 0


def too_many_blocks(facts: Facts, t: Any, asked: int) -> int:
    """The program has its fill of blocks."""
    return EVERYTHING if len(facts.blocks) >= MAX_BLOCKS else 0


def indivisible(facts: Facts, t: Any, asked: int) -> int:
    """Split that would need a guard, or leaves one iteration outside."""
    factor = t.factor
    if factor < 2:
        return EVERYTHING if facts.target.backend == "llvm" else 0
    refused, here = 0, 1
    for extent in facts.extents:
        if extent % factor or extent <= factor:
            refused |= here
        here <<= 1
    return refused


def imperfect(facts: LoopFacts, t: Any, asked: int) -> int:
    """The body is not exactly one loop."""
    return ~facts.over_loop


def frozen(facts: LoopFacts, t: Any, asked: int) -> int:
    """Vectorized and thread-bound loops, and what is directly around them where that counts."""
    refused = facts.vectorized | facts.bound
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def parallel_frozen(facts: LoopFacts, t: Any, asked: int) -> int:
    """Parallel loops, and what is directly around them where that counts."""
    refused = facts.parallel
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def marked(facts: LoopFacts, t: Any, asked: int) -> int:
    """Loops that are not serial."""
    return ~facts.serial


def annotated(facts: LoopFacts, t: Any, asked: int) -> int:
    """Loops with a pragma, and what is directly around them where that counts."""
    refused = facts.annotated
    if t.name in ("Reorder", "Fuse"):
        refused |= refused >> 1 & facts.over_loop
    return refused


def not_over_block(facts: LoopFacts, t: Any, asked: int) -> int:
    """The body is not exactly one block."""
    return ~facts.over_block


def vector_extent(facts: LoopFacts, t: Any, asked: int) -> int:
    """One lane, or too many."""
    refused, here = 0, 1
    for extent in facts.extents:
        if not 2 <= extent <= MAX_VECTOR:
            refused |= here
        here <<= 1
    return refused


def unroll_extent(facts: LoopFacts, t: Any, asked: int) -> int:
    """One iteration, too many, or too many copies of a block."""
    extents = facts.extents
    refused, here = 0, 1
    for extent in extents:
        if not 2 <= extent <= MAX_UNROLL_EXTENT:
            refused |= here
        here <<= 1
    for chain in facts.chain if facts.unrolled else ():
        copies = 1
        for i in bits(chain & facts.unrolled):
            copies *= extents[i]
        for i in bits(chain & asked & ~refused):
            if extents[i] * copies > MAX_UNROLL:
                refused |= 1 << i
    return refused


def no_threads(facts: Facts, t: Any, asked: int) -> int:
    """A target of one thread."""
    return EVERYTHING if facts.target.num_threads < 2 else 0


def not_outermost(facts: Facts, t: Any, asked: int) -> int:
    """Inside a loop that runs more than once, or around or inside a parallel loop."""
    refused = facts.around(facts.parallel)
    unit = 0
    for i, extent in enumerate(facts.extents):
        unit |= (extent == 1) << i
    for i, up in enumerate(facts.up):
        if up & ~(unit | 1 << i) or facts.below[i] & facts.parallel:
            refused |= 1 << i
    return refused


def nothing_to_decompose(facts: LoopFacts, t: Any, asked: int) -> int:
    """No initialisation below."""
    refused = 0
    for i, block in enumerate(facts.first_init):
        if block < 0:
            refused |= 1 << i
    return refused


def rfactor_bytes(facts: LoopFacts, t: Any, asked: int) -> int:
    """Partial results that need too much memory."""
    refused = 0
    for place, chain in zip(facts.placed, facts.chain, strict=True):
        candidates = chain & facts.single & asked
        if candidates:
            written = 0
            for access in place.facts.writes:
                written += access.buffer.nbytes
            for i in bits(candidates):
                if written * facts.extents[i] > MAX_BUFFER_BYTES:
                    refused |= 1 << i
    return refused


def second_pragma(facts: LoopFacts, t: Any, asked: int) -> int:
    """A loop inside another one, or around a pragma."""
    refused = facts.nested | facts.around(facts.annotated)
    for i in bits(facts.annotated):
        refused |= facts.up[i]
    return refused
