"""The rules about what exists, about loops and threads, and about reductions in place."""

from __future__ import annotations

from tirgym.harness.tensorir import rule_limits as limits
from tirgym.harness.tensorir import rule_loops as loops
from tirgym.harness.tensorir import rule_pipelines as pipelines
from tirgym.harness.tensorir import rule_storage as storage
from tirgym.harness.tensorir import rule_threads as threads
from tirgym.harness.tensorir.rule import MARKS, PADDING, STAGES, STRUCTURAL, Rule

__all__ = ["LOOP_RULES"]

LOOP_RULES: tuple[Rule, ...] = (
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
            "SoftwarePipeline",
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
    Rule(
        "pipeline is frozen",
        "a pipelined loop and what lies in it are not changed any more",
        (
            *STRUCTURAL,
            *MARKS,
            "Bind",
            "Tensorize",
            "DecomposeReduction",
            "RFactor",
            "SoftwarePipeline",
        ),
        pipelines.pipeline_frozen,
    ),
    Rule(
        "serial",
        "the loop is not serial",
        (*MARKS, "Bind", "RFactor", "SoftwarePipeline"),
        limits.marked,
    ),
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
    Rule(
        "shared memory",
        "this backend has no shared memory to copy into",
        ("SoftwarePipeline",),
        pipelines.no_pipelines,
    ),
    Rule(
        "copies ahead",
        "the body is no sequence of copies into shared memory that can run ahead, and of what uses them",
        ("SoftwarePipeline",),
        pipelines.no_pipeline,
        by_row=True,
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
)
"""In the order in which they are asked."""
