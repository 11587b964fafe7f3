"""Which mutants the gate must kill on which kernel: one literal row for each kernel of core-v0."""

from __future__ import annotations

from collections.abc import Mapping

from tirgym.errors import UnknownNameError

__all__ = ["COLUMNS", "NOTHING_TO_BREAK", "SAME_MEANING", "TABLE", "kinds_of", "skips_of"]

COLUMNS = (
    "store_deleted",
    "stale_output",
    "constant_output",
    "reduction_halved",
    "loop_short",
    "loop_long",
    "init_dropped",
    "row_skipped",
    "last_element_unwritten",
    "transposed_write",
    "one_element_wrong",
    "input_modified",
    "operator_changed",
    "operands_swapped",
    "constant_changed",
    "epilogue_skipped",
    "accumulate_float16",
    "inputs_float16",
    "read_offset",
    "edge_read",
    "index_off_by_one",
    "unsafe_dtype",
    "layout_not_injective",
    "wrong_regions",
)
"""Kinds of mutation, in the order of the rows' characters."""

NOTHING_TO_BREAK: Mapping[str, str] = {
    "r": "no reduction",
    "o": "no data operator, or none that is not commutative",
    "c": "no floating-point constant that matters",
    "e": "no epilogue: the output is written by a reduction, or copied",
    "f": "no floating-point accumulation or input",
    "i": "no floating-point intermediate",
    "d": "the output has one dimension",
    "g": "no index is data",
}
"""Reason → why the mutator answers None."""

SAME_MEANING: Mapping[str, str] = {
    "p": "the shift only permutes what is reduced, so that the result is the same up to rounding",
    "u": "the extra element comes from past the end of an intermediate on the stack; it is "
    "undefined, and the compiler drops its store",
}
"""Reason → why the mutator's program still computes the same."""

TABLE: Mapping[str, str] = {
    "add": "xxxrxx rxxxxx xocxrx xxgiii",
    "relu": "xxxrxx rxxxxx xoxxrx xxgiii",
    "gelu": "xxxrxx rxxxxx xxxxrx xxgxxx",
    "silu": "xxxrxx rxxxxx xxxxrx xxgxxx",
    "bias_gelu": "xxxrxx rxxxxx xxxxrx xxgxxx",
    "scale_shift": "xxxrxx rxxxxx xocxrx xxgxxx",
    "row_sum": "xxxxxx xxxdxx xoxexx pxgiii",
    "row_max": "xxxxxx xxxdxx xocexx pxgiii",
    "row_mean": "xxxxxu xxxdxx xxxxxx pxgxxx",
    "row_variance": "xxxxxu xxxdxx xxxxxx pxgxxx",
    "row_l2norm": "xxxxxu xxxdxx xoxxxx xxgxxx",
    "argmax": "xxxxxx xxxdxx xxcexx xxxiii",
    "layernorm": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "rmsnorm": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "batchnorm_inference": "xxxrxx rxxxxx xxcxrx xxgxxx",
    "matmul": "xxxxxx xxxxxx xoxexx xxgiii",
    "matmul_tn": "xxxxxx xxxxxx xoxexx xxgiii",
    "matmul_nt": "xxxxxx xxxxxx xoxexx xxgiii",
    "matvec": "xxxxxx xxxdxx xoxexx xxgiii",
    "skinny_matmul": "xxxxxu xxxxxx xoxxxx xxgxxx",
    "matmul_bias_gelu": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "conv1d": "xxxxxx xxxxxx xoxexx xxgiii",
    "conv2d": "xxxxxx xxxxxx xoxexx xxgiii",
    "conv2d_strided": "xxxxxx xxxxxx xoxexx xxgiii",
    "conv2d_padded": "xxxxxx xxxxxx xoxexx xxgxxx",
    "transpose": "xxxrxx rxxxxx oocerx xxgiii",
    "permute": "xxxrxx rxxxxx oocerx xxgiii",
    "pad": "xxxrxx rxxxxx ooxxrx xxgiii",
    "concat": "xxxrxx rxxxxx oocxrx xxgiii",
    "gather": "xxxrxx rxxxxx oocerx xxxiii",
    "stencil2d": "xxxrxx rxxxxx xoxxrx xxgxxx",
    "blur": "xxxrxx rxxxxx xoxxrx xxgxxx",
    "softmax": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "log_softmax": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "batch_matmul": "xxxxxx xxxxxx xoxexx xxgiii",
    "max_pool2d": "xxxxxx xxxxxx xocexx xxgiii",
    "avg_pool2d": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "attention": "xxxxxx xxxxxx xxxexx xxgxxx",
    "depthwise_conv2d": "xxxxxx xxxxxx xoxexx xxgiii",
    "mlp": "xxxxxx xxxxxx xxxxxx xxgxxx",
    "swiglu": "xxxxxx xxxxxx xxxexx xxgxxx",
    "atax": "xxxxxx xxxdxx xoxexx xxgxxx",
    "bicg": "xxxxxx xxxdxx xoxexx xxgiii",
    "mvt": "xxxxxu xxxdxx xoxxxx xxgxxx",
    "gemver": "xxxxxu xxxdxx xoxxxx xxgxxx",
    "syrk": "xxxxxx xxxxxx xoxxxx xxgxxx",
    "2mm": "xxxxxx xxxxxx xoxxxx xxgxxx",
    "int8_gemm": "xxxxxx xxxxxx xoceff xxgiii",
    "cumsum": "xxxxxx xxxxxx xxxxxx xxgxxx",
}
"""Kernel → one character for each kind: `x` must be killed, else the reason for which it is left
out."""


def kinds_of(kernel: str) -> tuple[str, ...]:
    """Kinds of mutation that the gate must kill on `kernel`; raises UnknownNameError."""
    return tuple(k for k, mark in zip(COLUMNS, _row(kernel), strict=True) if mark == "x")


def skips_of(kernel: str) -> dict[str, str]:
    """Kind → reason for the kinds that are left out on `kernel`; raises UnknownNameError."""
    reasons = {**NOTHING_TO_BREAK, **SAME_MEANING}
    marks = zip(COLUMNS, _row(kernel), strict=True)
    return {kind: reasons[mark] for kind, mark in marks if mark != "x"}


def _row(kernel: str) -> str:
    if kernel not in TABLE:
        raise UnknownNameError("kernel with mutants", kernel, sorted(TABLE))
    return TABLE[kernel].replace(" ", "")
