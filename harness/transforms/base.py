"""`Transform`: one IR rewrite as a frozen value with a text form that parses back."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["NodeRef", "ScheduleTransform", "SlotLimits", "Transform", "parse_call"]


_LONGEST = 4096
"""Characters of one text form; the longest of the action tables has 122."""


class NodeRef(NamedTuple):
    """The node of the program graph that a transform acts on."""

    kind: str
    """"loop", "block" or "program" """
    index: int  # type: ignore[assignment]
    """pre-order index among the loops or blocks of the whole function"""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How many nodes the fixed action table can address, and which parameters it offers."""

    max_loops: int = 48
    max_blocks: int = 12
    max_reads: int = 3
    """read regions of a block that can be cached"""
    factors: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    """tile sizes"""
    scopes: tuple[str, ...] = ("local",)
    """memory that intermediate buffers may be put in"""
    intrinsics: tuple[str, ...] = ("dot_16x4_vnni", "transpose_16x16", "transpose_8x8")
    """of `Tensorize`"""


class Transform(ABC):
    """Base of all transforms; subclasses are frozen dataclasses of ints and strings.

    A program applies the transforms of its own dialect and refuses all others.
    """

    name: ClassVar[str]
    """The class name, which is also the head of the text form; set automatically."""

    dialect: ClassVar[str]
    """IR dialect of the programs that it applies to"""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__name__

    @classmethod
    @cache
    def node_field(cls) -> str:
        """The field that names the node within a row of transforms: "loop", else "block", else ""."""
        names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return "loop" if "loop" in names else "block" if "block" in names else ""

    @classmethod
    @abstractmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Self]:
        """Every instance that the action table holds, in table order, for any program."""

    @property
    @abstractmethod
    def node(self) -> NodeRef:
        """The node that the transform acts on."""

    def __str__(self) -> str:
        arguments = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({arguments})"


class ScheduleTransform(Transform):
    """Base of all TensorIR transforms.

    Loops are addressed by their pre-order index in the whole function, blocks by their index in
    `Schedule.get_child_blocks(root)` (the same pre-order).
    """

    dialect: ClassVar[str] = "tensorir"

    rebuilds: ClassVar[bool] = False
    """The compiler leaves the schedule unfit for copies, so that it is made anew from the IR."""

    @abstractmethod
    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`; `at` gives the handles of its loops and blocks, and its nest.

        Only ever called on a private copy, with loops and blocks that exist. Random variables that
        primitives return go to `at.made`. Raises whatever TVM raises when the compiler refuses.
        """


def parse_call(text: str) -> tuple[str, dict[str, int | str]]:
    """Head and keyword arguments of `Name(key=1, other='x')`.

    Raises InvalidValueError unless `text` is one call with integer or string keyword arguments.
    """
    form = "NAME(KEY=VALUE, …) with integer or string values, such as Split(loop=2, factor=8)"
    if len(text) > _LONGEST:
        raise InvalidValueError(
            "transform", f"{text[:40]}…", f"at most {_LONGEST} characters: {form}"
        )
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        raise InvalidValueError("transform", text, form) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise InvalidValueError("transform", text, form)
    arguments: dict[str, int | str] = {}
    for keyword in call.keywords:
        value = _constant(keyword.value)
        if keyword.arg is None or value is None or keyword.arg in arguments:
            raise InvalidValueError("transform", text, form)
        arguments[keyword.arg] = value
    return call.func.id, arguments


def _constant(node: ast.expr) -> int | str | None:
    """The integer or string that `node` writes down, None for anything else."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(value, ast.Constant) or type(value.value) not in (int, str):
        return None
    if negative:
        return -value.value if isinstance(value.value, int) else None
    return value.value  # type: ignore[return-value]
