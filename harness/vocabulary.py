"""`Vocabulary`: the fixed, ordered action table. The index of a transform is its action."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import NamedTuple

from tirgym.errors import InvalidValueError
from tirgym.harness.transforms.base import SlotLimits, Transform

__all__ = ["Row", "RowGroup", "Vocabulary"]


class Row(NamedTuple):
    """Actions that differ only in the node they act on."""

    prototype: Transform
    """one of them; its node means nothing"""
    block: int
    """block that all of them name besides the node, -1 if none"""
    actions: dict[int, int]
    """action by node: loop, block, or 0"""


class RowGroup(NamedTuple):
    """The rows of one kind of transform."""

    name: str
    """class name"""
    node_field: str
    """field that holds the node: "loop", "block", or "" """
    rows: tuple[Row, ...]


class Vocabulary(Sequence[Transform]):
    """An ordered table of transforms of one dialect; a function of (backend, transform names, limits)
    alone."""

    def __init__(self, kinds: Sequence[type[Transform]], limits: SlotLimits | None = None) -> None:
        """`limits` are those of loops and blocks; other dialects have none of them."""
        self.kinds = tuple(kinds)
        dialects = sorted({kind.dialect for kind in self.kinds})
        if len(dialects) > 1:
            raise InvalidValueError("dialects of a vocabulary", ", ".join(dialects), "one of them")
        self.dialect = dialects[0] if dialects else ""
        self.limits = limits or SlotLimits()
        self._table: list[Transform] = []
        self.spans: dict[type[Transform], tuple[int, int]] = {}
        for kind in self.kinds:
            start = len(self._table)
            self._table.extend(kind.slots(self.limits))
            self.spans[kind] = (start, len(self._table))
        self._index = {transform: i for i, transform in enumerate(self._table)}

    @cached_property
    def groups(self) -> tuple[RowGroup, ...]:
        """The table by kind, each as rows of actions that differ only in the node they act on."""
        found = []
        for kind, (start, end) in self.spans.items():
            node = kind.node_field()
            rows: dict[tuple[object, ...], Row] = {}
            for action in range(start, end):
                transform = self._table[action]
                values = {f.name: getattr(transform, f.name) for f in fields(kind)}  # type: ignore[arg-type]
                index = values.pop(node, 0)
                block = values.get("block", -1) if node == "loop" else -1
                row = rows.setdefault(tuple(values.values()), Row(transform, block, {}))
                row.actions[index] = action
            found.append(RowGroup(kind.name, node, tuple(rows.values())))
        return tuple(found)

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

    def find(self, transform: Transform) -> int | None:
        """The action of `transform`, None if it is not in the table."""
        return self._index.get(transform)

    def __contains__(self, transform: object) -> bool:
        return transform in self._index

    @cached_property
    def digest(self) -> str:
        """Hash of the whole table; stands in traces and checkpoints."""
        text = "\n".join(str(transform) for transform in self._table)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
