"""`Vocabulary`: the fixed, ordered action table. The index of a transform is its action."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import NamedTuple

from tirgym.errors import InvalidValueError
from tirgym.harness.transforms.base import SlotLimits, Transform

__all__ = ["Row", "Vocabulary"]


class Row(NamedTuple):
    """Actions that differ only in the node they act on."""

    prototype: Transform
    """one of them; its node means nothing"""
    axis: str
    """field that holds the node: "loop", "block", or "" """
    block: int
    """block that all of them name besides the node, -1 if none"""
    actions: dict[int, int]
    """action by node: loop, block, or 0"""


def _row(prototype: Transform, actions: dict[int, int]) -> Row:
    axis = prototype.node_field()
    return Row(prototype, axis, getattr(prototype, "block", -1) if axis == "loop" else -1, actions)


class Vocabulary(Sequence[Transform]):
    """An ordered table of transforms; a function of (backend, transform names, limits) alone."""

    def __init__(self, kinds: Sequence[type[Transform]], limits: SlotLimits | None = None) -> None:
        self.kinds = tuple(kinds)
        self.limits = limits or SlotLimits()
        self._table: list[Transform] = []
        self.spans: dict[type[Transform], tuple[int, int]] = {}
        for kind in self.kinds:
            start = len(self._table)
            self._table.extend(kind.slots(self.limits))
            self.spans[kind] = (start, len(self._table))
        self._index = {transform: i for i, transform in enumerate(self._table)}

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table as rows of actions that differ only in the node they act on."""
        rows: dict[tuple[object, ...], dict[int, int]] = {}
        first: dict[tuple[object, ...], Transform] = {}
        for action, transform in enumerate(self._table):
            axis = transform.node_field()
            others = tuple(getattr(transform, f.name) for f in fields(transform) if f.name != axis)  # type: ignore[arg-type]
            key = (type(transform), *others)
            first.setdefault(key, transform)
            rows.setdefault(key, {})[getattr(transform, axis) if axis else 0] = action
        return tuple(_row(first[key], actions) for key, actions in rows.items())

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._table[index]

    def __iter__(self) -> Iterator[Transform]:
        return iter(self._table)

    def index(self, transform: Transform, *_: int) -> int:
        """The action of `transform`; raises InvalidValueError if it is not in the table."""
        try:
            return self._index[transform]
        except KeyError:
            accepted = f"one of the {len(self)} transforms of the vocabulary"
            raise InvalidValueError("transform", str(transform), accepted) from None

    def __contains__(self, transform: object) -> bool:
        return transform in self._index

    @cached_property
    def digest(self) -> str:
        """Hash of the whole table; stands in traces and checkpoints."""
        text = "\n".join(str(transform) for transform in self._table)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
