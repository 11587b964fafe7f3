"""`Ledger`: what a run with a language model may spend, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.errors import InvalidValueError

__all__ = ["BudgetSpentError", "Ledger", "Limits", "Usage"]

LEAST_ANSWER = 64
"""Tokens without which an answer is not asked for."""


class BudgetSpentError(Exception):
    """A limit leaves no room for another question; the message says which."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run, trials apart; 0 means none."""

    calls: int = 0
    """questions to the model, retries not counted"""
    tokens: int = 0
    """prompt and answer together"""
    money: float = 0.0
    """in the currency of the prices"""
    price_in: float = 0.0
    """of a million prompt tokens"""
    price_out: float = 0.0
    """of a million answer tokens"""

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "money", "price_in", "price_out"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InvalidValueError(f"{name} of agent llm", value, "at least 0; 0 for no limit")
        if self.money and not (self.price_in or self.price_out):
            accepted = "price_in and price_out, per million tokens, beside it"
            raise InvalidValueError("money of agent llm", self.money, accepted)

    def price(self, prompt: int, answer: int) -> float:
        """What that many tokens cost."""
        return (prompt * self.price_in + answer * self.price_out) / 1e6


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one exchange."""

    prompt: int = 0
    answer: int = 0
    estimated: bool = False
    """the endpoint did not say, so they were counted here"""


@dataclass
class Ledger:
    """Adds up; `reserve` before each question, `settle` after it."""

    limits: Limits
    calls: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    estimated: bool = False
    """some endpoint did not say what it used"""
    _reserved_calls: int = 0
    _reserved_prompt: int = 0
    _reserved_answer: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def money(self) -> float:
        """What they cost, by the prices given."""
        return self.limits.price(self.prompt_tokens, self.answer_tokens)

    def reserve(self, prompt: int, answer: int) -> int:
        """Set room aside for a question; the tokens that its answer may take, `answer` at most.

        Raises BudgetSpentError where a limit leaves no room.
        """
        limits = self.limits
        if limits.calls and self.calls + self._reserved_calls >= limits.calls:
            raise BudgetSpentError(f"the {limits.calls} calls are spent")
        rooms = [answer]
        if limits.tokens:
            taken = self.tokens + self._reserved_prompt + self._reserved_answer
            rooms.append(limits.tokens - taken - prompt)
        if limits.money:
            taken_in = self.prompt_tokens + self._reserved_prompt + prompt
            taken_out = self.answer_tokens + self._reserved_answer
            left = limits.money - limits.price(taken_in, taken_out)
            price = limits.price_out / 1e6
            rooms.append(int(left / price) if price and left > 0 else answer if left > 0 else 0)
        room = min(rooms)
        if room < min(LEAST_ANSWER, answer):
            tokens = bool(limits.tokens) and rooms[1] == room
            what = f"{limits.tokens:,} tokens" if tokens else f"money ({limits.money:g})"
            raise BudgetSpentError(f"the {what} leave no room for another question")
        self._reserved_calls += 1
        self._reserved_prompt += prompt
        self._reserved_answer += room
        return room

    def settle(self, prompt: int, room: int, usage: Usage | None, retries: int) -> None:
        """Give back what was reserved, and book what was used; None: no answer came."""
        self._reserved_calls -= 1
        self._reserved_prompt -= prompt
        self._reserved_answer -= room
        self.retries += retries
        if usage is not None:
            self.calls += 1
            self.prompt_tokens += usage.prompt
            self.answer_tokens += usage.answer
            self.estimated = self.estimated or usage.estimated
