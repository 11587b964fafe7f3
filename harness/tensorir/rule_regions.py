"""The rule of dense regions: what producers cover in one iteration of a loop; see `rules.py`."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.nest import SPATIAL
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_loops import disjoint

__all__ = ["covers_box", "scattered_region"]

Box = tuple[tuple[tuple[tuple[int, float], ...], int], ...]


Terms = list[tuple[float, int, int, int, bool]]
"""of one iterator, ascending: coefficient, extent, loop as a bit, variable, within a division"""


def _terms(facts: Facts, producer: int) -> list[Terms]:
    """For each spatial iterator of a producer the loops that move it."""
    block, bit, extents = facts.blocks[producer], facts.bit, facts.extents
    found = []
    for kind, binding in zip(block.facts.iter_types, block.bindings, strict=True):
        if kind == SPATIAL:
            terms = []
            for var, coefficient in binding.coefficients.items():
                here = bit.get(var, 0)
                extent = extents[here.bit_length() - 1] if here else 1
                if extent != 1:
                    terms.append((coefficient, extent, here, var, var in binding.fuzzy))
            terms.sort()
            found.append(terms)
    return found


def _box(iterators: list[Terms], outer: int) -> Box | None:
    """What a producer covers in one iteration of the loops `outer`, by iterator.

    For each spatial iterator: coefficients of the outer variables, and extent. None if that is no
    dense box, or boxes of different iterations overlap without being equal.
    """
    found = []
    for terms in iterators:
        fixed: list[tuple[int, float]] = []
        size, least = 1, 0.0
        moves = False
        for coefficient, extent, loop, var, fuzzy in terms:
            if loop & outer:
                if not fixed:
                    least = coefficient
                fixed.append((var, coefficient))
            elif fuzzy or coefficient != size:
                return None
            else:
                size *= extent
                moves = True
        if moves and fixed and least < size:
            return None
        fixed.sort()
        found.append((tuple(fixed), size))
    return tuple(found)


def scattered_region(facts: Facts, t: Any, asked: int) -> int:
    """ReverseComputeAt where producers do not cover one dense box (F), or not the same one."""
    producers = facts.producers[t.block]
    candidates = asked & facts.all_loops & ~facts.chain[t.block]
    for p in producers:
        if facts.blocks[p].has_predicate or facts.views[p].plain_write is None:
            return EVERYTHING
        candidates &= facts.chain[p]
    if not candidates:
        return 0
    parts = []
    for p in producers:
        reads = _read_by(facts, t.block, p)
        if any(number < 0 for _, number in reads):
            return EVERYTHING
        parts.append((p, _terms(facts, p), reads))
    refused = 0
    for i in bits(candidates):
        if not _same_boxes(facts, parts, facts.up[i]):
            refused |= 1 << i
    return refused


def covers_box(facts: Facts, producer: int, loop: int) -> bool:
    """Whether a block that reads `producer` alone, by its plain iterators, may move below `loop`."""
    block, outer = facts.blocks[producer], facts.up[loop]
    if block.has_predicate or facts.views[producer].plain_write is None:
        return False
    return _same_boxes(facts, [(producer, _terms(facts, producer), [])], outer)


def _read_by(facts: Facts, block: int, producer: int) -> list[tuple[int, int]]:
    """Iterators of `block` with the spatial iterator of `producer` that each reads, -1 if none."""
    made = facts.blocks[producer].facts
    written = made.writes[0].buffer.handle
    spatial = [k for k, kind in enumerate(made.iter_types) if kind == SPATIAL]
    numbers = {k: number for number, k in enumerate(spatial)}
    found = []
    for read in facts.blocks[block].facts.reads:
        if read.buffer.handle != written:
            continue
        plain = facts.views[producer].plain_write or ()
        for (start, _), position in zip(read.region, plain, strict=True):
            if position >= 0 and start.coefficients:
                (handle,) = start.coefficients
                found.append((handle, numbers.get(position, -1)))
    return found


def _same_boxes(
    facts: Facts, parts: list[tuple[int, list[Terms], list[tuple[int, int]]]], outer: int
) -> bool:
    """Whether each iterator of a block gets one and the same range from all producers."""
    ranges: dict[int, object] = {}
    parallel = facts.parallel & outer
    for producer, iterators, reads in parts:
        box = _box(iterators, outer)
        if box is None:
            return False
        if parallel and not all(disjoint(facts, producer, i) for i in bits(parallel)):
            return False
        for handle, number in reads:
            if ranges.setdefault(handle, box[number]) != box[number]:
                return False
    return True
