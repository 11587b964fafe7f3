"""The rule of dense regions: what producers cover in one iteration of a loop; see `rules.py`."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.loop_facts import Terms
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_loops import disjoint

__all__ = ["covers_box", "scattered_region"]

Box = tuple[tuple[tuple[tuple[int, float], ...], int], ...]
Parts = list[tuple[int, tuple[Terms, ...], int, tuple[tuple[int, int], ...]]]
"""Producers with the loops that move their spatial iterators, the number of the first loop of their
part of the nest, and what a block reads of them."""


def _box(iterators: tuple[Terms, ...], outer: int) -> Box | None:
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
    parts: Parts = []
    for p in producers:
        reads = facts.exchange.read_by(facts.placed, facts.views, t.block, p)
        if any(number < 0 for _, number in reads):
            return EVERYTHING
        parts.append(_moved(facts, p, reads))
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
    return _same_boxes(facts, [_moved(facts, producer, ())], outer)


def _moved(
    facts: Facts, producer: int, reads: tuple[tuple[int, int], ...]
) -> tuple[int, tuple[Terms, ...], int, tuple[tuple[int, int], ...]]:
    part, at, loop = facts.place(producer)
    return producer, part.terms(at), loop, reads


def _same_boxes(facts: Facts, parts: Parts, outer: int) -> bool:
    """Whether each iterator of a block gets one and the same range from all producers."""
    ranges: dict[int, object] = {}
    parallel = facts.parallel & outer
    for producer, iterators, loop, reads in parts:
        box = _box(iterators, outer >> loop)
        if box is None:
            return False
        if parallel and not all(disjoint(facts, producer, i) for i in bits(parallel)):
            return False
        for handle, number in reads:
            if ranges.setdefault(handle, box[number]) != box[number]:
                return False
    return True
