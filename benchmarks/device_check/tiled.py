"""`tiled_product`: a matrix product for a GPU by hand: a tile for each block, sums in registers."""

from __future__ import annotations

from collections.abc import Iterator

from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import Transform
from tirgym.harness.transforms.bind import Bind
from tirgym.harness.transforms.cache_write import CacheWrite
from tirgym.harness.transforms.decompose_reduction import DecomposeReduction
from tirgym.harness.transforms.reorder import Reorder
from tirgym.harness.transforms.reverse_compute_at import ReverseComputeAt
from tirgym.harness.transforms.set_scope import SetScope
from tirgym.harness.transforms.split import Split
from tirgym.harness.transforms.unroll import Unroll

__all__ = ["TILES", "tiled_product"]

TILES = ((32, 2, 8), (64, 4, 8), (64, 8, 8))
"""Rows and columns of a block's tile, rows and columns of a thread's, terms of the sum at a time."""
_AXES = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
_THREAD, _SUM = 3, 4
"""loop of threadIdx.x, and the one inside it, over the terms of the sum"""


def tiled_product(program: TensorIRProgram, tile: int, own: int, terms: int) -> TensorIRProgram:
    """c[i, j] = sum of a[i, r] b[r, j] in tiles; raises IllegalTransformError where they do not fit.

    A block makes `tile` x `tile` elements with (tile / own)² threads, each `own` x `own` of them in
    registers and written out, `terms` terms of the sum at a time.
    """
    for step in _steps(tile, own, terms):
        program = program.apply(step)
    return program


def _steps(tile: int, own: int, terms: int) -> Iterator[Transform]:
    yield from (Split(0, tile), Split(1, own), Split(3, tile), Split(4, own), Split(6, terms))
    yield from _ordered("i0 i1 i2 j0 j1 j2 r0 r1", "i0 j0 i1 j1 r0 r1 i2 j2")
    yield from (Bind(loop, axis) for loop, axis in enumerate(_AXES))
    yield from (CacheWrite(0), ReverseComputeAt(1, _THREAD), SetScope(0, "local"))
    yield from (Unroll(loop) for loop in (_SUM + 2, _SUM + 3))
    yield DecomposeReduction(_SUM)


def _ordered(now: str, then: str) -> Iterator[Transform]:
    """Swaps of neighbours that bring loops into another order."""
    names = now.split()
    for place, name in enumerate(then.split()):
        for at in range(names.index(name), place, -1):
            yield Reorder(at - 1)
        names.remove(name)
        names.insert(place, name)
