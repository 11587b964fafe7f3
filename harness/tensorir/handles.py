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
        self._blocks: dict[int, Any] = {}
        self._loops: dict[int, Any] = {}
        self._made: list[Any] = []

    def block(self, index: int) -> Any:
        """`SBlockRV` of block `index`."""
        made = self._blocks.get(index)
        if made is None:
            self._find_blocks(index)
            made = self._blocks[index]
        return made

    def _find_blocks(self, index: int) -> None:
        """Find one block by its name, which costs half as much as all; or all where names repeat."""
        schedule, name = self.schedule, self.nest.blocks[index].facts.name
        if [block.facts.name for block in self.nest.blocks].count(name) == 1 and not self._blocks:
            try:
                self._blocks[index] = ffi.ScheduleGetSBlock(schedule, name, "main")
            except (RuntimeError, ValueError):
                pass  # a block inside another one has the same name
            else:
                return
        root = ffi.ScheduleGetSBlock(schedule, "root", "main")
        found = items(ffi.ScheduleGetChildBlocks(schedule, root))
        self._made += [root, *self._blocks.values()]
        self._blocks = dict(enumerate(found))

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
        for made in (*self._blocks.values(), *self._loops.values(), *self._made):
            ffi.ScheduleRemoveRV(self.schedule, made)
        self._blocks, self._loops, self._made = {}, {}, []
