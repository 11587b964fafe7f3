"""Rules that keep the meaning, and the cost, of moving and inlining; see `rules.py`."""

from __future__ import annotations

import math
from typing import Any

from tirgym.harness.tensorir.block_view import expression_size
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_loops import injective

__all__ = [
    "MAX_EXPRESSION",
    "MAX_WORK",
    "cropped_producer",
    "guarded_stage",
    "idle_blocks",
    "indirect_reads",
    "left_behind",
    "mirrored",
    "overwritten",
    "partial_sums",
    "private_stage",
    "repeated_terms",
    "shared_producer",
    "shifted_reads",
    "swollen_inline",
    "too_much_work",
    "vectorized_move",
    "without_producer",
]

MAX_WORK = 32
"""Largest ratio of block instances that run to those that are distinct."""
MAX_EXPRESSION = 600
"""Most nodes in the body of a block after inlining."""


def vectorized_move(facts: Facts, t: Any, asked: int) -> int:
    """Moves of a vectorized block, or below a vectorized loop (D)."""
    if not facts.vectorized:
        return 0
    if facts.chain[t.block] & facts.vectorized:
        return EVERYTHING
    return facts.around(facts.vectorized)


def overwritten(facts: Facts, t: Any, asked: int) -> int:
    """Moves, inlining and staging of a block that reads what a later block writes."""
    return _of_moved(t, facts.overwritten)


def _of_moved(t: Any, blocks: int) -> int:
    """Turn a set of blocks into the answer for a move of one block, or for a row over blocks."""
    if "loop" in t.__dataclass_fields__:
        return EVERYTHING if blocks >> t.block & 1 else 0
    return blocks


def partial_sums(facts: Facts, t: Any, asked: int) -> int:
    """Moves into a reduction loop of a producer (B), or next to a producer that needs its order."""
    refused = 0
    for producer in facts.producers[t.block]:
        if facts.views[producer].ordered:
            return EVERYTHING
        if facts.reduced[producer]:
            refused |= facts.around(facts.reduced[producer])
    return refused


def indirect_reads(facts: Facts, t: Any, asked: int) -> int:
    """ComputeAt of a block that a consumer reads at an index that depends on data (I)."""
    for consumer in facts.consumers[t.block]:
        for read in facts.blocks[consumer].facts.reads:
            if read.buffer.handle in facts.views[t.block].writes and any(
                start.indirect for start, _ in read.region
            ):
                return EVERYTHING
    return 0


def left_behind(facts: Facts, t: Any, asked: int) -> int:
    """Moves and inlining after which a block is recomputed in a loop without any of its readers (J).

    The compiler may let such a block overwrite its own input in place, and the next round reads what
    the first one wrote.
    """
    if False not in facts.once:
        return 0
    refused = 0
    if t.node_field() == "loop":
        for i in bits(asked & facts.all_loops & ~facts.chain[t.block]):
            chain = facts.above(i)
            if _leaves(facts, t.block, chain) or (
                t.name == "ReverseComputeAt" and _idles(facts, t.block, chain)
            ):
                refused |= 1 << i
        return refused
    for i in bits(asked & facts.all_blocks):
        chain = 0
        for consumer in facts.consumers[i]:
            chain |= facts.chain[consumer]
        if _leaves(facts, i, chain):
            refused |= 1 << i
    return refused


def _leaves(facts: Facts, block: int, chain: int) -> bool:
    """Whether a producer of `block` is left idle when the block goes below the loops `chain`."""
    for producer in facts.producers[block]:
        if facts.once[producer] or not facts.views[producer].reads:
            continue
        kept = chain
        for reader in facts.consumers[producer]:
            if reader != block:
                kept |= facts.chain[reader]
        if not injective(facts, facts.placed[producer], facts.chain[producer] & ~kept):
            return True
    return False


def _idles(facts: Facts, block: int, chain: int) -> bool:
    """Whether `block`, below the loops `chain` of its producers, runs in a loop that nothing needs."""
    for consumer in facts.consumers[block]:
        chain &= ~facts.chain[consumer]
    bound = 0
    for producer in facts.producers[block]:
        for var in facts.views[producer].spatial_vars:
            bound |= facts.bit.get(var, 0)
    return any(facts.extents[i] != 1 for i in bits(chain & ~bound))


def idle_blocks(facts: Facts) -> int:
    """Blocks that read, and run in a loop that neither they nor any of their readers know.

    No legal state has one. Initialisations may be repeated: they read nothing.
    """
    found = 0
    for i, view in enumerate(facts.views):
        private = facts.chain[i]
        for consumer in facts.consumers[i]:
            private &= ~facts.chain[consumer]
        for var in (*view.spatial_vars, *view.reduce_vars):
            private &= ~facts.bit.get(var, 0)
        if view.reads and any(facts.extents[j] != 1 for j in bits(private)):
            found |= 1 << i
    return found


def without_producer(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeAt of a block that reads only inputs (A)."""
    return 0 if facts.producers[t.block] else EVERYTHING


def shifted_reads(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeAt of a block that does not read produced buffers by its plain iterators (C)."""
    block = facts.blocks[t.block]
    domains = dict(zip(block.facts.iter_handles, block.facts.iter_extents, strict=True))
    seen: set[int] = set()
    for read in block.facts.reads:
        if (
            read.buffer.handle not in facts.writers
            or read.buffer.handle in facts.views[t.block].writes
        ):
            continue
        used: set[int] = set()
        for (start, extent), size in zip(read.region, read.buffer.shape, strict=True):
            terms = start.coefficients
            if extent != 1 or not start.exact or start.constant or len(terms) > 1:
                return EVERYTHING
            if not terms:
                if size != 1:
                    return EVERYTHING
                continue
            ((handle, coefficient),) = terms.items()
            if coefficient != 1.0 or handle in used or domains.get(handle) != size:
                return EVERYTHING
            used.add(handle)
        if read.buffer.handle in seen:
            return EVERYTHING
        seen.add(read.buffer.handle)
    return 0


def repeated_terms(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeAt of a reduction whose producers are recomputed, or that is read too early."""
    if facts.views[t.block].spatial_only:
        return 0
    if not all(facts.once[p] for p in facts.producers[t.block]):
        return EVERYTHING
    refused = facts.around(facts.parallel)
    for consumer in facts.consumers[t.block]:
        if facts.blocks[consumer].chain:
            refused |= facts.below[facts.blocks[consumer].chain[0]]
    return refused


def shared_producer(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeInline of a block that is not the only reader of what it reads (G)."""
    refused = 0
    for i, view in enumerate(facts.views):
        for buffer in view.reads:
            if buffer in facts.writers and len(facts.readers[buffer]) > 1:
                refused |= 1 << i
    return refused


def cropped_producer(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeInline of a block that takes only a part of what its producer writes (K)."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        block = facts.blocks[i].facts
        domain = math.prod(block.iter_extents)
        for read in block.reads:
            if read.buffer.handle in facts.writers and math.prod(read.buffer.shape) != domain:
                refused |= 1 << i
    return refused


def mirrored(facts: Facts, t: Any, asked: int) -> int:
    """Inlining that puts a mirrored index into another one (M).

    ReverseComputeInline always does, to what it writes; ComputeInline where the block divides it.
    """
    refused = 0
    if not any(view.mirrored for view in facts.views):
        return 0
    for i in bits(asked & facts.all_blocks):
        view = facts.views[i]
        if t.name == "ReverseComputeInline":
            hit = any(r in facts.writers for r in view.mirrored)
        else:
            hit = not view.mirrored.isdisjoint(view.writes) or (
                any(not facts.views[c].mirrored.isdisjoint(view.writes) for c in facts.consumers[i])
                and any(not s.exact for r in facts.blocks[i].facts.reads for s, _ in r.region)
            )
        if hit:
            refused |= 1 << i
    return refused


def guarded_stage(facts: Facts, t: Any, asked: int) -> int:
    """CacheRead and CacheWrite where the copy would need the guard of a block (L)."""
    guarded = 0
    for i, block in enumerate(facts.blocks):
        if block.has_predicate:
            guarded |= 1 << i
    if not guarded or t.name == "CacheWrite":
        return guarded
    refused = guarded
    for i in bits(asked & facts.all_blocks):
        reads = facts.blocks[i].facts.reads
        if t.read < len(reads):
            buffer = reads[t.read].buffer.handle
            users = facts.writers.get(buffer, ()) + facts.readers[buffer]
            if any(guarded >> user & 1 for user in users):
                refused |= 1 << i
    return refused


def private_stage(facts: Facts, t: Any, asked: int) -> int:
    """CacheRead and CacheWrite of a block that every thread computes for itself."""
    refused = 0
    for i, chain in enumerate(facts.chain):
        if chain & facts.parallel and not facts.once[i]:
            refused |= 1 << i
    return refused


def _needed(facts: Facts, block: int, outer: int) -> int:
    """Instances of `block` that its consumers need in one iteration of the loops `outer`."""
    sizes: dict[int, int] = {}
    for consumer in facts.consumers[block]:
        part, at, loop = facts.place(consumer)
        inner = outer >> loop
        moved: dict[int, int] = {}
        for handle, most, steps in part.reach(at):
            span = 0.0
            for here, distance in steps:
                if not here & inner:
                    span += distance
            moved[handle] = int(span) if span < most else most
        for handle, extent, terms in facts.exchange.needs(facts.placed, block, consumer):
            reached = 0.0
            for iterator, coefficient in terms:
                reached += coefficient * moved.get(iterator, 0)
            size = extent + int(reached)
            if size > sizes.get(handle, 0):
                sizes[handle] = size
    total = 1
    here_facts = facts.placed[block].facts
    for handle, extent in zip(here_facts.iter_handles, here_facts.iter_extents, strict=True):
        size = sizes.get(handle, extent)
        total *= min(extent, size)
    return total


def too_much_work(facts: Facts, t: Any, asked: int) -> int:
    """ComputeAt and ReverseComputeAt after which blocks run too many instances."""
    block = t.block
    budget = MAX_WORK * facts.domain - (facts.work - facts.trips[block])
    refused = 0
    candidates = asked & facts.all_loops & ~facts.chain[block]
    for other in facts.consumers[block] if t.name == "ComputeAt" else facts.producers[block]:
        candidates &= facts.chain[other]
    full = facts.views[block].domain
    for i in bits(candidates):
        repeats = facts.runs[i]
        if repeats * full <= budget:
            continue
        if t.name == "ReverseComputeAt":
            # dense boxes: each instance runs once in each iteration of a loop no producer binds
            bound = {v for p in facts.producers[block] for v in facts.views[p].spatial_vars}
            unbound = 1
            for j in bits(facts.up[i]):
                if facts.variables[j] not in bound:
                    unbound *= facts.extents[j]
            if unbound * full > budget:
                refused |= 1 << i
        elif repeats > budget and -1 not in facts.extents:
            refused |= 1 << i  # each iteration needs something
        elif repeats * _needed(facts, block, facts.up[i]) > budget:
            refused |= 1 << i
    return refused


def swollen_inline(facts: Facts, t: Any, asked: int) -> int:
    """ComputeInline that would make an expression too large."""
    refused = 0
    for i in bits(facts.complete & ~facts.outputs & asked):
        size = None
        for consumer in facts.consumers[i]:
            other = facts.blocks[consumer].facts.node
            if size is None:
                size = expression_size(facts.blocks[i].facts.node)
            loads = 0
            for read in facts.blocks[consumer].facts.reads:
                loads += read.buffer.handle in facts.views[i].writes
            if expression_size(other) + loads * size > MAX_EXPRESSION:
                refused |= 1 << i
    return refused
