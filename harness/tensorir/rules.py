"""The vocabulary rules: what tirgym refuses beyond what the compiler refuses, one function each.

A rule looks at a whole row of transforms at once: those that differ only in the node they act on
(`Split` by 8 of any loop, `ComputeAt` of block 2 at any loop). It gets one of them as a prototype and
answers the set of nodes it refuses, as bits; a single transform is one bit of its row. So the mask
of thousands of actions and the verdict on one of them are the same code.

None of them looks at how the program was made: legality is a function of IR and target. Many exist
because TVM 0.27 accepts, and then silently miscompiles, what they refuse. The classes of holes, each
with a small sequence that shows it:

A  `ReverseComputeAt` of a block without producer moves it past its consumers.
B  a consumer moved into a reduction loop of its producer reads partial sums (softmax).
C  `ReverseComputeAt` of a block that reads with an offset or under a guard shrinks its domain to what
   it reads (padding of conv2d, concat).
D  blocks moved below a vectorized loop, or a loop vectorized around several blocks (softmax).
E  `DecomposeReduction` above a loop that recomputes the block adds sums several times (softmax).
F  `ReverseComputeAt` below a strided tile takes the tile's hull for its region (matmul).
G  `ReverseComputeInline` drops the producer's buffer although another block reads it (silu).
H  `Reorder` of the halves of a loop that was fused from a spatial and a reduction loop and split
   again: the initialisation comes in the middle of the sum (row maximum, matvec).
I  `ComputeAt` of a block that is read at an index that depends on data binds iterators to data, which
   later transforms corrupt (gather).
J  a block moved away from a producer that is recomputed for it: storage rewriting then lets the
   producer overwrite its input in place, and the next round reads the result (attention).
K  `ReverseComputeInline` of a block that crops what its producer padded: the padding is written into
   the smaller buffer, past the end of its rows and of the buffer (skinny matmul after `PadEinsum`).
L  staging what a guarded block reads or writes: the copy runs without the guard, out of bounds (pad).
M  an index that falls while an iterator rises, divided: n-1-i over tiles of 8 becomes 8-i, out of
   bounds. Layout changes divide indices, and inlining puts one index into another (reversed chain).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tirgym.harness.tensorir import rule_bodies as bodies
from tirgym.harness.tensorir import rule_limits as limits
from tirgym.harness.tensorir import rule_loops as loops
from tirgym.harness.tensorir import rule_moves as moves
from tirgym.harness.tensorir import rule_regions as regions
from tirgym.harness.tensorir import rule_storage as storage
from tirgym.harness.tensorir import rule_threads as threads
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.transforms.base import Transform

__all__ = [
    "RULES",
    "Refusal",
    "Rule",
    "first_refusal",
    "rules_for",
]


Refusal = Callable[[Facts, Any, int], int]


class Rule(NamedTuple):
    """One reason to refuse.

    `refused(facts, prototype, asked)` is a bit set over the row's nodes; only the members of `asked`
    matter, so that a rule need not look at nodes that are illegal anyway.
    """

    name: str
    reason: str
    kinds: tuple[str, ...]
    """class names of the transforms it judges; empty: all"""
    refused: Refusal
    by_row: bool = False
    """the answer depends on more than the node: on a factor, or on the block that is moved"""
    by_extent: bool = False
    """the answer for a loop depends on its extent alone"""
    by_content: bool = False
    """the answer depends on what the blocks hold, read and write: not on loops, guards or target"""


STRUCTURAL = ("Split", "Reorder", "Fuse")
MARKS = ("Vectorize", "Parallel", "Unroll", "UnrollPragma")
MOVES = ("ComputeAt", "ReverseComputeAt")
INLINES = ("ComputeInline", "ReverseComputeInline")
STAGES = ("CacheRead", "CacheWrite")
PADDING = ("PadEinsum", "PadAxis")
STORAGE = ("SetScope", "StorageAlign", "TransformLayout", "StorePrecision")

RULES: tuple[Rule, ...] = (
    Rule("exists", "the program has no such loop or block", (), limits.missing, by_row=True),
    Rule(
        "read exists",
        "the block has no such read region",
        ("CacheRead",),
        limits.missing_read,
        by_row=True,
        by_content=True,
    ),
    Rule("no thread binding", "this backend has no thread axes", ("Bind",), threads.no_thread_axes),
    Rule(
        "parameters",
        "a parameter has no meaning, whatever the program",
        (
            "UnrollPragma",
            "SetScope",
            "StorageAlign",
            "TransformLayout",
            "PadEinsum",
            "PadAxis",
            "Tensorize",
            "Bind",
            "StorePrecision",
        ),
        storage.parameters,
        by_row=True,
    ),
    Rule(
        "loop cap",
        f"the program has {limits.MAX_LOOPS} loops already",
        ("Split", *STAGES, "DecomposeReduction", "RFactor", *PADDING),
        limits.too_many_loops,
    ),
    Rule(
        "block cap",
        f"the program has {limits.MAX_BLOCKS} blocks already",
        (*STAGES, "DecomposeReduction", "RFactor"),
        limits.too_many_blocks,
    ),
    Rule(
        "factor divides",
        "the factor does not divide the extent, or leaves one iteration",
        ("Split",),
        limits.indivisible,
        by_row=True,
        by_extent=True,
    ),
    Rule("perfect nest", "the body is not exactly one loop", ("Reorder", "Fuse"), limits.imperfect),
    Rule(
        "vectorized is frozen",
        "a vectorized or thread-bound loop is not changed any more",
        (*STRUCTURAL, *MARKS, "Bind", "Tensorize"),
        limits.frozen,
    ),
    Rule(
        "parallel is frozen",
        "a parallel loop is not changed any more",
        (*STRUCTURAL, "Tensorize"),
        limits.parallel_frozen,
    ),
    Rule(
        "annotated is frozen",
        "the loop, or the one inside it, carries a pragma",
        ("Split", "Fuse", "UnrollPragma", "Bind"),
        limits.annotated,
    ),
    Rule("serial", "the loop is not serial", (*MARKS, "Bind", "RFactor"), limits.marked),
    Rule(
        "blocks, then threads",
        "the outermost loop is not bound first, blocks lie inside, or the axis is taken",
        ("Bind",),
        threads.wrong_threads,
        by_row=True,
    ),
    Rule(
        "device limits",
        "the device has not as many threads, or the kernel has another number of them on this axis",
        ("Bind",),
        threads.beyond_device,
        by_row=True,
    ),
    Rule(
        "threads apart",
        "threads would add to the same element, or read what another thread wrote without a barrier",
        ("Bind",),
        threads.unsound_threads,
        by_row=True,
    ),
    Rule(
        "one pragma",
        "the loop lies inside another loop, or around one with a pragma",
        ("UnrollPragma",),
        limits.second_pragma,
    ),
    Rule("ordered block", "a block below needs its order", ("Reorder",), loops.ordered),
    Rule(
        "no reordering of recomputed sums",
        "a reduction below is computed again and again, and its loops must stay in order",
        ("Reorder",),
        loops.recomputed_reorder,
    ),
    Rule(
        "sums start at zero",
        "both loops drive one reduction iterator by division, whose first term would come later",
        ("Reorder",),
        loops.tangled_reorder,
    ),
    Rule("vector body", "the body is not exactly one block", ("Vectorize",), limits.not_over_block),
    Rule(
        "vector extent",
        f"the extent is not within 2 to {limits.MAX_VECTOR}",
        ("Vectorize",),
        limits.vector_extent,
    ),
    Rule(
        "vector types",
        "the device has no vectors of that many elements",
        ("Vectorize",),
        threads.strange_lanes,
    ),
    Rule(
        "vector lanes",
        "the lanes do not write different elements",
        ("Vectorize",),
        loops.colliding_lanes,
    ),
    Rule(
        "scalar body",
        "the block is an intrinsic, which works on vectors already",
        ("Vectorize",),
        loops.vectors_of_vectors,
    ),
    Rule(
        "unroll extent",
        f"the extent is not within 2 to {limits.MAX_UNROLL_EXTENT}, or more than {limits.MAX_UNROLL} copies",
        ("Unroll",),
        limits.unroll_extent,
    ),
    Rule("threads", "the target has one thread", ("Parallel",), limits.no_threads),
    Rule(
        "parallel outermost",
        "the loop lies inside another loop or around a parallel one",
        ("Parallel",),
        limits.not_outermost,
    ),
    Rule(
        "parallel writes",
        "iterations write the same elements of a shared buffer",
        ("Parallel",),
        loops.shared_writes,
    ),
    Rule(
        "reduction below",
        "no reduction with an initialisation lies below",
        ("DecomposeReduction",),
        limits.nothing_to_decompose,
    ),
    Rule(
        "no decomposition above recomputation",
        "a loop from here on repeats the sum, which would be added up again",
        ("DecomposeReduction",),
        loops.decomposes_recomputation,
    ),
    Rule(
        "rfactor memory",
        "the partial results need too much memory",
        ("RFactor",),
        limits.rfactor_bytes,
    ),
    Rule(
        "rfactor once",
        "the reduction is recomputed, guarded, or holds a vectorized or parallel loop",
        ("RFactor",),
        loops.rfactor_repeats,
    ),
    Rule(
        "rfactor siblings",
        "a block without a loop of its own stands next to the reduction or its loops",
        ("RFactor",),
        loops.rfactor_sibling,
    ),
    Rule(
        "no moves of vectorized code",
        "the block or the loop is vectorized",
        MOVES,
        moves.vectorized_move,
        by_row=True,
    ),
    Rule(
        "not overwritten",
        "a later block writes what this block reads",
        (*MOVES, *INLINES, *STAGES),
        moves.overwritten,
        by_row=True,
        by_content=True,
    ),
    Rule(
        "no partial sums",
        "a producer is still reducing over this loop",
        MOVES,
        moves.partial_sums,
        by_row=True,
    ),
    Rule(
        "direct reads",
        "a consumer reads the block at an index that depends on data",
        ("ComputeAt",),
        moves.indirect_reads,
        by_row=True,
        by_content=True,
    ),
    Rule(
        "no idle recomputation",
        "a block would be recomputed in a loop where nothing reads it",
        (*MOVES, *INLINES),
        moves.left_behind,
        by_row=True,
    ),
    Rule(
        "sums shared out",
        "a reduction would be computed in full by every thread, on the same elements",
        MOVES,
        threads.unsound_moves,
        by_row=True,
    ),
    Rule(
        "needs a producer",
        "no other block produces what this block reads",
        ("ReverseComputeAt",),
        moves.without_producer,
        by_row=True,
        by_content=True,
    ),
    Rule(
        "plain reads",
        "the block reads what was produced with an offset, a stride or a guard",
        ("ReverseComputeAt",),
        moves.shifted_reads,
        by_row=True,
        by_content=True,
    ),
    Rule(
        "dense region",
        "a producer covers no dense box below the loop, or producers differ",
        ("ReverseComputeAt",),
        regions.scattered_region,
        by_row=True,
    ),
    Rule(
        "sums stay whole",
        "a reduction would add terms more than once, or be read before its end",
        ("ReverseComputeAt",),
        moves.repeated_terms,
        by_row=True,
    ),
    Rule(
        "sole reader",
        "another block reads the buffer that would be dropped",
        ("ReverseComputeInline",),
        moves.shared_producer,
        by_content=True,
    ),
    Rule(
        "whole producer",
        "the block takes only a part of what its producer would then write into its buffer",
        ("ReverseComputeInline",),
        moves.cropped_producer,
        by_content=True,
    ),
    Rule(
        "no divided mirrors",
        "an index that falls while an iterator rises would become part of another index",
        INLINES,
        moves.mirrored,
        by_content=True,
    ),
    Rule(
        "unguarded stages",
        "a block that accesses the buffer has a guard, which the copy would lack",
        STAGES,
        moves.guarded_stage,
        by_row=True,
    ),
    Rule(
        "parallel stages",
        "a block below a parallel loop that computes for itself is not staged",
        STAGES,
        moves.private_stage,
    ),
    Rule(
        "work",
        f"the program would do over {moves.MAX_WORK} times the work of one without recomputation",
        MOVES,
        moves.too_much_work,
        by_row=True,
    ),
    Rule(
        "inline size",
        f"the expression would grow beyond {moves.MAX_EXPRESSION} nodes",
        ("ComputeInline",),
        moves.swollen_inline,
        by_content=True,
    ),
    Rule(
        "names once",
        "the expression has named values and would be written down in several places",
        INLINES,
        bodies.copied_names,
        by_content=True,
    ),
    Rule(
        "intermediates only",
        "the layout and type of inputs and outputs are the kernel's signature",
        STORAGE,
        storage.intermediates_only,
    ),
    Rule(
        "another scope",
        "the buffer has that scope already",
        ("SetScope",),
        storage.same_scope,
        by_row=True,
    ),
    Rule(
        "memory exists",
        "the target has no such memory",
        ("SetScope",),
        threads.foreign_scope,
        by_row=True,
    ),
    Rule(
        "memory of one",
        "another kernel, block or thread uses the buffer",
        ("SetScope",),
        threads.scattered_scope,
        by_row=True,
    ),
    Rule(
        "alignment stays",
        "an alignment is set already and belongs to one buffer",
        (
            "StorageAlign",
            "TransformLayout",
            "StorePrecision",
            "CacheWrite",
            "ReverseComputeInline",
            "RFactor",
            "PadEinsum",
            "PadAxis",
            "Tensorize",
        ),
        storage.annotated_block,
        by_content=True,
    ),
    Rule(
        "rows to align",
        "the buffer has one dimension, or several blocks write it",
        ("StorageAlign",),
        storage.no_rows,
    ),
    Rule(
        "layout fits",
        "the axis does not exist, the factor does not divide it, or nothing would change",
        ("TransformLayout",),
        storage.no_layout,
        by_row=True,
    ),
    Rule(
        "no mirrored layout",
        "the buffer is accessed at an index that falls while an iterator rises",
        ("TransformLayout",),
        storage.mirrored_access,
        by_row=True,
    ),
    Rule(
        "contraction",
        "the block is not an untouched sum of products in a loop nest of its own",
        PADDING,
        storage.no_contraction,
    ),
    Rule(
        "padding",
        f"nothing needs padding, no operand would be zero there, it would grow the work over "
        f"{storage.MAX_PADDED} times, or there is no room for the copies",
        PADDING,
        storage.no_padding,
        by_row=True,
    ),
    Rule(
        "instruction exists",
        "the target does not have the instruction",
        ("Tensorize",),
        storage.foreign_intrinsic,
        by_row=True,
    ),
    Rule(
        "like the intrinsic",
        "the nest is no integer dot product of 16 by 4 with weights stored as 16 x 4 bytes, or no copy "
        "of a float32 square",
        ("Tensorize",),
        storage.unlike_intrinsic,
        by_row=True,
    ),
    Rule(
        "calls with a form",
        "the block calls no function that can be written as arithmetic",
        ("VectorMath",),
        bodies.no_form,
    ),
    Rule(
        "float32 calls",
        "the functions that the block calls can be written as arithmetic in float32 alone",
        ("VectorMath",),
        bodies.other_type,
    ),
    Rule(
        "body size",
        f"the body would grow beyond {moves.MAX_EXPRESSION} nodes",
        ("VectorMath",),
        bodies.swollen_body,
    ),
    Rule("float", "the buffer is not float32 or float64", ("StorePrecision",), storage.not_float),
)
"""Every rule, in the order in which they are asked; the first that refuses gives the reason."""


@cache
def rules_for(kind: str, by_row: bool | None = None) -> tuple[Rule, ...]:
    """The rules that judge transforms of class `kind`, or only those that do it by row or not."""
    found = (rule for rule in RULES if not rule.kinds or kind in rule.kinds)
    return tuple(rule for rule in found if by_row is None or rule.by_row == by_row)


def first_refusal(facts: Facts, transform: Transform) -> Rule | None:
    """The first rule that refuses `transform`."""
    axis = transform.node_field()
    node = getattr(transform, axis) if axis else 0
    if node < 0:
        return RULES[0]
    here = 1 << node
    rules = rules_for(transform.name)
    return next((r for r in rules if r.refused(facts, transform, here) & here), None)
