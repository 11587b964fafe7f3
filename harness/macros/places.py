"""Where macros put copies: loops that a block has to itself, counted from its reduction."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import own_loops
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import Access, Block
from tirgym.harness.tensorir.rule_moves import MAX_WORK

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["copy_fits", "is_plain_stage", "level_loop", "reads_all"]


def level_loop(draft: Draft, block: int, level: int) -> int | None:
    """The own loop of `block` that stands `level` outside its outermost reduction; None if none does.

    Level 0 is the outermost loop that the block reduces over, or its innermost loop if it reduces
    over none of its own.
    """
    own, zero = draft.known(("levels", block), lambda: _levels(draft.program.facts, block))
    return own[zero - level] if zero >= level else None


def _levels(facts: Facts, block: int) -> tuple[tuple[int, ...], int]:
    """Own loops, and the position of level 0 among them; -1 without loops."""
    own = own_loops(facts.nest, facts.blocks[block])
    reduced = [at for at, i in enumerate(own) if facts.reduced[block] >> i & 1]
    return own, reduced[0] if reduced else len(own) - 1


def is_plain_stage(facts: Facts) -> bool:
    """Whether the compiler takes blocks for stages of a pipeline, without thread axes."""
    return facts.pipeline and not facts.bound


def reads_all(block: Block, read: Access) -> bool:
    """Whether `block` surely reads every element of the buffer."""
    extents = dict(zip(block.facts.iter_handles, block.facts.iter_extents, strict=True))
    for (start, extent), size in zip(read.region, read.buffer.shape, strict=True):
        terms = start.coefficients
        if not start.exact or start.constant or any(c <= 0 for c in terms.values()):
            return False
        if extent + sum(c * (extents.get(v, 1) - 1) for v, c in terms.items()) != size:
            return False
    return True


def copy_fits(facts: Facts, block: Block, read: Access, loop: int) -> bool | None:
    """Whether a copy of what `block` reads in each iteration of `loop` stays within the work that
    `ComputeAt` allows; None where that is not certain."""
    repeated = _needed(facts, block, read, loop) * prod(
        facts.extents[i] for i in facts.loops[loop].chain
    )
    room = MAX_WORK * facts.domain - facts.work  # without the copy, which makes more room
    if repeated <= room:
        return True
    most = room + MAX_WORK * prod(read.buffer.shape)
    return False if repeated > most and reads_all(block, read) else None


def _needed(facts: Facts, block: Block, read: Access, loop: int) -> int:
    """Elements that `block` reads in one iteration of `loop`, at most."""
    outer, spans = facts.up[loop], {}
    for handle, binding, domain in zip(
        block.facts.iter_handles, block.bindings, block.facts.iter_extents, strict=True
    ):
        reach = sum(
            abs(c) * (facts.extents[facts.bit[var].bit_length() - 1] - 1)
            for var, c in binding.coefficients.items()
            if var in facts.bit and not facts.bit[var] & outer
        )
        spans[handle] = min(int(reach) + 1, domain) - 1
    needed = 1
    for (start, extent), size in zip(read.region, read.buffer.shape, strict=True):
        moved = sum(abs(c) * spans.get(v, 0) for v, c in start.coefficients.items())
        needed *= min(size, max(extent, 1) + int(moved))
    return needed
