"""`Exchange`: which blocks of a program write and read which buffers, and what follows from that.

It depends on the contents of the blocks and their order alone, so steps that change loops leave it
as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tirgym.harness.tensorir.block_view import BlockView
from tirgym.harness.tensorir.nest import SPATIAL, BlockFacts, LoopNest, Placement

__all__ = ["Exchange", "exchange_of"]

Blocks = tuple[int, ...]
Needs = tuple[tuple[int, int, tuple[tuple[int, float], ...]], ...]
"""Iterators of a producer by which it writes, each with the extent of the index by which it is read,
and the iterators of the consumer in that index with their coefficients (absolute)."""


class Exchange:
    """Sets of blocks are bit sets; programs made from each other share it as long as it holds."""

    __slots__ = (
        "_needs",
        "_read_by",
        "complete",
        "consumers",
        "content",
        "makers",
        "notes",
        "outputs",
        "overwritten",
        "producers",
        "readers",
        "rows",
        "scheme",
        "shared",
        "stored",
        "writers",
    )

    def __init__(
        self,
        placed: Sequence[Placement],
        views: Sequence[BlockView],
        intermediates: frozenset[int],
        content: tuple[Any, ...],
    ) -> None:
        self.content = content
        """identities of the notes of all blocks, which `notes` keeps"""
        self.notes = [place.facts.notes for place in placed]
        self.writers: dict[int, Blocks] = {}
        """blocks that write each buffer, ascending"""
        self.readers: dict[int, Blocks] = {}
        for index, view in enumerate(views):
            for buffer in view.writes:
                self.writers[buffer] = (*self.writers.get(buffer, ()), index)
            for buffer in view.reads:
                self.readers[buffer] = (*self.readers.get(buffer, ()), index)
        self.shared = 0
        """blocks that are not the only writer of a buffer"""
        for owners in self.writers.values():
            if len(owners) > 1:
                for i in owners:
                    self.shared |= 1 << i
        self.producers: tuple[Blocks, ...] = tuple(
            [_others(view.reads, self.writers, i) for i, view in enumerate(views)]
        )
        """other blocks that write what each block reads, ascending"""
        self.consumers: tuple[Blocks, ...] = tuple(
            [_others(view.writes, self.readers, i) for i, view in enumerate(views)]
        )
        self._read_sets(views, intermediates)
        self.stored = tuple([self._stored(place, views) for place in placed])
        """for each block: its first written buffer, with its shape (handle -1: none), whether an
        accessor of it is an intrinsic, and whether one has a falling index into it"""
        self._needs: dict[tuple[int, int], Needs] = {}
        self._read_by: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self.scheme: Any = None
        self.rows: Any = None
        """filled by `row_plans`, for one vocabulary"""

    def needs(self, placed: Sequence[Placement], block: int, consumer: int) -> Needs:
        """What `consumer` reads of `block`; `placed` are the blocks."""
        found = self._needs.get((block, consumer))
        if found is None:
            found = _needs(placed[block].facts, placed[consumer].facts)
            self._needs[block, consumer] = found
        return found

    def read_by(
        self, placed: Sequence[Placement], views: Sequence[BlockView], block: int, producer: int
    ) -> tuple[tuple[int, int], ...]:
        """Iterators of `block` with the spatial iterator of `producer` that each reads, -1 if none."""
        found = self._read_by.get((block, producer))
        if found is None:
            plain = views[producer].plain_write or ()
            found = _read_by(placed[block].facts, placed[producer].facts, plain)
            self._read_by[block, producer] = found
        return found

    def _read_sets(self, views: Sequence[BlockView], intermediates: frozenset[int]) -> None:
        outputs = makers = complete = overwritten = 0
        here = 1
        for index, view in enumerate(views):
            writes = view.writes
            if not intermediates.issuperset(writes):
                outputs |= here
            if writes and writes[0] in intermediates:
                makers |= here
            if view.spatial_only and not view.overlaps and not self.shared & here:
                complete |= here
            for buffer in view.reads:
                owners = self.writers.get(buffer)
                if owners and owners[-1] > index:
                    overwritten |= here
            here <<= 1
        self.outputs, self.makers = outputs, makers
        self.complete = complete
        """blocks that only map: spatial, sole writer, not reading what they write"""
        self.overwritten = overwritten
        """blocks that read what a later block writes"""

    def _stored(
        self, place: Placement, views: Sequence[BlockView]
    ) -> tuple[int, tuple[int, ...], bool, bool]:
        writes = place.facts.writes
        if not writes:
            return -1, (), False, False
        buffer = writes[0].buffer
        handle = buffer.handle
        opaque = falling = False
        for i in (*self.writers.get(handle, ()), *self.readers.get(handle, ())):
            opaque = opaque or views[i].intrinsic
            falling = falling or handle in views[i].mirrored
        return handle, buffer.shape, opaque, falling


def _needs(producer: BlockFacts, consumer: BlockFacts) -> Needs:
    found = []
    for write in producer.writes:
        for read in consumer.reads:
            if read.buffer.handle != write.buffer.handle:
                continue
            for (start, extent), (target, _) in zip(read.region, write.region, strict=True):
                if len(target.coefficients) == 1:
                    (handle,) = target.coefficients
                    terms = tuple([(v, abs(c)) for v, c in start.coefficients.items()])
                    found.append((handle, max(extent, 1), terms))
    return tuple(found)


def _read_by(
    consumer: BlockFacts, producer: BlockFacts, plain: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    written = producer.writes[0].buffer.handle
    spatial = [k for k, kind in enumerate(producer.iter_types) if kind == SPATIAL]
    numbers = {k: number for number, k in enumerate(spatial)}
    found = []
    for read in consumer.reads:
        if read.buffer.handle != written:
            continue
        for (start, _), position in zip(read.region, plain, strict=True):
            if position >= 0 and start.coefficients:
                (handle,) = start.coefficients
                found.append((handle, numbers.get(position, -1)))
    return tuple(found)


def _others(buffers: tuple[int, ...], users: dict[int, Blocks], index: int) -> Blocks:
    """Blocks other than `index` among the users of `buffers`, ascending."""
    found: Blocks = ()
    for buffer in buffers:
        for user in users.get(buffer, ()):
            if user != index and user not in found:
                found = (*found, user)
    return found if len(found) < 2 else tuple(sorted(found))


def exchange_of(
    nest: LoopNest, placed: Sequence[Placement], views: Sequence[BlockView]
) -> Exchange:
    """The exchange of the blocks `placed` of `nest`, that of an earlier nest if it is the same."""
    content = (nest.intermediates, *[id(place.facts.notes) for place in placed])
    known = nest.exchange
    if known is None or known.content != content:
        known = nest.exchange = Exchange(placed, views, nest.intermediates, content)
    return known  # type: ignore[no-any-return]
