"""Shortcuts: what the compiler will surely accept or refuse, without a trial.

Each function answers, for one row of transforms (see `rules.py`), the sets of nodes where the
compiler surely accepts and where it surely refuses; all other nodes are undecided and go to trial.
The conditions restate the checks of TVM 0.27 and are held to the compiler by property tests, for
nodes that no rule refuses; about others their answer means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tvm.tirx import BufferStore

from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits
from tirgym.harness.tensorir.nest import Access, Block, BlockFacts
from tirgym.harness.tensorir.rule_limits import EVERYTHING

__all__ = ["MOVERS", "SHORTCUTS", "Verdict", "always", "shared_sums", "unfactored_sums"]

Verdict = tuple[int, int]
"""Nodes surely accepted, nodes surely refused."""


def always(facts: Facts, t: Any, asked: int) -> Verdict:
    """The compiler accepts whatever no rule refuses."""
    return asked, 0


def _reorder(facts: LoopFacts, t: Any, asked: int) -> Verdict:
    refused = undecided = 0
    for i, view in enumerate(facts.views):
        chain = facts.chain[i]
        if not view.known_iters:
            refused |= chain
        elif not facts.affine >> i & 1:
            # the compiler looks at the binding below the outer loop only, and at none of a scalar
            if facts.placed[i].bindings:
                undecided |= chain & facts.nested
                refused |= chain & ~facts.nested
            else:
                undecided |= chain
    return asked & ~refused & ~undecided, asked & refused


def _independent(facts: LoopFacts, t: Any, asked: int) -> Verdict:
    """Vectorize and parallel: every block below maps, or reduces over other loops."""
    refused = 0
    for i, view in enumerate(facts.views):
        maps = view.spatial_only and not view.overlaps
        if maps:
            continue
        if facts.local_reduction >> i & 1:
            refused |= facts.reduced[i]
        else:
            refused |= facts.chain[i]
    return asked & ~refused, asked & refused


def _decompose(facts: LoopFacts, t: Any, asked: int) -> Verdict:
    accepted = undecided = 0
    for i in bits(asked):
        block = facts.first_init[i]
        if block < 0 or not facts.reduction >> block & 1:
            continue
        outside = facts.up[i] & ~(1 << i)
        if not outside & facts.reduced[block]:
            if facts.placed[block].has_predicate:
                undecided |= 1 << i
            else:
                accepted |= 1 << i
    return accepted, asked & ~accepted & ~undecided


def shared_sums(facts: Facts) -> int:
    """Loops whose first block with an initialisation is not the only writer of its buffer."""
    found = 0
    for i, block in enumerate(facts.first_init) if facts.shared else ():
        if block >= 0 and facts.shared >> block & 1:
            found |= 1 << i
    return found


def _rfactor(facts: LoopFacts, t: Any, asked: int) -> Verdict:
    if not facts.pipeline:
        return 0, asked
    accepted = undecided = 0
    candidates = 0
    for block in bits(facts.reduction):
        candidates |= facts.chain[block]
    for i in bits(asked & candidates & facts.single):
        block, variable = facts.firsts[i], facts.variables[i]
        if not facts.reduction >> block & 1:
            continue
        if not _factorable(facts, block, variable):
            continue
        view = facts.views[block]
        if variable in view.reduce_vars and view.accumulates:
            accepted |= 1 << i
        else:
            undecided |= 1 << i
    return accepted, asked & ~accepted & ~undecided


def unfactored_sums(facts: Facts) -> int:
    """Loops that are not factored because of what stands elsewhere in the program: a block without
    loops, another writer, or a compiler that sees no pipeline."""
    if 0 in facts.chain or not facts.pipeline:
        return EVERYTHING
    found = 0
    for block in bits(facts.shared):
        found |= facts.chain[block]
    return found & facts.single


def _factorable(facts: LoopFacts, index: int, var: int) -> bool:
    view, chain = facts.views[index], bits(facts.chain[index])
    if var in view.spatial_vars or facts.firsts[chain[0]] != index:
        return False
    reducing = False
    for j in chain:
        variable = facts.variables[j]
        spatial, reduce = variable in view.spatial_vars, variable in view.reduce_vars
        if spatial and reduce:
            return False
        if reduce and not reducing:
            reducing = True
            if not facts.single >> j & 1:
                return False
        elif not reduce and not spatial and reducing and facts.extents[j] != 1:
            return False
    return True


def _cache_write(facts: Facts, t: Any, asked: int) -> Verdict:
    accepted = 0
    for i in bits(asked):
        writes = facts.blocks[i].facts.writes
        if writes and len(facts.writers[writes[0].buffer.handle]) == 1:
            accepted |= 1 << i
    return accepted, asked & ~accepted


def _cache_read(facts: Facts, t: Any, asked: int) -> Verdict:
    accepted = 0
    for i in bits(asked):
        reads = facts.blocks[i].facts.reads
        if not -len(reads) <= t.read < len(reads):
            continue
        if reads[t.read].buffer.handle not in facts.unstaged:
            accepted |= 1 << i
    return accepted, asked & ~accepted


def _stands_alone(facts: Facts) -> bool:
    return not facts.pipeline or len(facts.blocks) < 2


def _identity_store(facts: BlockFacts) -> bool | None:
    """Whether a block stores each element once by plain iterators; None if that is not clear."""
    if type(facts.node.body) is not BufferStore:
        return False
    seen: set[int] = set()
    for start, extent in facts.writes[0].region:
        terms = start.coefficients
        if extent != 1 or len(terms) > 1 or not start.exact:
            return None
        if terms:
            ((handle, coefficient),) = terms.items()
            if coefficient != 1.0 or start.constant or handle in seen:
                return None
            seen.add(handle)
    return True if len(seen) == sum([e != 1 for e in facts.iter_extents]) else None


def _inline(facts: Facts, t: Any, asked: int) -> Verdict:
    if _stands_alone(facts):
        return 0, asked
    accepted = undecided = 0
    for i in bits(asked & facts.complete & ~facts.outputs):
        block = facts.blocks[i]
        if block.facts.has_init or len(block.facts.writes) != 1:
            continue
        form = _form(block.facts)
        plain = form.identity
        if plain is None and facts.views[i].packed_write:
            plain = form.stores
        if plain is None:
            undecided |= 1 << i
        elif plain:
            accepted |= 1 << i
    return accepted, asked & ~accepted & ~undecided


def _reverse_inline(facts: Facts, t: Any, asked: int) -> Verdict:
    if _stands_alone(facts):
        return 0, asked
    accepted = undecided = 0
    for i in bits(asked & facts.complete):
        block = facts.blocks[i]
        if block.facts.has_init or len(block.facts.writes) != 1:
            continue
        produced = [r for r in facts.views[i].reads if r in facts.writers]
        if len(produced) != 1 or len(facts.writers[produced[0]]) != 1:
            continue
        producer = facts.writers[produced[0]][0]
        if not facts.complete >> producer & 1 or facts.outputs >> producer & 1:
            continue
        other = facts.blocks[producer]
        made, form = _form(other.facts), _form(block.facts)
        if (
            made.identity
            and form.identity
            and made.fills
            and produced[0] not in form.partly
            and not block.has_predicate
            and not other.has_predicate
        ):
            accepted |= 1 << i
        elif _uses_all(block, produced[0]):
            undecided |= 1 << i
    return accepted, asked & ~accepted & ~undecided


def _uses_all(block: Block, buffer: int) -> bool:
    """Whether every iterator that moves is part of the indices at which `buffer` is read."""
    used = {
        handle
        for read in block.facts.reads
        if read.buffer.handle == buffer
        for start, _ in read.region
        for handle in start.coefficients
    }
    iterators = zip(block.facts.iter_handles, block.facts.iter_extents, strict=True)
    return all(extent == 1 or handle in used for handle, extent in iterators)


def _maps(facts: BlockFacts, access: Access) -> bool:
    """Whether the iterators of the block are, in some order, the indices of the whole buffer.

    Not for scalars: the compiler does not always take them.
    """
    if not access.region:
        return False
    extents = dict(zip(facts.iter_handles, facts.iter_extents, strict=True))
    for (start, extent), size in zip(access.region, access.buffer.shape, strict=True):
        terms = start.coefficients
        if extent != 1 or not start.exact or start.constant or len(terms) != 1:
            return False
        ((handle, coefficient),) = terms.items()
        if coefficient != 1.0 or extents.pop(handle, -1) != size:
            return False
    return not extents


def _place(block: Block, loop: int) -> int:
    """Number of the direct subtree of `loop` that holds `block`."""
    for around, i in block.positions:
        if around == loop:
            return i
    return 0


def _unsolvable(facts: BlockFacts, accesses: tuple[Access, ...]) -> tuple[int, ...]:
    """Buffers of which not each dimension fixes one iterator of the block."""
    iterators = facts.iter_handles
    found: dict[int, None] = {}
    for access in accesses:
        for start, extent in access.region:
            used = [v for v, c in start.coefficients.items() if c and v in iterators]
            if len(used) != 1 or extent != 1 or not start.exact:
                found[access.buffer.handle] = None
    return tuple(found)


class _Form(NamedTuple):
    """What shortcuts ask of a block node alone."""

    stores: bool
    """the body is one store"""
    identity: bool | None
    """see `_identity_store`; None without writes too"""
    fills: bool
    """the iterators are the indices of the whole first written buffer"""
    partly: tuple[int, ...]
    """buffers read otherwise than by all iterators as indices of the whole buffer"""
    unsolvable_reads: tuple[int, ...]
    unsolvable_writes: tuple[int, ...]


def _form(facts: BlockFacts) -> _Form:
    """Kept with the facts of the block."""
    if facts.notes.form is None:
        reads, writes = facts.reads, facts.writes
        facts.notes.form = _Form(
            stores=type(facts.node.body) is BufferStore,
            identity=_identity_store(facts) if writes else None,
            fills=bool(writes) and _maps(facts, writes[0]),
            partly=tuple([r.buffer.handle for r in reads if not _maps(facts, r)]),
            unsolvable_reads=_unsolvable(facts, reads),
            unsolvable_writes=_unsolvable(facts, writes),
        )
    return facts.notes.form  # type: ignore[no-any-return]


def _compute_at(facts: Facts, t: Any, asked: int) -> Verdict:
    block = t.block
    consumers, producers = facts.consumers[block], facts.producers[block]
    candidates = asked & ~facts.chain[block]
    for c in consumers:
        candidates &= facts.chain[c]
    if not candidates:
        return 0, asked
    mixed = 0
    for p in producers:
        mixed |= facts.chain[p]
    possible = candidates & ~mixed
    for i in bits(candidates & mixed):
        first = min([_place(facts.blocks[c], i) for c in consumers])
        last = max([_place(facts.blocks[p], i) for p in producers if facts.chain[p] >> i & 1])
        if last < first:
            possible |= 1 << i
    if facts.views[block].packed_write:
        return possible, asked & ~possible
    for buffer in _form(facts.blocks[block].facts).unsolvable_writes:
        if facts.readers.get(buffer):
            return 0, asked & ~possible
    return possible, asked & ~possible


def _pullable(facts: Facts) -> int:
    """Blocks that `ComputeAt` may move: not the last, and nothing overwrites their input."""
    found = facts.moving & ~facts.outputs
    for i, consumers in enumerate(facts.consumers):
        if not consumers:
            found &= ~(1 << i)
    return found


def _pushable(facts: Facts) -> int:
    """Blocks that `ReverseComputeAt` may move."""
    found = facts.moving
    for i, producers in enumerate(facts.producers):
        if not producers:
            found &= ~(1 << i)
    return found


def _reverse_compute_at(facts: Facts, t: Any, asked: int) -> Verdict:
    block = t.block
    consumers, producers = facts.consumers[block], facts.producers[block]
    candidates = asked & ~facts.chain[block]
    for p in producers:
        candidates &= facts.chain[p]
    if not candidates:
        return 0, asked
    mixed = 0
    for c in consumers:
        mixed |= facts.chain[c]
    possible = candidates & ~mixed
    for i in bits(candidates & mixed):
        last = max([_place(facts.blocks[p], i) for p in producers])
        first = min([_place(facts.blocks[c], i) for c in consumers if facts.chain[c] >> i & 1])
        if last < first:
            possible |= 1 << i
    for buffer in _form(facts.blocks[block].facts).unsolvable_reads:
        if buffer in facts.writers:
            return 0, asked & ~possible
    return possible, asked & ~possible


SHORTCUTS: Mapping[str, Callable[[Facts, Any, int], Verdict]] = {
    "Split": always,
    "Reorder": _reorder,
    "Fuse": always,
    "Vectorize": _independent,
    "Parallel": _independent,
    "Unroll": always,
    "DecomposeReduction": _decompose,
    "RFactor": _rfactor,
    "CacheRead": _cache_read,
    "CacheWrite": _cache_write,
    "ComputeInline": _inline,
    "ReverseComputeInline": _reverse_inline,
    "ComputeAt": _compute_at,
    "ReverseComputeAt": _reverse_compute_at,
    "UnrollPragma": always,
    "SetScope": always,
    "StorageAlign": always,
    "TransformLayout": always,
    "PadEinsum": always,
    "VectorMath": always,
    "PadAxis": always,
    "SoftwarePipeline": always,
}
"""Shortcut by class name; transforms without one are always tried."""

MOVERS: Mapping[str, Callable[[Facts], int]] = {
    "ComputeAt": _pullable,
    "ReverseComputeAt": _pushable,
}
"""For transforms that name a block besides a loop: the blocks that rules and compiler may allow."""
