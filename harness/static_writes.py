"""Which elements a program writes, and whether parallel or vector iterations collide.

Everything works on linear forms of loop variables. An error is reported only where the forms are
exact, so that it is certain; what cannot be decided comes back as an open question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tirgym.harness.static_body import plain_loads
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    VECTORIZED,
    Access,
    Block,
    Buffer,
    Linear,
    Loop,
    LoopNest,
    linear,
)

__all__ = ["Collision", "Coverage", "collisions", "coverage", "outside_reads"]


class Form(NamedTuple):
    """One dimension of an access: start = constant + Σ coefficient · loop variable, and a length."""

    coefficients: dict[int, float]
    constant: float
    length: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is known about the elements that are written to one buffer."""

    buffer: str
    missed: str = ""
    """why elements are certainly never written, "" if that is not certain"""
    proved: bool = False
    """every element is certainly written"""
    outside: str = ""
    """why elements outside the buffer are certainly written"""


@dataclass(frozen=True, slots=True)
class Collision:
    """Two iterations of a parallel or vectorized loop that touch one element."""

    loop: str
    block: str
    message: str
    certain: bool


def forms(block: Block, region: tuple[tuple[Linear, int], ...]) -> tuple[Form, ...]:
    """A region of `block` by loop variables, one form a dimension."""
    bindings = dict(zip(block.facts.iter_handles, block.bindings, strict=True))
    found = []
    for start, extent in region:
        coefficients: dict[int, float] = {}
        constant, exact = start.constant, start.exact and extent > 0
        for handle, scale in start.coefficients.items():
            binding = bindings.get(handle)
            if binding is None:
                exact = False
                continue
            exact = exact and binding.exact
            constant += scale * binding.constant
            for loop, inner in binding.coefficients.items():
                coefficients[loop] = coefficients.get(loop, 0.0) + scale * inner
        found.append(Form(coefficients, constant, extent, exact))
    return tuple(found)


def _extents(nest: LoopNest, block: Block) -> dict[int, int]:
    return {nest.loops[i].var: nest.loops[i].extent for i in block.chain}


def _bounds(form: Form, extents: dict[int, int]) -> tuple[int, int]:
    """First and last index of a dimension over all iterations."""
    low = high = form.constant
    for variable, coefficient in form.coefficients.items():
        reach = coefficient * (extents.get(variable, 1) - 1)
        low, high = low + min(reach, 0.0), high + max(reach, 0.0)
    return int(low), int(high) + max(form.length, 1) - 1


def _gapless(form: Form, extents: dict[int, int]) -> bool:
    """Whether the dimension takes every index between its bounds.

    Strides sorted ascending, each step must be no longer than what the smaller ones fill.
    """
    filled = float(form.length)
    terms = sorted(
        (abs(c), extents.get(v, 1)) for v, c in form.coefficients.items() if extents.get(v, 1) > 1
    )
    for coefficient, extent in terms:
        if coefficient > filled:
            return False
        filled += coefficient * (extent - 1)
    return True


def coverage(nest: LoopNest, buffer: Buffer, affine: list[bool]) -> Coverage:
    """Whether the blocks of `nest` write every element of the output `buffer`.

    Initialisation and update of a reduction both count; an element may be written more than once.
    `affine[b]`: the compiler has shown that the iterators of block b are one-to-one with its loops.
    """
    writers = [
        (block, access)
        for block in nest.blocks
        for access in block.facts.writes
        if access.buffer.handle == buffer.handle
    ]
    name, shape = buffer.name, buffer.shape
    if not writers:
        return Coverage(name, missed="no block writes it")
    if any(extent < 0 for extent in shape):
        return Coverage(name)
    most = 0
    spans: list[list[tuple[int, int]]] = [[] for _ in shape]
    proved, certain = False, True
    outside = ""
    for block, access in writers:
        extents = _extents(nest, block)
        dims = forms(block, access.region)
        exact = all(form.exact for form in dims) and all(e > 0 for e in extents.values())
        certain = certain and exact
        proved = proved or (affine[block.index] and _covers_by_iterators(nest, block, access))
        if not exact:
            continue
        bounds = [_bounds(form, extents) for form in dims]
        if not block.has_predicate:
            outside = outside or _outside(bounds, shape, block.facts.name)
        most += _instances(dims, extents)
        for found, span in zip(spans, bounds, strict=True):
            found.append(span)
        proved = proved or (not block.has_predicate and _covers(dims, bounds, extents, shape))
    missed = _missed(spans, most, shape) if certain and not proved else ""
    return Coverage(name, missed, proved, outside)


def _instances(dims: tuple[Form, ...], extents: dict[int, int]) -> int:
    """At most so many elements are written: iterations of the loops that move the access."""
    variables = sorted({v for form in dims for v, c in form.coefficients.items() if c})
    count = 1
    for variable in variables:
        count *= extents.get(variable, 1)
    for form in dims:
        count *= form.length
    return count


def _covers(
    dims: tuple[Form, ...],
    bounds: list[tuple[int, int]],
    extents: dict[int, int],
    shape: tuple[int, ...],
) -> bool:
    """Each dimension is covered without gaps, by loops of its own."""
    used: set[int] = set()
    for form, (low, high), extent in zip(dims, bounds, shape, strict=True):
        mine = {v for v, c in form.coefficients.items() if c and extents.get(v, 1) > 1}
        if low > 0 or high < extent - 1 or used & mine or not _gapless(form, extents):
            return False
        used |= mine
    return True


def _covers_by_iterators(nest: LoopNest, block: Block, access: Access) -> bool:
    """The iterators take all values of their domains, and each dimension is one iterator.

    Bindings that are one-to-one take as many values as the loops have iterations, so they fill the
    domains exactly if the counts are equal.
    """
    facts = block.facts
    iterations = domain = 1
    for i in block.chain:
        iterations *= nest.loops[i].extent
    for extent in facts.iter_extents:
        domain *= extent
    if block.has_predicate or iterations != domain:
        return False
    extents = dict(zip(facts.iter_handles, facts.iter_extents, strict=True))
    used: set[int] = set()
    for (start, length), size in zip(access.region, access.buffer.shape, strict=True):
        if length == size and not start.coefficients and start.constant == 0:
            continue
        handles = [handle for handle, c in start.coefficients.items() if c]
        if size == 1 and length == 1:
            continue
        if len(handles) != 1 or handles[0] in used or not start.exact or length != 1:
            return False
        handle = handles[0]
        if start.coefficients[handle] != 1 or start.constant != 0 or extents.get(handle) != size:
            return False
        used.add(handle)
    return True


def _missed(spans: list[list[tuple[int, int]]], most: int, shape: tuple[int, ...]) -> str:
    elements = 1
    for extent in shape:
        elements *= extent
    for d, (found, extent) in enumerate(zip(spans, shape, strict=True)):
        low, high = min(s[0] for s in found), max(s[1] for s in found)
        if low > 0 or high < extent - 1:
            return f"dimension {d} is written from {low} to {high}, not from 0 to {extent - 1}"
    return f"at most {most} of {elements} elements are written" if most < elements else ""


def _outside(bounds: list[tuple[int, int]], shape: tuple[int, ...], block: str) -> str:
    for d, ((low, high), extent) in enumerate(zip(bounds, shape, strict=True)):
        if low < 0 or high > extent - 1:
            return f"block {block} writes indices {low} to {high} of dimension {d}, size {extent}"
    return ""


def outside_reads(nest: LoopNest) -> Iterator[tuple[str, str]]:
    """(block, message) for loads that certainly leave their buffer; guarded ones are left out."""
    for block in nest.blocks:
        if block.has_predicate:
            continue
        extents = _extents(nest, block)
        if any(extent < 1 for extent in extents.values()):
            continue
        for name, shape, indices in plain_loads(block.facts.node):
            region = tuple((linear(index), 1) for index in indices)
            for d, (form, size) in enumerate(zip(forms(block, region), shape, strict=True)):
                low, high = _bounds(form, extents)
                if form.exact and size > 0 and (low < 0 or high > size - 1):
                    where = f"dimension {d} of {name}, size {size}"
                    yield block.facts.name, f"reads indices {low} to {high} of {where}"


def collisions(nest: LoopNest, affine: list[bool]) -> Iterator[Collision]:
    """Elements that two iterations of one parallel or vectorized loop write, or write and read.

    `affine[b]`: the compiler has shown that the iterators of block b are one-to-one with its loops.
    A buffer that is only used below the loop belongs to one iteration and cannot collide.
    """
    users = _users(nest)
    for loop in nest.loops:
        if loop.kind not in (PARALLEL, VECTORIZED) or loop.extent == 1:
            continue
        below = set(loop.blocks)
        for index in loop.blocks:
            block = nest.blocks[index]
            for access in block.facts.writes:
                private = users[access.buffer.handle] <= below and not _is_parameter(nest, access)
                if not private:
                    yield from _between(nest, loop, block, access, affine[index])


def _users(nest: LoopNest) -> dict[int, set[int]]:
    users: dict[int, set[int]] = {}
    for block in nest.blocks:
        for access in (*block.facts.reads, *block.facts.writes):
            users.setdefault(access.buffer.handle, set()).add(block.index)
    return users


def _is_parameter(nest: LoopNest, access: Access) -> bool:
    return all(hash(buffer) != access.buffer.handle for buffer in nest.root.alloc_buffers)


def _between(
    nest: LoopNest, loop: Loop, block: Block, write: Access, affine: bool
) -> Iterator[Collision]:
    """Collisions of `write` of `block` between iterations of `loop`."""
    kind = "parallel" if loop.kind == PARALLEL else "vectorized"
    place, name = f"{kind} loop {loop.index}", block.facts.name
    dims = forms(block, write.region)
    exact = all(form.exact for form in dims)
    moves = any(form.coefficients.get(loop.var) for form in dims)
    ops = block_ops(block.facts.node)
    if not moves:
        varies = ops.accumulates or any(
            form.coefficients.get(loop.var)
            for access in block.facts.reads
            for form in forms(block, access.region)
        )
        message = f"all {loop.extent} iterations write the same elements of {write.buffer.name}"
        if varies:
            yield Collision(place, name, message, exact)
        return
    for access in block.facts.reads:
        if access.buffer.handle == write.buffer.handle:
            yield from _carried(nest, loop, block, dims, forms(block, access.region), write, place)
    if not exact and not affine:
        message = f"iterations may write the same elements of {write.buffer.name}"
        yield Collision(place, name, message, False)


def _carried(
    nest: LoopNest,
    loop: Loop,
    block: Block,
    write: tuple[Form, ...],
    read: tuple[Form, ...],
    access: Access,
    place: str,
) -> Iterator[Collision]:
    """A read of what another iteration of `loop` writes."""
    for mine, theirs in zip(write, read, strict=True):
        step = mine.coefficients.get(loop.var, 0.0)
        if not step:
            continue
        same = mine.coefficients == theirs.coefficients
        if same and mine.constant == theirs.constant and mine.length == theirs.length:
            return
        distance = abs(mine.constant - theirs.constant) / abs(step)
        certain = (
            mine.exact
            and theirs.exact
            and same
            and mine.length == theirs.length == 1
            and distance == int(distance)
            and 0 < distance < loop.extent
            and not block.has_predicate
        )
        message = f"an iteration reads elements of {access.buffer.name} that another one writes"
        yield Collision(place, block.facts.name, message, certain)
        return
