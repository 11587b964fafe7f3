"""The rules about moves, inlining and staging of blocks, and about buffers, padding and bodies."""

from __future__ import annotations

from tirgym.harness.tensorir import rule_bodies as bodies
from tirgym.harness.tensorir import rule_intrinsics as intrinsics
from tirgym.harness.tensorir import rule_moves as moves
from tirgym.harness.tensorir import rule_pipelines as pipelines
from tirgym.harness.tensorir import rule_regions as regions
from tirgym.harness.tensorir import rule_storage as storage
from tirgym.harness.tensorir import rule_threads as threads
from tirgym.harness.tensorir.rule import INLINES, MOVES, PADDING, STAGES, STORAGE, Rule

__all__ = ["MOVE_RULES"]

MOVE_RULES: tuple[Rule, ...] = (
    Rule(
        "pipeline stays whole",
        "a block or loop of a software pipeline, or a block that exchanges values with it",
        (*MOVES, *INLINES, *STAGES, "SetScope"),
        pipelines.moves_in_pipeline,
        by_row=True,
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
        "fragments stay",
        "an instruction of a warp stays where it is, and so does the memory that it uses",
        (*MOVES, *INLINES, *STAGES, "SetScope", "StorageAlign"),
        intrinsics.moved_fragment,
        by_row=True,
        by_content=True,
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
        intrinsics.foreign_intrinsic,
        by_row=True,
    ),
    Rule(
        "like the intrinsic",
        "the nest is no integer dot product of 16 by 4 with weights stored as 16 x 4 bytes, no copy of a "
        "float32 square, or not what the instruction does with fragments and aligned rows",
        ("Tensorize",),
        intrinsics.unlike_intrinsic,
        by_row=True,
    ),
    Rule(
        "whole warps",
        "32 threads along threadIdx.x must run the instruction together",
        ("Tensorize",),
        intrinsics.broken_warp,
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
"""In the order in which they are asked, after those of loops."""
