"""`Configure`: set an option of the compiler for this program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Configure"]


@dataclass(frozen=True, slots=True)
class Configure(ScheduleTransform):
    """Set one of `tirgym.harness.backends.llvm_options.OPTIONS`.

        with T.sblock("root"):       →     with T.sblock("root"):
            …                                  T.sblock_attr({"tirgym.options": "llvm.opt_level=2"})
                                               …

    Loops and blocks stay as they are; another program is built of them. Refused where the option has
    that value already.
    """

    option: str
    value: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Configure]:
        """Every value of every option."""
        from tirgym.harness.backends.llvm_options import OPTIONS

        for option in OPTIONS.values():
            for value in option.values:
                yield cls(option.name, value)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        from tirgym.harness.backends.llvm_options import (
            ANNOTATION,
            OPTIONS,
            options_of,
            options_text,
        )

        option = OPTIONS.get(self.option)
        if option is None or self.value not in option.values:
            raise ValueError(f"no option of the compiler: {self}")
        options = options_of(schedule.mod)
        if options.get(self.option, option.default) == self.value:
            raise ValueError(f"{self.option} is {self.value} already")
        before = options_text(options)
        after = options_text({**options, self.option: self.value})
        root = ffi.ScheduleGetSBlock(schedule, "root", "main")
        if before:
            ffi.ScheduleUnannotate(schedule, root, ANNOTATION)
        if after:
            ffi.ScheduleAnnotate(schedule, root, ANNOTATION, after)
        at.made(root)

    @property
    def node(self) -> NodeRef:
        """The whole program."""
        return NodeRef("program", 0)
