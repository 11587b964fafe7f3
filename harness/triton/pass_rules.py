"""Which passes of a pipeline an agent may touch, and how: literal tables, and the rules they stand for.

The executor judges what TTGIR means. What it cannot see, because it shows only below TTGIR, no agent
may change: the conversion to TTGIR that everything stands on, passes that check or lower what the
levels below cannot take, and the tail, in which fences are inserted behind everything that moves data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain

from tirgym.harness.triton.gpus import GPUS, Gpu
from tirgym.harness.triton.pipeline import PassCall, pass_registry, stock_pipeline

__all__ = [
    "ARGUMENTS",
    "FIRST",
    "INSERTABLE",
    "LEVELS",
    "MANDATORY",
    "MAX_PASSES",
    "TAIL",
    "addressed",
    "anchors",
    "insertable",
    "installed_passes",
    "max_num_stages",
    "stock_runs",
    "tail_start",
]

LEVELS = ("ttir", "ttgir")
"""Levels whose passes are actions, in the order in which they run."""

MAX_PASSES: Mapping[str, int] = {"ttir": 16, "ttgir": 64}
"""Length of a pipeline at most; the stock ones have up to 9 and 48."""

FIRST = "ttir.convert_to_ttgpuir"
"""With it "ttgir" begins; nothing runs there before it."""

TAIL: Mapping[str, str] = {"nvidia": "nvidia.fence_insertion", "amd": "amd.fold_true_cmpi"}
"""Vendor → the pass with which the tail of "ttgir" begins. From there on nothing is dropped, moved,
repeated or inserted: what ran before is what the fences were inserted for."""

MANDATORY = frozenset(
    {
        FIRST,
        "nvidia.assign_cga_layouts",
        "nvidia.check_matmul_two_cta",
        "nvidia.remove_tmem_tokens",
        "nvidia.tma_lowering",
        "nvidia.lower_clc",
        "amd.convert_to_tensor_ops",
    }
)
"""Passes before the tail that stay where they are: they make TTGIR, check it, or lower operations that
the levels below do not know."""

INSERTABLE: Mapping[str, tuple[PassCall, ...]] = {
    "ttir": (
        PassCall("common.canonicalizer"),
        PassCall("common.cse"),
        PassCall("common.licm"),
        PassCall("common.sccp"),
        PassCall("ttir.loop_aware_cse"),
        PassCall("ttir.triton_licm"),
        PassCall("ttir.combine"),
        PassCall("ttir.reorder_broadcast"),
        PassCall("ttir.loop_unroll"),
    ),
    "ttgir": (
        PassCall("common.canonicalizer"),
        PassCall("common.cse"),
        PassCall("common.licm"),
        PassCall("common.sccp"),
        PassCall("ttir.loop_aware_cse"),
        PassCall("ttir.triton_licm"),
        PassCall("ttgpuir.coalesce"),
        PassCall("ttgpuir.coalesce_async_copy"),
        PassCall("ttgpuir.combine_tensor_select_and_if"),
        PassCall("ttgpuir.optimize_accumulator_init"),
        PassCall("ttgpuir.optimize_dot_operands", (True,)),
        PassCall("ttgpuir.optimize_thread_locality"),
        PassCall("ttgpuir.prefetch"),
        PassCall("ttgpuir.reduce_data_duplication"),
        PassCall("ttgpuir.remove_layout_conversions"),
        PassCall("ttgpuir.reorder_instructions"),
        PassCall("amd.hoist_layout_conversions"),
        PassCall("amd.in_thread_transpose"),
        PassCall("amd.move_up_prologue_loads"),
        PassCall("amd.optimize_epilogue"),
        PassCall("amd.sink_layout_conversions"),
    ),
}
"""Level → passes that may be inserted, with the arguments that they get."""

_STAGES = (1, 2, 3, 4, 5)
_SWITCH = (0, 1)

ARGUMENTS: Mapping[tuple[str, int], tuple[int, ...]] = {
    ("hopper.hopper_warpspec", 0): _STAGES,
    ("ttgpuir.assign_latencies", 0): _STAGES,
    ("ttgpuir.f32_dot_tc", 0): _SWITCH,
    ("ttgpuir.hoist_tmem_alloc", 0): _SWITCH,
    ("ttgpuir.optimize_dot_operands", 0): _SWITCH,
    ("ttgpuir.pipeline", 0): _STAGES,
    ("ttgpuir.warp_specialize", 0): _STAGES,
    ("amd.accelerate_matmul", 1): (0, 16, 32),
    ("amd.accelerate_matmul", 2): (1, 2),
    ("amd.block_pingpong", 0): _STAGES,
    ("amd.pipeline", 0): _SWITCH,
    ("amd.pipeline", 1): _SWITCH,
    ("amd.schedule_loops", 0): _STAGES,
}
"""(pass, place of an argument) → values that an agent may set; 0 and 1 stand for False and True. All
are of "ttgir". Arguments that name the GPU or ask for dumps are not in it."""


def max_num_stages(calls: Iterable[PassCall]) -> int:
    """Most stages that `calls` ask for in an argument that an agent may set; 0 for none."""
    asked = (
        value
        for call in calls
        for place, value in enumerate(call.arguments)
        if ARGUMENTS.get((call.name, place)) is _STAGES and isinstance(value, int)
    )
    return max(asked, default=0)


def tail_start(names: tuple[str, ...], level: str, gpu: Gpu) -> int:
    """Place in `names`, those of the passes of a level, where the tail begins; their number for a
    level without a tail."""
    first = TAIL[gpu.vendor]
    return names.index(first) if level == "ttgir" and first in names else len(names)


@cache
def stock_runs(level: str) -> Mapping[str, int]:
    """Pass → how often it runs before the tail in the stock pipeline of one GPU at most, over all
    GPUs, by first appearance."""
    found: dict[str, int] = {}
    for gpu in GPUS.values():
        names = tuple(call.name for call in getattr(stock_pipeline(gpu, 4, 3), level))
        names = names[: tail_start(names, level, gpu)]
        for name in dict.fromkeys(names):
            found[name] = max(found.get(name, 0), names.count(name))
    return found


@cache
def installed_passes() -> frozenset[str]:
    """Passes that the installed Triton has, for any vendor."""
    return frozenset(chain.from_iterable(pass_registry(vendor) for vendor in ("nvidia", "amd")))


@cache
def insertable(level: str) -> Mapping[str, PassCall]:
    """Those of `INSERTABLE` that the installed Triton has, by name."""
    return {call.name: call for call in INSERTABLE[level] if call.name in installed_passes()}


@cache
def addressed(level: str) -> tuple[tuple[str, int], ...]:
    """(pass, which of its runs) that the action table names, mandatory ones left out: each run of the
    stock pipelines, and one more of each pass and of each that can be inserted."""
    runs = dict(stock_runs(level))
    for name in insertable(level):
        runs.setdefault(name, 1)
    return tuple(
        (name, nth)
        for name, count in runs.items()
        if name not in MANDATORY
        for nth in range(count + 1)
    )


@cache
def anchors(level: str) -> tuple[str, ...]:
    """Passes before which one may be inserted; "" is the end, before the tail."""
    return (*(name for name in stock_runs(level) if name != FIRST), "")
