"""`Handles`: TVM's random variables for the loops and blocks of one schedule, made on demand."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.tensorir.nest import LoopNest, items

__all__ = ["Handles", "new_schedule"]


def new_schedule(mod: Any) -> Schedule:
    """A schedule of `mod` whose errors are not rendered, which would take most of a trial."""
    return Schedule(mod, debug_mask="none", error_render_level="none")


class Handles:
    """Loops and blocks of `schedule` by the pre-order numbers of `nest`, which shows its IR.

    TVM addresses nodes by random variables. They are made lazily, on the one schedule that is
    about to be changed, so that the schedule it was copied from stays untouched.
    """

    __slots__ = ("_blocks", "_loops", "_made", "nest", "schedule")

    def __init__(self, schedule: Schedule, nest: LoopNest) -> None:
        self.schedule, self.nest = schedule, nest
        self._blocks: Any = None
        self._loops: dict[int, Any] = {}
        self._made: list[Any] = []

    def block(self, index: int) -> Any:
        """`SBlockRV` of block `index`."""
        if self._blocks is None:
            root = ffi.ScheduleGetSBlock(self.schedule, "root", "main")
            self._blocks = ffi.ScheduleGetChildBlocks(self.schedule, root)
            ffi.ScheduleRemoveRV(self.schedule, root)
            self._blocks = items(self._blocks)
        return self._blocks[index]

    def loop(self, index: int) -> Any:
        """`LoopRV` of loop `index`."""
        made = self._loops.get(index)
        if made is None:
            block = self.nest.first_block(index)
            loops = items(ffi.ScheduleGetLoops(self.schedule, self.block(block)))
            self._loops.update(zip(self.nest.blocks[block].chain, loops, strict=True))
            made = self._loops[index]
        return made

    def made(self, *variables: Any) -> None:
        """Take charge of random variables that a primitive returned."""
        self._made.extend(variables)

    def release(self) -> None:
        """Drop every random variable: each costs time in every later copy."""
        for made in (*(self._blocks or ()), *self._loops.values(), *self._made):
            ffi.ScheduleRemoveRV(self.schedule, made)
        self._blocks, self._loops, self._made = None, {}, []
