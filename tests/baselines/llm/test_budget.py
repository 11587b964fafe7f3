"""Limits hold before they are reached, whatever is asked at the same time."""

from __future__ import annotations

import pytest

from tirgym.baselines.llm.budget import BudgetSpentError, Ledger, Limits, Usage
from tirgym.errors import InvalidValueError


def test_calls_are_counted_once_answered_and_reserved_before() -> None:
    ledger = Ledger(Limits(calls=2))
    rooms = [ledger.reserve(10, 100), ledger.reserve(10, 100)]
    with pytest.raises(BudgetSpentError, match="the 2 calls are spent"):
        ledger.reserve(10, 100)
    ledger.settle(10, rooms[0], None, 2)  # no answer came: the call is free again
    ledger.settle(10, rooms[1], Usage(9, 5), 1)
    assert (ledger.calls, ledger.retries, ledger.tokens) == (1, 3, 14)
    ledger.settle(10, ledger.reserve(10, 100), Usage(1, 1, estimated=True), 0)
    assert ledger.estimated
    with pytest.raises(BudgetSpentError):
        ledger.reserve(10, 100)


def test_an_answer_gets_the_tokens_that_are_left() -> None:
    ledger = Ledger(Limits(tokens=1000))
    assert ledger.reserve(300, 500) == 500
    with pytest.raises(BudgetSpentError, match="the 1,000 tokens leave no room"):
        ledger.reserve(300, 500)
    ledger.settle(300, 500, Usage(300, 100), 0)
    assert ledger.reserve(300, 500) == 300


def test_money_is_spent_by_the_prices() -> None:
    ledger = Ledger(Limits(money=1.0, price_in=1000.0, price_out=2000.0))
    assert ledger.reserve(400, 1000) == 300  # 0.4 in, 0.6 out
    ledger.settle(400, 300, Usage(400, 100), 0)
    assert ledger.money == pytest.approx(0.6)
    assert ledger.reserve(100, 1000) == 150
    with pytest.raises(BudgetSpentError, match=r"the money \(1\) leave no room"):
        ledger.reserve(300, 1000)


def test_money_without_a_price_of_answers() -> None:
    ledger = Ledger(Limits(money=1.0, price_in=1000.0))
    assert ledger.reserve(900, 5000) == 5000
    with pytest.raises(BudgetSpentError):
        ledger.reserve(900, 5000)


def test_no_limits_limit_nothing() -> None:
    assert Ledger(Limits()).reserve(10**9, 10**9) == 10**9


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"calls": -1}, "at least 0"), ({"money": 1.0}, "price_in and price_out"),
     ({"price_in": float("nan")}, "at least 0"), ({"tokens": float("inf")}, "at least 0")],
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(limits: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        Limits(**limits)  # type: ignore[arg-type]
