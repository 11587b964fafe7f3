"""Rules about where and how intermediate values are stored; see `rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isfinite, prod
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.tirx import Add, BufferStore, Cast, FloatImm, IntImm, Mul

from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits
from tirgym.harness.tensorir.nest import REDUCE, Buffer
from tirgym.harness.tensorir.rule_limits import EVERYTHING, MAX_BLOCKS
from tirgym.harness.transforms.bind import THREADS
from tirgym.harness.transforms.software_pipeline import STAGES
from tirgym.harness.transforms.store_precision import DTYPES
from tirgym.harness.transforms.tensorize import INTRINSICS

__all__ = [
    "annotated_block",
    "crowded_padding",
    "intermediates_only",
    "meaningful",
    "mirrored_access",
    "no_contraction",
    "no_layout",
    "no_padding",
    "no_rows",
    "not_float",
    "parameters",
    "same_scope",
]

MAX_RANK = 6
"""Most dimensions of a buffer after a layout change."""
MAX_PADDED = 2.0
"""Largest growth of the iteration domain by padding."""
MAX_PRAGMA_STEP = 512
"""Largest number of iterations that an unroll pragma may unroll."""


_ACCEPTED: dict[str, Callable[[Any], bool]] = {
    "UnrollPragma": lambda t: 1 <= t.max_step <= MAX_PRAGMA_STEP,
    "SetScope": lambda t: t.scope in ("global", "local", "shared"),
    "StorageAlign": lambda t: 1 <= t.factor <= 1024 and 0 <= t.offset < t.factor,
    "TransformLayout": lambda t: t.axis >= 0 and t.factor >= 1,
    "PadEinsum": lambda t: 2 <= t.factor <= 64,
    "PadAxis": lambda t: t.axis >= 0 and 2 <= t.factor <= 64,
    "Tensorize": lambda t: t.intrinsic in INTRINSICS,
    "Bind": lambda t: t.thread in THREADS,
    "StorePrecision": lambda t: t.dtype in DTYPES,
    "SoftwarePipeline": lambda t: 2 <= t.stages <= max(STAGES),
}


def meaningful(t: Any) -> bool:
    """Whether the parameters of a transform can mean something in some program."""
    accepts = _ACCEPTED.get(t.name)
    return accepts is None or accepts(t)


def parameters(facts: Facts, t: Any, asked: int) -> int:
    """Parameters that no program can take."""
    return 0 if meaningful(t) else EVERYTHING


def _written(facts: Facts, block: int) -> Buffer | None:
    writes = facts.blocks[block].facts.writes
    return writes[0].buffer if writes else None


def intermediates_only(facts: Facts, t: Any, asked: int) -> int:
    """Blocks whose first written buffer is a parameter of the kernel."""
    return ~facts.makers


def same_scope(facts: Facts, t: Any, asked: int) -> int:
    """SetScope that changes nothing."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        buffer = _written(facts, i)
        if buffer is None or buffer.scope == t.scope:
            refused |= 1 << i
    return refused


def annotated_block(facts: Facts, t: Any, asked: int) -> int:
    """Transforms that would carry the alignment of one buffer to another, or set it twice."""
    marked = facts.aligned
    if not marked:
        return 0
    refused = marked
    if t.name == "ReverseComputeInline":
        for i in bits(asked & facts.all_blocks):
            if any(marked >> p & 1 for p in facts.producers[i]):
                refused |= 1 << i
    elif t.name in ("TransformLayout", "StorePrecision"):
        for i in bits(asked & facts.all_blocks):
            if any(marked >> a & 1 for a in _accessors(facts, i)):
                refused |= 1 << i
    elif t.node_field() == "loop":
        refused = 0
        for i in bits(marked):
            refused |= facts.chain[i]
    return refused


def _accessors(facts: Facts, block: int) -> tuple[int, ...]:
    """Blocks that access the first buffer that `block` writes."""
    buffer = _written(facts, block)
    if buffer is None:
        return ()
    return facts.writers.get(buffer.handle, ()) + facts.readers.get(buffer.handle, ())


def no_rows(facts: Facts, t: Any, asked: int) -> int:
    """StorageAlign of a buffer of one dimension or with several writers."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        buffer = _written(facts, i)
        if buffer is None or len(buffer.shape) < 2 or len(facts.writers[buffer.handle]) != 1:
            refused |= 1 << i
    return refused


def no_layout(facts: Facts, t: Any, asked: int) -> int:
    """TransformLayout that does not fit the buffer, changes nothing, or meets an intrinsic."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        handle, shape, opaque, _ = facts.exchange.stored[i]
        if handle == -1 or opaque or not _layout_fits(shape, t.axis, t.factor):
            refused |= 1 << i
    return refused


@lru_cache(maxsize=1 << 12)
def _layout_fits(shape: tuple[int, ...], axis: int, factor: int) -> bool:
    if axis >= len(shape):
        return False
    if factor == 1:
        return axis < len(shape) - 1 and shape[axis] * shape[-1] != 1
    return shape[axis] > factor and shape[axis] % factor == 0 and len(shape) < MAX_RANK


def mirrored_access(facts: Facts, t: Any, asked: int) -> int:
    """TransformLayout that would divide an index which falls while an iterator rises (M)."""
    refused = 0
    for i in bits(asked & facts.all_blocks) if t.factor > 1 else ():
        if facts.exchange.stored[i][3]:
            refused |= 1 << i
    return refused


def no_contraction(facts: LoopFacts, t: Any, asked: int) -> int:
    """Padding of anything but an untouched sum of products in a nest of its own."""
    refused = ~facts.reduction
    for i in bits(asked & facts.reduction):
        if not (facts.once[i] and _untouched(facts, i) and _contracts(facts, i)):
            refused |= 1 << i
    return refused


def _untouched(facts: LoopFacts, block: int) -> bool:
    """Each iterator is one serial loop that no other block uses."""
    chain, bindings = facts.chain[block], facts.placed[block].bindings
    if chain.bit_count() != len(bindings) or chain & ~(facts.single & facts.serial):
        return False
    return all(
        b.exact and len(b.coefficients) == 1 and not b.constant and 1.0 in b.coefficients.values()
        for b in bindings
    )


def _contracts(facts: LoopFacts, index: int) -> bool:
    block, view = facts.placed[index], facts.views[index]
    node = block.facts.node
    if not facts.reduction >> index & 1 or view.plain_write is None or len(view.writes) != 1:
        return False
    body, init = node.body, node.init
    if type(body) is not BufferStore or type(body.value) is not Add:
        return False
    if type(init) is not BufferStore or not _is_zero(init.value):
        return False
    if any(
        extent != 1
        or not start.exact
        or start.constant
        or list(start.coefficients.values()) not in ([], [1.0])
        for read in block.facts.reads
        for start, extent in read.region
    ):
        return False
    terms = [x for x in (body.value.a, body.value.b) if not _loads(x, view.writes[0])]
    return len(terms) == 1 and _is_product(terms[0])


def _is_zero(value: Any) -> bool:
    return type(value) in (FloatImm, IntImm) and float(value.value) == 0.0


def _loads(value: Any, buffer: int) -> bool:
    return type(value) is TensorLoad and hash(value.source) == buffer


def _is_product(value: Any) -> bool:
    """Loads, casts of loads, and products of them and constants: zero wherever padding is read."""
    if type(value) is Mul:
        return (_is_product(value.a) and (_is_product(value.b) or _is_finite(value.b))) or (
            _is_finite(value.a) and _is_product(value.b)
        )
    if type(value) is Cast:
        return _is_product(value.value)
    return type(value) is TensorLoad


def _is_finite(value: Any) -> bool:
    return type(value) in (FloatImm, IntImm) and isfinite(float(value.value))


def no_padding(facts: LoopFacts, t: Any, asked: int) -> int:
    """Padding with nothing to pad, of a sum whose terms are no zeros there, with too much to pad, or
    no room for the copies."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        facts_i = facts.placed[i].facts
        extents = facts_i.iter_extents
        multiples = t.multiples(extents)
        padded = [-(-e // m) * m for e, m in zip(extents, multiples, strict=True)]
        growth = prod(padded) / prod(extents)
        room = MAX_BLOCKS - len(facts.placed)
        used = {h for read in facts_i.reads for start, _ in read.region for h in start.coefficients}
        unread = any(
            kind == REDUCE and m > e and handle not in used
            for handle, kind, e, m in zip(
                facts_i.iter_handles, facts_i.iter_types, extents, padded, strict=True
            )
        )
        if unread or not 1 < growth <= MAX_PADDED or _added(facts, i) > room:
            refused |= 1 << i
    return refused


def _added(facts: LoopFacts, block: int) -> int:
    """Blocks that padding adds."""
    here = facts.placed[block].facts
    return len(here.reads) + len(here.writes)


def crowded_padding(facts: Facts) -> int:
    """Blocks that are not padded because of others: writers of the same buffer, or no more room."""
    found = facts.shared
    for i in bits(facts.reduction):
        if len(facts.placed) + _added(facts, i) > MAX_BLOCKS:
            found |= 1 << i
    return found


def not_float(facts: Facts, t: Any, asked: int) -> int:
    """StorePrecision of a buffer that is not float32 or float64, or meets an intrinsic."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        buffer = _written(facts, i)
        if (
            buffer is None
            or buffer.dtype not in ("float32", "float64")
            or any(facts.views[a].intrinsic for a in _accessors(facts, i))
        ):
            refused |= 1 << i
    return refused
