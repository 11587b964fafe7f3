"""`Account`: what static analysis knows about one program, in named quantities with units.

An account is plain data: the quantities are declared in a table by the backend's accountant
(`ACCOUNTANTS`), so that programs of any compiler are explained, compared and printed alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import cast

from tirgym.errors import UnknownNameError
from tirgym.harness.program import Program

__all__ = ["ACCOUNTANTS", "Account", "Quantity", "Unit", "account", "amount", "has_account"]


class Unit(StrEnum):
    """What a quantity is counted in."""

    BYTES = "bytes"
    COUNT = "count"
    SHARE = "share"
    """0 to 1, of what the quantity's name says"""
    PER_BYTE = "operations/byte"
    BITS = "bits"
    MICROSECONDS = "µs"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One line of an account: what is counted, in words."""

    name: str
    """key, such as "l2_bytes" """
    noun: str
    """subject of a sentence, such as "reads from L2"; "" for a sum of others, which says nothing new"""
    unit: Unit
    source: str
    """how it is found, in one sentence"""
    exact: bool = True
    """counted in the IR; False: estimated by a model"""
    column: str = ""
    """head of its column in a table of steps, "" if it has none"""
    plural: bool = True
    """the noun is"""
    with_intensity: str = ""
    """name of the quantity that says how much arithmetic there is for each of these bytes"""


@dataclass(frozen=True)
class Account:
    """The quantities of one program, in the order of the table."""

    quantities: tuple[Quantity, ...]
    values: Mapping[str, float]
    """by name; a whole number where it was counted"""
    buffers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """what a quantity is made of, by buffer name, where it is known"""
    exact: bool = True
    """False: a condition could not be counted, so counts are upper bounds"""

    def quantity(self, name: str) -> Quantity:
        """The declaration of `name`; raises UnknownNameError."""
        for each in self.quantities:
            if each.name == name:
                return each
        raise UnknownNameError("quantity", name, [each.name for each in self.quantities])


Accountant = Callable[[Program], Account]

ACCOUNTANTS: dict[str, str] = {"llvm": "tirgym.harness.account_cpu:cpu_account"}
"""Backend → "module:function"; imported only when asked for."""


@cache
def _load(where: str) -> Accountant:
    module, _, name = where.partition(":")
    return cast(Accountant, getattr(import_module(module), name))


def account(program: Program) -> Account:
    """The account of `program`: a pure function of program and target, about 1 ms on `llvm`.

    Raises UnknownNameError for a backend that has no accountant.
    """
    backend = program.target.backend
    if backend not in ACCOUNTANTS:
        raise UnknownNameError("backend with an account", backend, sorted(ACCOUNTANTS))
    return _load(ACCOUNTANTS[backend])(program)


def has_account(program: Program) -> bool:
    """Whether `account` answers for the backend of `program`."""
    return program.target.backend in ACCOUNTANTS


def _bytes(value: float) -> str:
    """`33.5 MB`; decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _time(us: float) -> str:
    """`311.2 µs`, `17.2 ms`."""
    if us >= 1e6:
        return f"{us / 1e6:,.1f} s"
    return f"{us / 1e3:.1f} ms" if us >= 1e4 else f"{us:,.1f} µs"


_TEXTS: dict[Unit, Callable[[float], str]] = {
    Unit.BYTES: _bytes,
    Unit.COUNT: lambda value: f"{value:,.0f}",
    Unit.SHARE: lambda value: f"{100 * value:.1f}%",
    Unit.PER_BYTE: lambda value: f"{value:.2f}",
    Unit.BITS: lambda value: f"{value:,.0f}",
    Unit.MICROSECONDS: _time,
}


def amount(unit: Unit, value: float) -> str:
    """`value` as a person reads it: `33.5 MB`, `15,840,000`, `66.7%`, `311.2 µs`."""
    return _TEXTS[unit](value)
