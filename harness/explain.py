"""`explain`: what a transform changed, as figures with units and as sentences that can be checked.

    from tirgym import explain
    for sentence in explain(before, after).sentences:
        print(sentence.text)        # reads from L2 (estimated) fall from 63.9 MB to 4.2 MB, 15.2x less

Every number in a sentence is one of the two accounts' (`account`), or a ratio of two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tirgym.errors import InvalidValueError
from tirgym.harness.account import Account, Quantity, Unit, account, amount
from tirgym.harness.program import Program

if TYPE_CHECKING:
    from tirgym.harness.decisions.walk import Walk

__all__ = ["Change", "Explanation", "Sentence", "compare", "describe", "explain", "explain_options"]

_FACTOR_FROM = 1.5
"""Changes from this ratio on are stated as a ratio too."""
_COUNTS_FROM = 1000
"""Counts below are small enough to see the ratio."""


class Change(NamedTuple):
    """A quantity that differs between two programs."""

    quantity: Quantity
    before: float
    after: float


class Sentence(NamedTuple):
    """One statement about one quantity."""

    quantity: str
    """its name"""
    text: str


@dataclass(frozen=True)
class Explanation:
    """What differs between two programs of one workload."""

    before: Account
    after: Account

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Quantities that read differently, in the order of the account."""
        found = []
        for quantity in self.after.quantities:
            old, new = self.before.values[quantity.name], self.after.values[quantity.name]
            if amount(quantity.unit, old) != amount(quantity.unit, new):
                found.append(Change(quantity, old, new))
        return tuple(found)

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """The changes in words; none if nothing that static analysis sees has changed."""
        within = {change.quantity.with_intensity for change in self.changes}
        return tuple(
            Sentence(change.quantity.name, self._sentence(change))
            for change in self.changes
            if change.quantity.noun and change.quantity.name not in within
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values: changes with units, the buffers behind them, and the sentences."""
        return {
            "changes": {
                quantity.name: {
                    "before": before,
                    "after": after,
                    "unit": quantity.unit.value,
                    "exact": self._exact(quantity),
                    "buffers": {
                        name: {"before": old, "after": new}
                        for name, (old, new) in self._parts(quantity.name).items()
                        if old != new
                    },
                }
                for quantity, before, after in self.changes
            },
            "sentences": [sentence.text for sentence in self.sentences],
        }

    def _exact(self, quantity: Quantity) -> bool:
        return quantity.exact and self.before.exact and self.after.exact

    def _sentence(self, change: Change) -> str:
        quantity, before, after = change
        verb = "rise" if after > before else "fall"
        text = (
            f"{quantity.noun}{_mark(quantity, self._exact(quantity))} "
            f"{verb}{'' if quantity.plural else 's'} from {amount(quantity.unit, before)} "
            f"to {amount(quantity.unit, after)}"
        )
        return text + _factor(change) + self._intensity(change) + self._mostly(change)

    def _intensity(self, change: Change) -> str:
        """`; 0.50, then 7.54 operations for each byte from L2`."""
        name = change.quantity.with_intensity
        if not name or not change.before or not change.after:
            return ""
        quantity = self.after.quantity(name)
        old, new = (amount(quantity.unit, a.values[name]) for a in (self.before, self.after))
        return "" if old == new else f"; {old}, then {new} {quantity.noun}"

    def _mostly(self, change: Change) -> str:
        """`; mostly b, from 63.4 MB to 2.0 MB`."""
        parts, unit = self._parts(change.quantity.name), change.quantity.unit
        name = _majority({part: abs(new - old) for part, (old, new) in parts.items()})
        if not name:
            return ""
        old, new = (amount(unit, value) for value in parts[name])
        return "" if old == new else f"; mostly {name}, from {old} to {new}"

    def _parts(self, name: str) -> dict[str, tuple[float, float]]:
        """Before and after by buffer name."""
        old, new = self.before.buffers.get(name, {}), self.after.buffers.get(name, {})
        return {part: (old.get(part, 0), new.get(part, 0)) for part in {**old, **new}}


def _mark(quantity: Quantity, exact: bool) -> str:
    if not quantity.exact:
        return " (estimated)"
    return "" if exact else " (at most)"


def _factor(change: Change) -> str:
    """`, 15.2x less`."""
    quantity, before, after = change
    small, large = sorted((before, after))
    counted = quantity.unit in (Unit.BYTES, Unit.MICROSECONDS) or (
        quantity.unit is Unit.COUNT and large >= _COUNTS_FROM
    )
    if not small or not counted or large / small < _FACTOR_FROM:
        return ""
    return f", {large / small:.1f}x {'more' if after > before else 'less'}"


def compare(before: Account, after: Account) -> Explanation:
    """The explanation of two accounts; raises InvalidValueError unless they have one table."""
    if before.quantities != after.quantities:
        raise InvalidValueError("accounts to compare", "two tables", "two of one backend")
    return Explanation(before, after)


def explain(before: Program, after: Program) -> Explanation:
    """What differs between two programs of one workload, by static analysis alone.

    Costs about 2 ms on `llvm`. Raises InvalidValueError for programs of two workloads or backends,
    UnknownNameError for a backend that has no accountant.
    """
    if before.workload != after.workload:
        pair = f"{before.workload} and {after.workload}"
        raise InvalidValueError("programs to compare", pair, "two of one workload")
    return compare(account(before), account(after))


def explain_options(walk: Walk) -> tuple[Explanation, ...]:
    """What each option of the open question of `walk` would change at once; empty when decided.

    Costs as much as trying each option, and an account of each.
    """
    if walk.question is None:
        return ()
    task, start = walk.agenda[0], account(walk.program)
    return tuple(
        compare(start, account(task.take(walk.program, option.value).program))
        for option in walk.question.options
    )


def describe(state: Account) -> Iterator[Sentence]:
    """What there is to say about one program: `reads from L2 (estimated): 63.9 MB`."""
    for quantity in state.quantities:
        value = state.values[quantity.name]
        if value and quantity.noun:
            mark = _mark(quantity, quantity.exact and state.exact)
            text = f"{quantity.noun}{mark}: {amount(quantity.unit, value)}"
            yield Sentence(
                quantity.name, text + _largest(state.buffers.get(quantity.name), quantity)
            )


def _largest(parts: Mapping[str, float] | None, quantity: Quantity) -> str:
    """`; most of it b, 63.4 MB`."""
    name = _majority(parts or {})
    return f"; most of it {name}, {amount(quantity.unit, (parts or {})[name])}" if name else ""


def _majority(parts: Mapping[str, float]) -> str:
    """The part, of several, that makes up more than half of all; "" if none does."""
    name = max(parts, key=lambda part: parts[part], default="")
    return name if len(parts) > 1 and parts[name] > sum(parts.values()) / 2 else ""
