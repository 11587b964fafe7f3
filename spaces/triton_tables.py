"""Node and edge types of the graphs of Triton IR, with the names of their features."""

from __future__ import annotations

from enum import IntEnum

from tirgym.spaces.graph import FEATURES, GraphTables, NodeType

__all__ = ["OPERATIONS", "TRITON", "TritonEdge", "TritonNode"]


class TritonNode(IntEnum):
    """What a node stands for; nodes are numbered in this order."""

    HARDWARE = 0
    """the target, and the root of the nesting: exactly one"""
    REGION = 1
    """body of a function, a loop, a branch, or a reduction"""
    OPERATION = 2
    VALUE = 3
    """result of an operation, or argument of a region"""
    TYPE = 4
    """each type that occurs, once"""
    LAYOUT = 5
    """each layout that occurs, once; none in TTIR"""


class TritonEdge(IntEnum):
    """What an edge says."""

    NESTING = 0
    """hardware → function body → operation → its regions → …"""
    ORDER = 1
    """an operation → the next one of the same block"""
    OPERAND = 2
    """value → operation"""
    RESULT = 3
    """operation → value"""
    ARGUMENT = 4
    """region → its argument"""
    CARRIED = 5
    """value before a loop, or yielded at its end → the argument that carries it, or the result"""
    TYPED = 6
    """value → its type"""
    LAID_OUT = 7
    """type → its layout; layout → the layout that it is derived from"""


OPERATIONS: dict[str, tuple[str, ...]] = {
    "constant": ("arith.constant", "ub.poison", "tt.make_range"),
    "program": ("tt.get_program_id", "tt.get_num_programs"),
    "integer": ("arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.remsi",
                "arith.divui", "arith.remui", "arith.maxsi", "arith.minsi", "arith.maxui",
                "arith.minui", "arith.andi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi",
                "arith.shrui", "tt.addptr", "tt.mulhiui"),
    "float": ("arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.maxnumf",
              "arith.minnumf", "arith.maximumf", "arith.minimumf", "tt.clampf", "math.absf",
              "math.fma"),
    "function": ("arith.divf", "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt",
                 "math.rsqrt", "math.erf", "math.sin", "math.cos", "math.tanh",
                 "tt.precise_sqrt", "tt.precise_divf", "tt.extern_elementwise"),
    "compare": ("arith.cmpi", "arith.cmpf", "arith.select"),
    "cast": ("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci",
             "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "tt.fp_to_fp",
             "tt.bitcast", "arith.bitcast", "arith.index_cast"),
    "shape": ("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape",
              "tt.trans", "tt.join", "tt.split", "tt.cat", "tt.gather"),
    "convert_layout": ("ttg.convert_layout",),
    "load": ("tt.load", "tt.descriptor_load", "ttg.local_load"),
    "store": ("tt.store", "tt.descriptor_store", "ttg.local_store"),
    "atomic": ("tt.atomic_rmw", "tt.atomic_cas"),
    "dot": ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma"),
    "reduce": ("tt.reduce", "tt.scan", "tt.histogram"),
    "shared": ("ttg.local_alloc", "ttg.local_dealloc", "ttg.memdesc_index",
               "ttg.memdesc_subslice", "ttg.memdesc_trans"),
    "copy": ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local"),
    "wait": ("ttg.async_commit_group", "ttg.async_wait", "ttng.warp_group_dot_wait",
             "ttng.wait_barrier", "ttng.fence_async_shared", "gpu.barrier"),
    "control": ("scf.for", "scf.if", "scf.while", "scf.yield", "scf.condition", "tt.call",
                "tt.return", "tt.reduce.return", "tt.scan.return", "cf.br", "cf.cond_br"),
}  # fmt: skip
"""Kind of operation → its operations; all others are "other"."""

TRITON_FEATURES: dict[TritonNode, tuple[str, ...]] = {
    TritonNode.HARDWARE: (*FEATURES[NodeType.HARDWARE], "log_warps", "ttgir"),
    TritonNode.REGION: (
        "function", "loop", "branch", "reduction", "depth", "log_operations", "arguments",
    ),
    TritonNode.OPERATION: (
        *OPERATIONS, "other", "depth", "operands", "results", "log_elements", "log_bytes",
        "masked", "asynchronous", "pending", "known_trips", "log_trips",
    ),
    TritonNode.VALUE: (
        "argument", "carried", "constant", "log_magnitude", "negative", "uses", "divisible",
    ),
    TritonNode.TYPE: (
        "integer", "float", "pointer", "token", "shared", "log_elements", "log_bytes", "rank",
        "log_last_extent", "item_bits",
    ),
    TritonNode.LAYOUT: (
        "blocked", "mma", "dot_operand", "slice", "linear", "shared", "nvmma_shared", "other",
        "log_registers", "log_registers_last", "log_lanes_last", "log_warps_last",
        "row_major", "vector", "per_phase", "phases", "operand", "width", "version",
    ),
}  # fmt: skip
"""Names of the features of each node type; `log_x` is log2(1 + x) / 16, counts are divided by 8."""

TRITON = GraphTables.of(
    f"{__name__}:TRITON",
    TritonNode,
    TritonEdge,
    TRITON_FEATURES,
    ("position", "mask", "other", "token", "accumulator"),
    room=((1, 8, 320, 352, 80, 24), 2048),
)
"""Edge features are those of operands: position / 8, and what the operand is for. The room holds the
stock TTGIR of every kernel of triton-v0 for sm_80, sm_90 and gfx942, at every number of stages."""
