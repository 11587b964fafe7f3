"""What counts as a whole number where one is asked for: Python's and NumPy's, no bool, no 2.0."""

from __future__ import annotations

from numbers import Integral

from tirgym.errors import InvalidValueError

__all__ = ["is_whole", "require_whole"]


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_whole(what: str, value: int, least: int) -> None:
    """Raise InvalidValueError unless `value` is a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise InvalidValueError(what, value, f"a whole number of at least {least}")
