"""Mutants made by three TVM primitives that compile and are silently wrong.

They are no actions of any vocabulary for that reason, and earn their keep here.
"""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import _ffi_api as ffi
from tvm.tirx import FloorDiv, IndexMap, Var

from tirgym.harness.mutants.rewrite import is_float, main, sites

__all__ = ["layout_not_injective", "unsafe_dtype", "wrong_regions"]


def _intermediate(mod: Any) -> tuple[Schedule, Any, Any] | None:
    """A schedule, the block that writes the last float intermediate, and that buffer; or None."""
    func = main(mod)
    for site in reversed(sites(func)):
        buffer = site.store.buffer
        if not any(buffer.same_as(p) for p in func.params) and is_float(buffer):
            schedule = Schedule(mod, debug_mask="none", error_render_level="none")
            block = schedule.get_sblock(site.block.name_hint, "main")
            return schedule, block, buffer
    return None


def unsafe_dtype(mod: Any) -> Any | None:
    """An intermediate buffer is held in float16 (`unsafe_set_dtype`)."""
    found = _intermediate(mod)
    if found is None:
        return None
    schedule, block, _ = found
    schedule.unsafe_set_dtype(block, 0, "float16")
    return schedule.mod


def layout_not_injective(mod: Any) -> Any | None:
    """Two rows of an intermediate share one place (`transform_layout`, not checked)."""
    found = _intermediate(mod)
    if found is None:
        return None
    schedule, block, buffer = found
    extents = [int(s) for s in buffer.shape]
    axis = next((i for i, n in enumerate(extents) if n > 1), None)
    if axis is None:
        return None
    names = [f"i{d}" for d in range(len(extents))]
    axes = [Var(name, "int32") for name in names]
    halved = [FloorDiv(v, 2) if d == axis else v for d, v in enumerate(axes)]
    index_map = IndexMap(axes, halved, None)
    schedule.transform_layout(block, ("write", 0), index_map, assume_injective_transform=True)
    return schedule.mod


def wrong_regions(mod: Any) -> Any | None:
    """A block is declared to read one column of an intermediate, and gets no more computed.

    `annotate_buffer_access` on the only reader of an intermediate, then `compute_at` of the writer
    at the reader's outermost loop: rows of one element are computed and whole rows are read.
    """
    func = main(mod)
    blocks = {site.block.name_hint: site.block for site in sites(func)}
    for writer, block in reversed(blocks.items()):
        buffer = block.writes[0].source
        readers = [n for n, b in blocks.items() if _read_index(b, buffer) is not None]
        if any(buffer.same_as(p) for p in func.params) or len(readers) != 1:
            continue
        schedule = Schedule(mod, debug_mask="none", error_render_level="none")
        _declare_first_column(schedule, readers[0], blocks[readers[0]], buffer)
        loops = schedule.get_loops(schedule.get_sblock(readers[0], "main"))
        try:
            schedule.compute_at(schedule.get_sblock(writer, "main"), loops[0])
        except ScheduleError:
            continue
        return schedule.mod
    return None


def _read_index(block: Any, buffer: Any) -> int | None:
    """Which read region of `block` is of `buffer`; None if it reads it not, or writes it too."""
    if block.writes[0].source.same_as(buffer):
        return None
    return next((i for i, r in enumerate(block.reads) if r.source.same_as(buffer)), None)


def _declare_first_column(schedule: Schedule, name: str, block: Any, buffer: Any) -> None:
    index = _read_index(block, buffer)
    region = block.reads[index].region
    edges = [edge for r in region[:-1] for edge in (r.min, r.min + r.extent)]
    index_map = IndexMap([iv.var for iv in block.iter_vars], [*edges, 0, 1], None)
    # Straight to the compiler: the Python method wants exactly one range per iterator.
    ffi.ScheduleAnnotateBufferAccess(
        schedule, schedule.get_sblock(name, "main"), index, 0, index_map
    )
