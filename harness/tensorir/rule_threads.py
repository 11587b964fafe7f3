"""Rules about thread axes: which loops may be bound to blocks and threads of a GPU, which buffers may
lie in memory of a block or thread; see `rules.py`.

A statement of the function's root whose loops are bound becomes one kernel. The rules ask one
question, `thread_fault`, of the program as it would be: with one more loop bound, or one more buffer in
another scope. It is asked once more of the whole program before a build.

The classes of faults, none of which the compiler refuses:

A  A loop bound below a serial one: the host would launch the kernel in a loop.
B  Threads that add to the same element: a bound reduction loop, or one that repeats a reduction. (A
   block that only maps writes the same value wherever it writes an element again.)
C  A reduction that threads do not share out: each of them adds all terms to the same element of
   shared or global memory.
D  One thread reads what another thread of the same kernel wrote to global memory (barriers order accesses
   to shared memory alone) or to its own memory.
E  A buffer in memory of a block or thread that another kernel, block or thread reads.
F  An instruction of a warp (see `wmma`) where a warp is not 32 threads along threadIdx.x, or where they
   would not run it together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tvm
from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore

from tirgym.harness.tensorir.device_limits import DeviceLimits, device_limits
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_loops import disjoint
from tirgym.harness.tensorir.wmma import WARP, is_fragment

__all__ = [
    "Fault",
    "axes_of",
    "beyond_device",
    "foreign_scope",
    "no_thread_axes",
    "own_buffer",
    "scattered_scope",
    "strange_lanes",
    "thread_fault",
    "unsound_moves",
    "unsound_threads",
    "wrong_threads",
]

_BLOCK, _THREAD = "blockIdx", "threadIdx"
_LANES = f"{_THREAD}.x"
"""The axis that changes fastest from thread to thread: the threads of a warp lie along it."""
_AXIS = {"x": 0, "y": 1, "z": 2}
Axes = Mapping[int, str]
"""Bound loops with their thread axes."""


class Fault(NamedTuple):
    """What is wrong with thread axes."""

    kind: str
    """"nesting", "limits", "sharing" or "scope" """
    where: str
    message: str


def axes_of(facts: Facts) -> dict[int, str]:
    """The loops that are bound, with their axes."""
    return {i: str(facts.loops[i].node.thread_binding.thread_tag) for i in bits(facts.bound)}


def thread_fault(
    facts: Facts,
    limits: DeviceLimits,
    axes: Axes,
    scopes: Mapping[int, str] | None = None,
    collective: int = 0,
) -> Fault | None:
    """The first fault of a program with `axes`, with `scopes` for some buffers, and with some more blocks
    that are `collective`; None if sound."""
    collective |= facts.collective
    for part, first, block in facts.parts:
        own = {i: axis for i, axis in axes.items() if first <= i < first + len(part.extents)}
        if not own:
            continue
        blocks = range(block, block + len(part.views))
        warps = [b for b in blocks if collective >> b & 1]
        for found in (
            _nesting(facts, first, own),
            _limits(facts, limits, own, bool(warps)),
            _divergence(facts, warps, own),
            _sharing(facts, blocks, own, scopes, bool(warps)),
        ):
            if found is not None:
                return found
    return _stray_scope(facts, scopes)


def _scope(facts: Facts, buffer: int, scopes: Mapping[int, str] | None) -> str:
    if scopes and buffer in scopes:
        return scopes[buffer]
    known = facts.__dict__.get("scopes")
    if known is None:
        known = facts.__dict__["scopes"] = {
            access.buffer.handle: access.buffer.scope
            for block in facts.blocks
            for access in (*block.facts.writes, *block.facts.reads)
        }
    scope = str(known.get(buffer, "global"))
    if is_fragment(scope):
        return "local"  # of the threads of a warp
    return "local" if scope == "global" and own_buffer(facts, buffer) else scope


def own_buffer(facts: Facts, buffer: int) -> bool:
    """Whether an intermediate buffer is used in one kernel alone, which then keeps it to its threads:
    completion puts it into local memory."""
    if buffer not in facts.intermediates:
        return False
    users = {*facts.writers.get(buffer, ()), *facts.readers.get(buffer, ())}
    return len({_part(facts, i) for i in users}) == 1


def _stray_scope(facts: Facts, scopes: Mapping[int, str] | None) -> Fault | None:
    """E: memory of a block or thread that two kernels use."""
    for buffer in facts.intermediates:
        if _scope(facts, buffer, scopes) == "global":
            continue  # or local because one kernel alone uses it
        users = {*facts.writers.get(buffer, ()), *facts.readers.get(buffer, ())}
        if len({_part(facts, i) for i in users}) > 1:
            return Fault("scope", _name(facts, min(users)), "another kernel uses its buffer")
    return None


def _part(facts: Facts, block: int) -> int:
    """Number of the root's statement that holds a block."""
    return next(
        n
        for n, (part, _, first) in enumerate(facts.parts)
        if first <= block < first + len(part.views)
    )


def _name(facts: Facts, block: int) -> str:
    return f"block {block} ({facts.blocks[block].facts.name})"


def _nesting(facts: Facts, root: int, axes: Axes) -> Fault | None:
    """A: blocks outermost, the kernel's outermost loop bound, each axis once on a way."""
    for i, axis in axes.items():
        around = [j for j in bits(facts.up[i]) if j != i]
        where = f"loop {i}"
        if root not in axes:
            return Fault("nesting", where, "the outermost loop around it is not bound")
        taken = [j for j in around if axes.get(j) == axis]
        if taken and (axis.startswith(_BLOCK) or not _shared_out_again(facts, i, taken)):
            return Fault("nesting", where, f"{axis} is bound around it already")
        if axis.startswith(_BLOCK):
            if any(not axes.get(j, "").startswith(_BLOCK) for j in around):
                return Fault("nesting", where, "blocks lie outside of threads and serial loops")
            if sum(other == axis for other in axes.values()) > 1:
                return Fault("nesting", where, f"{axis} is bound elsewhere in the kernel")
    return None


def _shared_out_again(facts: Facts, loop: int, around: list[int]) -> bool:
    """Whether no block below `loop` depends on the loops `around` it that have its axis.

    Its iterations are then shared out between the threads of those loops, as copies into shared memory
    are.
    """
    variables = {facts.variables[j] for j in around}
    for chain, view in zip(facts.chain, facts.views, strict=True):
        if chain >> loop & 1 and variables & {*view.spatial_vars, *view.reduce_vars}:
            return False
    return True


def _extents(facts: Facts, axes: Axes) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for i, axis in axes.items():
        found.setdefault(axis, set()).add(facts.extents[i])
    return found


def _limits(facts: Facts, limits: DeviceLimits, axes: Axes, warps: bool) -> Fault | None:
    """More threads than the device has, different numbers of them in one kernel, or no `warps`."""
    threads = WARP if warps and _LANES not in axes.values() else 1
    for axis, extents in _extents(facts, axes).items():
        kind, _, letter = axis.partition(".")
        most = max(extents)
        if kind == _THREAD and len(extents) > 1:
            counts = " and ".join(map(str, sorted(extents)))
            return Fault("limits", axis, f"the kernel would have {counts} threads along it")
        bound = _bound(limits, kind)[_AXIS[letter]]
        if most > bound:
            return Fault("limits", axis, f"{most} is more than {bound}, the device's limit")
        if warps and axis == _LANES and most != WARP:
            return Fault("limits", axis, f"{most} threads are not the {WARP} of a warp")
        threads *= most if kind == _THREAD else 1
    if threads > limits.max_threads:
        message = f"{threads} threads in a block are more than {limits.max_threads}"
        return Fault("limits", "kernel", message)
    return None


def _divergence(facts: Facts, warps: list[int], axes: Axes) -> Fault | None:
    """F: an instruction of a warp whose threads would not run it together."""
    lanes = {facts.variables[i] for i, axis in axes.items() if axis == _LANES}
    for b in warps:
        view = facts.views[b]
        if lanes & {*view.spatial_vars, *view.reduce_vars}:
            return Fault(
                "sharing", _name(facts, b), "a warp would not run its instruction together"
            )
    return None


def _bound(limits: DeviceLimits, kind: str) -> tuple[int, int, int]:
    return limits.thread_extents if kind == _THREAD else limits.grid_extents


def _sharing(
    facts: Facts, blocks: range, axes: Axes, scopes: Mapping[int, str] | None, warps: bool
) -> Fault | None:
    """B, C, D and the other half of E, for one kernel."""
    split = {i: axis for i, axis in axes.items() if facts.extents[i] > 1}
    everywhere = {*split.values(), *([_LANES] if warps else [])}
    for b in blocks:
        view, chain = facts.views[b], facts.chain[b]
        mine = _innermost({i: axis for i, axis in split.items() if chain >> i & 1})
        adds = facts.blocks[b].facts.has_init or view.overlaps or view.ordered
        for loop, axis in mine.items():
            reduced = facts.variables[loop] in view.reduce_vars or view.ordered
            if not (adds or reduced):
                continue  # threads that write the same element write the same value
            if not view.ordered and (disjoint(facts, b, loop) or _guarded(facts, b, loop)):
                continue
            if reduced or not _own_memory(facts, view.writes, axis, scopes):
                message = f"threads of {axis} add to the same element"
                return Fault("sharing", _name(facts, b), message)
        missing = everywhere - set(mine.values())
        for axis in sorted(missing) if adds else ():
            if not _own_memory(facts, view.writes, axis, scopes):
                message = f"every thread of {axis} would add to the same element"
                return Fault("sharing", _name(facts, b), message)
    return _exchange(facts, blocks, split, scopes)


def _innermost(loops: dict[int, str]) -> dict[int, str]:
    """Of loops around each other with the same axis only the inner one shares out work."""
    return {max(i for i in loops if loops[i] == axis): axis for axis in loops.values()}


def _guarded(facts: Facts, block: int, loop: int) -> bool:
    """Whether iterations of `loop` give a block with a guard different iterators.

    Where the compiler sees its bindings as affine, each iterator tuple is run equally often, so once if
    the block runs less than twice as often as it has tuples.
    """
    view, this = facts.views[block], facts.variables[loop]
    return (
        bool(facts.affine >> block & 1)
        and facts.trips[block] < 2 * view.domain
        and this in view.spatial_vars
        and this not in view.reduce_vars
    )


def _own_memory(
    facts: Facts, buffers: tuple[int, ...], axis: str, scopes: Mapping[int, str] | None
) -> bool:
    """Whether each thread, or block, along `axis` has its own copy of all `buffers`."""
    own = ("local", "shared") if axis.startswith(_BLOCK) else ("local",)
    return all(_scope(facts, buffer, scopes) in own for buffer in buffers)


def _exchange(
    facts: Facts, blocks: range, axes: Axes, scopes: Mapping[int, str] | None
) -> Fault | None:
    """What one thread writes and another one reads."""
    for b in blocks:
        for buffer in facts.views[b].writes:
            scope = _scope(facts, buffer, scopes)
            for reader in facts.readers.get(buffer, ()):
                if reader == b or reader not in blocks:
                    continue
                differ = facts.chain[b] & ~facts.chain[reader] & sum(1 << i for i in axes)
                bad = [i for i in bits(differ) if _crosses(axes[i], scope)]
                if bad:
                    message = (
                        f"another thread of {axes[bad[0]]} reads what it writes to {scope} memory"
                    )
                    return Fault("sharing", _name(facts, b), message)
    return None


def _crosses(axis: str, scope: str) -> bool:
    """Whether values in `scope` do not get from one thread of `axis` to another within a kernel."""
    return scope != "shared" or axis.startswith(_BLOCK)


# --- rules ----------------------------------------------------------------------------------


def no_thread_axes(facts: Facts, t: Any, asked: int) -> int:
    """A backend without thread axes."""
    return EVERYTHING if device_limits(facts.target) is None else 0


def _refused(facts: Facts, t: Any, asked: int, kinds: tuple[str, ...]) -> int:
    limits = device_limits(facts.target)
    if limits is None:
        return EVERYTHING
    known: dict[tuple[int, str], Fault | None] = facts.__dict__.setdefault("thread_faults", {})
    axes, refused = axes_of(facts), 0
    for i in bits(asked & facts.all_loops & ~facts.bound):
        key = (i, t.thread)
        if key not in known:
            known[key] = thread_fault(facts, limits, {**axes, i: t.thread})
        fault = known[key]
        if fault is not None and fault.kind in kinds:
            refused |= 1 << i
    return refused


def wrong_threads(facts: Facts, t: Any, asked: int) -> int:
    """Bind of a loop at the wrong depth, or to an axis that is taken."""
    return _refused(facts, t, asked, ("nesting",))


def beyond_device(facts: Facts, t: Any, asked: int) -> int:
    """Bind of a loop with more iterations than the device has threads."""
    return _refused(facts, t, asked, ("limits",))


def unsound_threads(facts: Facts, t: Any, asked: int) -> int:
    """Bind of a loop whose iterations would get into each other's way."""
    return _refused(facts, t, asked, ("sharing", "scope"))


def foreign_scope(facts: Facts, t: Any, asked: int) -> int:
    """SetScope to memory that the target does not have."""
    limits = device_limits(facts.target)
    scopes = ("global", "local") if limits is None else limits.scopes
    return 0 if t.scope in scopes else EVERYTHING


def scattered_scope(facts: Facts, t: Any, asked: int) -> int:
    """SetScope of a buffer that several kernels, blocks or threads use."""
    limits = device_limits(facts.target)
    if limits is None:
        return 0
    axes, refused = axes_of(facts), 0
    for i in bits(asked & facts.all_blocks):
        writes = facts.views[i].writes
        if writes and thread_fault(facts, limits, axes, {writes[0]: t.scope}) is not None:
            refused |= 1 << i
    return refused


def strange_lanes(facts: Any, t: Any, asked: int) -> int:
    """Vectorize of a loop that is as long as no vector of the device's language, nor fills what a copy moves
    at a time."""
    limits = device_limits(facts.target)
    if limits is None:
        return 0
    refused = 0
    for i in bits(asked & facts.all_loops):
        if facts.extents[i] not in limits.lanes and not _fills_copy(facts, limits, i):
            refused |= 1 << i
    return refused


def _fills_copy(facts: Facts, limits: DeviceLimits, loop: int) -> bool:
    """Whether the iterations of `loop` are one copy of the device's longest."""
    if not facts.over_block >> loop & 1:
        return False
    block = facts.blocks[facts.firsts[loop]].facts
    body = block.node.body
    if type(body) is not BufferStore or type(body.value) is not TensorLoad:
        return False
    bits_of = tvm.DataType(block.writes[0].buffer.dtype).bits
    return int(facts.extents[loop] * bits_of) == 8 * limits.vector_bytes


def _kept(facts: Facts, buffer: int) -> bool:
    """Whether a buffer is each thread's own once all that use it stand in one kernel."""
    return buffer in facts.intermediates and _scope(facts, buffer, None) != "shared"


def unsound_moves(facts: Facts, t: Any, asked: int) -> int:
    """A reduction moved into a kernel to where not all of the kernel's thread axes are around it."""
    if not facts.bound:
        return 0
    refused, axes = 0, axes_of(facts)
    view, block = facts.views[t.block], facts.blocks[t.block].facts
    if not (block.has_init or view.overlaps or view.ordered):
        return 0
    if t.name == "ComputeAt" and all(_kept(facts, buffer) for buffer in view.writes):
        return 0  # each thread adds to memory of its own
    for part, first, _ in facts.parts:
        own = {i: a for i, a in axes.items() if first <= i < first + len(part.extents)}
        needed = {a for i, a in own.items() if facts.extents[i] > 1}
        for i in range(first, first + len(part.extents)) if needed else ():
            if not needed <= {own[j] for j in bits(facts.up[i]) if j in own}:
                refused |= 1 << i
    return refused
