"""Which tile of a contraction fits the vector registers, and how fast it can run there.

With V vectors along the lanes and R rows, each step of the sum issues V·R multiply-adds into as
many accumulators, and loads V vectors and R scalars. Two of either are issued a cycle, and an
accumulator is free again after the latency of a multiply-add (Low, Igual, Smith and Quintana-Ortí,
"Analytical modeling is enough for high-performance BLIS", ACM TOMS 2016, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tirgym.harness.decisions.nests import divisors

__all__ = ["best_lanes", "more_rows", "vectors_of"]

FMA_PER_CYCLE = 2.0
LOADS_PER_CYCLE = 1.9
LATENCY = 5.0
"""Cycles of a multiply-add, and a little for imperfect scheduling."""
FETCH = 2.2
"""Cycles to bring a vector from the second-level cache, which all rows then use."""
MAX_ACCUMULATORS = 26
"""Of 32 registers; the others hold what is loaded."""
GOAL = 20
"""Accumulators, among tiles that are as fast."""
MAX_LANES = 64
"""Elements along the lanes of one tile at most."""


def vectors_of(factor: int, lanes: int) -> int:
    """Vectors that `factor` elements in a row take: whole powers of two up to `lanes` each."""
    return factor // min(factor & -factor, lanes)


def _fma_cycles(vectors: int, rows: int) -> float:
    """Cycles for each multiply-add of a tile; infinite if its accumulators do not fit."""
    accumulators = vectors * rows
    if accumulators > MAX_ACCUMULATORS:
        return math.inf
    loads = (vectors + rows) / LOADS_PER_CYCLE
    bounds = 1.0 / FMA_PER_CYCLE, loads / accumulators, LATENCY / accumulators, FETCH / rows
    return max(bounds)


@lru_cache(maxsize=4096)
def _best_rows(vectors: int, extents: tuple[int, ...]) -> tuple[float, int]:
    """Cycles for each multiply-add and rows of the best tile with so many `vectors`.

    `extents` are those of the other spatial loops, the one that is tiled first at first.
    """
    rows = {1}
    for extent in extents[:2]:
        rows |= {r * d for r in rows for d in divisors(extent, MAX_ACCUMULATORS)}
    ranked = [(_fma_cycles(vectors, r), abs(vectors * r - GOAL), r) for r in rows]
    cycles, _, best = min(ranked)
    return cycles, best


def more_rows(vectors: int, rows: int, factors: Sequence[int]) -> int:
    """Which of `factors` times `rows` makes the best tile."""
    return min(
        factors,
        key=lambda f: (_fma_cycles(vectors, rows * f), abs(vectors * rows * f - GOAL), f),
    )


@lru_cache(maxsize=4096)
def best_lanes(extent: int, lanes: int, extents: tuple[int, ...]) -> tuple[float, int]:
    """Cycles for each element of one row, and the factor of the lanes' loop that takes the fewest."""
    ranked = []
    for factor in divisors(extent, MAX_LANES):
        vectors = vectors_of(factor, lanes)
        cycles, rows = _best_rows(vectors, extents)
        ranked.append((cycles * vectors / factor, abs(vectors * rows - GOAL), -factor))
    cycles, _, best = min(ranked)
    return cycles, -best
