"""How masks are made: a plan for each kind of transform, and for each vocabulary.

A row is the transforms of one kind that differ only in the node they act on; rules and shortcuts
answer for a whole row at once, as bits. Where the answer depends on one part of the nest alone (see
`NEST_KINDS`), it is found out once for that part, whatever stands around it in later states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.macros.base import Macro
from tirgym.harness.tensorir import rule_limits as limits
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.loop_facts import PartFacts, bits
from tirgym.harness.tensorir.rule import Refusal
from tirgym.harness.tensorir.rule_storage import crowded_padding, meaningful, parameters
from tirgym.harness.tensorir.rule_threads import strange_lanes
from tirgym.harness.tensorir.rules import rules_for
from tirgym.harness.tensorir.shortcuts import (
    MOVERS,
    SHORTCUTS,
    Verdict,
    always,
    shared_sums,
    unfactored_sums,
)
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Row, Vocabulary

__all__ = [
    "RowPlan",
    "Scheme",
    "asked_nodes",
    "content_rows",
    "decide",
    "nest_rows",
    "plan_of",
    "scheme_of",
]

MIN_WIDTH = 128
"""Bits of a row in a table at least: more than programs have loops."""

NEST_KINDS: Mapping[str, Callable[[Facts], int] | None] = {
    "Split": None,
    "Reorder": None,
    "Fuse": None,
    "Vectorize": None,
    "Unroll": None,
    "UnrollPragma": None,
    "DecomposeReduction": shared_sums,
    "RFactor": unfactored_sums,
    "PadEinsum": crowded_padding,
    "VectorMath": None,
}
"""Kinds whose rules and shortcut look at one part of the nest alone, with the nodes that the rest of
the program forbids. Caps on the size of the program are asked besides."""

CONTENT_KINDS = frozenset({"StorageAlign", "TransformLayout", "StorePrecision"})
"""Kinds whose rules and shortcut look at what blocks hold, read and write alone, not at loops."""

_CAPS = (limits.too_many_loops, limits.too_many_blocks, strange_lanes)
"""Rules that look at the whole program or its target; the rest of a row is decided by part."""
_ELSEWHERE = (limits.missing, parameters)
"""Rules that rows answer by being there."""


class RowPlan(NamedTuple):
    """How one kind of transform is decided, with everything looked up beforehand."""

    kind: type[Transform]
    node_field: str
    prototype: Any
    group_refusals: tuple[Refusal, ...]
    """rules that look at the node alone"""
    sure: bool
    """the compiler accepts whatever no rule refuses"""
    shortcut: Callable[[Facts, Any, int], Verdict] | None
    row_refusals: tuple[Refusal, ...]
    """rules that look at other parameters too"""
    by_extent: bool
    """the compiler accepts whatever these rules do not refuse, which ask for the extent of a loop"""
    rows: tuple[tuple[int, Row], ...]
    """those whose parameters mean something, with their number in the table of the vocabulary"""
    movers: Callable[[Facts], int] | None
    """for rows that name a block besides the node: the blocks worth asking about"""


@lru_cache(maxsize=64)
def plan_of(kind: type[Transform]) -> RowPlan:
    """How transforms of `kind` are decided; without rows, and so without a prototype."""
    shortcut = SHORTCUTS.get(kind.name)
    sure = shortcut is always
    by_row = [r for r in rules_for(kind.name, by_row=True) if r.refused not in _ELSEWHERE]
    return RowPlan(
        kind,
        kind.node_field(),
        None,
        tuple(r.refused for r in rules_for(kind.name, by_row=False)),
        sure,
        None if sure else shortcut,
        tuple(r.refused for r in by_row),
        sure and bool(by_row) and all(r.by_extent for r in by_row),
        (),
        MOVERS.get(kind.name),
    )


class NestPlan(NamedTuple):
    """A plan of `NEST_KINDS`."""

    plan: RowPlan
    """without the caps"""
    caps: tuple[Refusal, ...]
    forbidden: Callable[[Facts], int] | None
    first: int
    """bit of its first row in the table"""
    every_node: int
    """all nodes of its rows in the table"""


_MAX_EXTENTS = 1 << 12


class _Extent(NamedTuple):
    """The facts of one loop, for rules that ask for its extent alone."""

    extents: tuple[int, ...]


class LatePlan(NamedTuple):
    """A plan whose answer depends on the whole state."""

    plan: RowPlan
    """without what follows"""
    content: tuple[Refusal, ...]
    """rules about the contents of blocks, for nodes that are blocks or rows that name one"""


class Scheme:
    """Everything about a vocabulary that its masks need.

    A table of rows is one large number: each row has a bit for each node, its first one at `width`
    times its number.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        groups = zip(vocabulary.spans, vocabulary.groups, strict=True)
        found = [(kind, group.rows) for kind, group in groups if not issubclass(kind, Macro)]
        nodes = [node for _, rows in found for row in rows for node in row.actions]
        self.width = max(MIN_WIDTH, -(-(max(nodes, default=0) + 1) // 8) * 8)
        self.rows = 0
        plans: list[RowPlan] = []
        for kind, members in found:
            rows = [row for row in members if meaningful(row.prototype)]
            if rows:
                numbered = tuple(enumerate(rows, self.rows))
                self.rows += len(rows)
                plans.append(plan_of(kind)._replace(prototype=rows[0].prototype, rows=numbered))
        self._ones = {p.kind: sum([1 << n * self.width for n, _ in p.rows]) for p in plans}
        self._by_extent: dict[tuple[type[Transform], int], int] = {}
        self.macros = len(found) < len(vocabulary.spans)
        self.plans = tuple(plans)
        by_part = [plan for plan in plans if _is_by_part(plan)]
        by_content = [plan for plan in plans if plan.kind.name in CONTENT_KINDS]
        late = [plan for plan in plans if plan not in by_part and plan not in by_content]
        self.nest_plans = tuple([self._nest_plan(plan) for plan in by_part])
        self.content_plans = tuple(by_content)
        self.late_plans = tuple([_late_plan(plan) for plan in late])
        self.place = self._places(vocabulary)
        """(len(vocabulary),): bit of each action in the table; the one after it where there is none"""

    def ones(self, plan: RowPlan) -> int:
        """A table with the first node of every row of a plan."""
        return self._ones[plan.kind]

    def legal_rows(self, plan: RowPlan, extent: int) -> int:
        """A table with the first node of those rows of a plan that are legal for a loop of `extent`."""
        key = (plan.kind, extent)
        found = self._by_extent.get(key)
        if found is None:
            if len(self._by_extent) >= _MAX_EXTENTS:
                self._by_extent.clear()
            loop: Any = _Extent((extent,))
            found = 0
            for number, row in plan.rows:
                if not any(refused(loop, row.prototype, 1) & 1 for refused in plan.row_refusals):
                    found |= 1 << number * self.width
            self._by_extent[key] = found
        return found

    def _places(self, vocabulary: Vocabulary) -> NDArray[np.intp]:
        place = np.full(len(vocabulary), self.rows * self.width, dtype=np.intp)
        for plan in self.plans:
            for number, row in plan.rows:
                for node, action in row.actions.items():
                    place[action] = number * self.width + node
        return place

    def _nest_plan(self, plan: RowPlan) -> NestPlan:
        first, count = plan.rows[0][0] * self.width, len(plan.rows)
        every = (1 << self.width * count) - 1 << first
        local = tuple([r for r in plan.group_refusals if r not in _CAPS])
        caps = tuple([r for r in plan.group_refusals if r in _CAPS])
        plan = plan._replace(group_refusals=local)
        return NestPlan(plan, caps, NEST_KINDS[plan.kind.name], first, every)


def _is_by_part(plan: RowPlan) -> bool:
    """Factors below 2 are judged by target, which parts do not know."""
    factors = [getattr(row.prototype, "factor", 2) for _, row in plan.rows]
    return plan.kind.name in NEST_KINDS and min(factors) >= 2


def _late_plan(plan: RowPlan) -> LatePlan:
    if plan.node_field == "loop" and plan.movers is None:
        return LatePlan(plan, ())
    content = {r.refused for r in rules_for(plan.kind.name) if r.by_content}
    rest = plan._replace(
        group_refusals=tuple([r for r in plan.group_refusals if r not in content]),
        row_refusals=tuple([r for r in plan.row_refusals if r not in content]),
    )
    return LatePlan(rest, tuple(content & {*plan.group_refusals, *plan.row_refusals}))


@lru_cache(maxsize=16)
def scheme_of(vocabulary: Vocabulary) -> Scheme:
    """The scheme of a vocabulary."""
    return Scheme(vocabulary)


def asked_nodes(facts: Any, plan: RowPlan) -> int:
    """The nodes that exist and that no rule refuses whatever the other parameters are."""
    node = plan.node_field
    asked: int = facts.all_loops if node == "loop" else facts.all_blocks if node == "block" else 1
    for refused in plan.group_refusals:
        if not asked:
            break
        asked &= ~refused(facts, plan.prototype, asked)
    return asked


def decide(facts: Any, plan: RowPlan, prototype: Transform, asked: int) -> tuple[int, int]:
    """The nodes among `asked` whose transform is legal, and those where it must be tried; the
    cheapest questions come first."""
    accepted = asked if plan.sure else 0
    if plan.shortcut is not None:
        accepted, impossible = plan.shortcut(facts, prototype, asked)
        asked &= ~impossible
    for refused in plan.row_refusals:
        if not asked:
            return 0, 0
        asked &= ~refused(facts, prototype, asked)
    return asked & accepted, asked & ~accepted


def nest_rows(facts: Facts, scheme: Scheme) -> tuple[int, int]:
    """Of the kinds in `NEST_KINDS`: the table of what is legal, and of what must be tried."""
    if facts.nest.size > scheme.width:  # rows of parts would run into each other
        return _rows(facts, scheme, [each.plan for each in scheme.nest_plans])
    legal = open_ = 0
    for part, loop, block in facts.parts:
        if part.scheme is not scheme:
            part.scheme, part.rows = scheme, _part_rows(part, scheme)
        over_loops, over_blocks, open_loops, open_blocks = part.rows
        legal |= over_loops << loop | over_blocks << block
        open_ |= open_loops << loop | open_blocks << block
    caps: dict[Refusal, int] = {cap: cap(facts, None, -1) for cap in _CAPS}
    for nest_plan in scheme.nest_plans:
        forbidden = 0 if nest_plan.forbidden is None else nest_plan.forbidden(facts)
        for cap in nest_plan.caps:
            forbidden |= caps[cap]
        if forbidden == limits.EVERYTHING:
            legal &= ~nest_plan.every_node
            open_ &= ~nest_plan.every_node
        elif forbidden:
            for number, _ in nest_plan.plan.rows:
                legal &= ~(forbidden << number * scheme.width)
                open_ &= ~(forbidden << number * scheme.width)
    return legal, open_


def _part_rows(facts: PartFacts, scheme: Scheme) -> tuple[int, int, int, int]:
    """Tables of one part: legal loops and blocks, then those that must be tried."""
    over_loops = [each.plan for each in scheme.nest_plans if each.plan.node_field == "loop"]
    over_blocks = [each.plan for each in scheme.nest_plans if each.plan.node_field != "loop"]
    loops, open_loops = _rows(facts, scheme, over_loops)
    blocks, open_blocks = _rows(facts, scheme, over_blocks)
    return loops, blocks, open_loops, open_blocks


class ContentRows(NamedTuple):
    """What the contents of the blocks of a program say about its mask; kept with its exchange."""

    legal: int
    """table of what is legal of the kinds in `CONTENT_KINDS`"""
    open: int
    """and of what must be tried"""
    late: tuple[tuple[tuple[int, int], ...], ...]
    """for each of the late plans those of its rows that are not refused as a whole, by their place
    in the plan, with the nodes"""


def content_rows(facts: Facts, scheme: Scheme) -> ContentRows:
    """Found out once for each exchange."""
    exchange = facts.exchange
    if exchange.scheme is not scheme:
        exchange.scheme = scheme
        exchange.rows = ContentRows(
            *_rows(facts, scheme, scheme.content_plans),
            tuple([_possible_rows(facts, plan) for plan in scheme.late_plans]),
        )
    return exchange.rows  # type: ignore[no-any-return]


def _possible_rows(facts: Facts, late: LatePlan) -> tuple[tuple[int, int], ...]:
    """The rows of `late` with the nodes that no rule about contents refuses."""
    found = []
    count = len(facts.blocks)
    for place, (_, row) in enumerate(late.plan.rows):
        if row.block >= count:
            continue
        nodes = facts.all_blocks if late.plan.node_field == "block" else -1
        for refused in late.content:
            nodes &= ~refused(facts, row.prototype, nodes)
        if nodes:
            found.append((place, nodes))
    return tuple(found)


def _rows(facts: Any, scheme: Scheme, plans: Iterable[RowPlan]) -> tuple[int, int]:
    """The table of what is legal, and of what must be tried."""
    legal = open_ = 0
    most = (1 << scheme.width) - 1
    for plan in plans:
        asked = asked_nodes(facts, plan)
        if not asked:
            continue
        if plan.sure and not plan.row_refusals:
            legal |= (asked & most) * scheme.ones(plan)
            continue
        if plan.by_extent:
            for node in bits(asked & most):
                legal |= scheme.legal_rows(plan, facts.extents[node]) << node
            continue
        for number, row in plan.rows:
            surely, perhaps = decide(facts, plan, row.prototype, asked)
            legal |= (surely & most) << number * scheme.width
            open_ |= (perhaps & most) << number * scheme.width
    return legal, open_
