"""Actions as texts that parse back: `TransformTexts` for transforms, `OptionTexts` for decisions.

    texts = TransformTexts(actions, mask)
    texts.texts()                              # legal actions, such as "Split(loop=0, factor=8)"
    texts.read("split( factor=8, loop = 0 )")  # the action; one clear line if it is none

Case, blanks, quotes and code fences are forgiven, other actions are not guessed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.walk import Question
from tirgym.spaces.transform_space import STOP, TransformSpace

__all__ = ["NOTHING", "ActionTexts", "OptionTexts", "TransformTexts", "grouped", "unfenced"]

NOTHING = "nothing to decide"
"""Text form of the only action once everything is decided."""

_SHOWN = 400
"""Characters of what would be accepted, at most."""
_FENCE = "```"
_LANGUAGE = re.compile(r"[a-z]*(?=\s)", re.IGNORECASE)
_LABEL = re.compile(r"^\s*(?:action|answer|choice)\s*[:=]\s*", re.IGNORECASE)
_CALL = re.compile(r"^(\w+)(?:\((.*)\))?$", re.DOTALL)
_HEAD = re.compile(r"\w+")
_PLACE = re.compile(r"^(?:option)?#?(\d+)$")
_ANY_QUOTE_OR_BLANK = re.compile(r"[\s'\"`‘’“”]+")


class ActionTexts(Protocol):
    """The actions of one state in words."""

    def texts(self) -> list[str]:
        """The legal actions, in order; each reads back."""

    def to_text(self, action: int) -> str:
        """The text of an action; raises InvalidValueError out of range."""

    def read(self, text: str, legal: bool = True) -> int:
        """The action that `text` names; with `legal`, only one that the mask allows.

        Raises InvalidValueError with one line that says what would be accepted.
        """


def unfenced(text: str) -> str:
    """What stands in the code fence that `text` is, without its language; else `text` as it is.

    In time that grows like the text: it may be anything that a model writes, such as blanks alone.
    """
    bare = text.strip()
    if len(bare) < 2 * len(_FENCE) or not (bare.startswith(_FENCE) and bare.endswith(_FENCE)):
        return text
    inside = bare[len(_FENCE) : -len(_FENCE)]
    language = _LANGUAGE.match(inside)
    return inside[language.end() if language else 0 :].strip()


def _bare(text: str) -> str:
    """`text` without what it may be wrapped in."""
    return _LABEL.sub("", unfenced(text))


def _normal(text: str) -> str:
    """Equal for texts that differ in case, blanks and quotes."""
    return _ANY_QUOTE_OR_BLANK.sub("", text).casefold().rstrip(".;")


def _short(text: str) -> str:
    """`text` in one line, as an error quotes it."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def _clipped(texts: Sequence[str]) -> str:
    """`texts` in one line, as many as there is room for."""
    shown: list[str] = []
    room = _SHOWN
    for text in texts:
        room -= len(text) + 2
        if room < 0 and shown:
            return f"{', '.join(shown)}, … ({len(texts) - len(shown)} more)"
        shown.append(text)
    return ", ".join(shown)


# -- transforms -----------------------------------------------------------------------------


def grouped(texts: Sequence[str]) -> list[str]:
    """Calls that differ in one argument as one: `Split(loop=0|1, factor=2|4)` are four.

    Exact: every combination is one of `texts`. Other texts stay as they are.
    """
    rows: dict[tuple[str, ...], list[tuple[tuple[str, ...], ...]]] = {}
    for text in texts:
        head, keys, values = _arguments(text)
        rows.setdefault((head, *keys), []).append(tuple((value,) for value in values))
    found = []
    for key, group in rows.items():
        names = key[1:]
        for column in reversed(range(len(names))):
            group = _united(group, column)
        for row in group:
            cells = (f"{name}={'|'.join(cell)}" for name, cell in zip(names, row, strict=True))
            found.append(f"{key[0]}({', '.join(cells)})" if names else key[0])
    return found


def _united(
    rows: Sequence[tuple[tuple[str, ...], ...]], column: int
) -> list[tuple[tuple[str, ...], ...]]:
    """Rows that differ in `column` alone as one."""
    found: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for row in rows:
        found.setdefault((*row[:column], *row[column + 1 :]), []).extend(row[column])
    return [
        (*rest[:column], tuple(dict.fromkeys(cell)), *rest[column:]) for rest, cell in found.items()
    ]


def _arguments(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Head, names and values of a call as texts."""
    head, parenthesis, inside = text.partition("(")
    if not parenthesis or not inside.endswith(")") or inside == ")":
        return text, (), ()
    pairs = [argument.strip().partition("=") for argument in inside[:-1].split(",")]
    return head, tuple(name for name, _, _ in pairs), tuple(value for _, _, value in pairs)


def _call_key(text: str) -> str | None:
    """Equal for calls that differ in case, blanks, quotes and order of arguments; None if none."""
    call = _CALL.match(_normal(_bare(text)))
    if call is None:
        return None
    head, inside = call.group(1), call.group(2) or ""
    return f"{head}({','.join(sorted(inside.split(',')))})"


@lru_cache(maxsize=8)
def _by_key(table: tuple[str, ...]) -> dict[str, int]:
    """Action by call key."""
    return {key: action for action, text in enumerate(table) if (key := _call_key(text))}


class TransformTexts:
    """The actions of a `TransformSpace`; `mask` (n,) says which are legal, None that all are."""

    def __init__(self, actions: TransformSpace, mask: NDArray[np.generic] | None = None) -> None:
        self._actions, self._mask = actions, mask

    def texts(self) -> list[str]:
        """The legal actions in the order of the table, STOP last."""
        table = self._actions.table
        return list(table) if self._mask is None else [table[i] for i in np.flatnonzero(self._mask)]

    def to_text(self, action: int) -> str:
        """`Name(key=value, …)`, or STOP."""
        return self._actions.to_text(action)

    def read(self, text: str, legal: bool = True) -> int:
        """See `ActionTexts`."""
        key = _call_key(text)
        action = None if key is None else _by_key(self._actions.table).get(key)
        if action is None or (legal and self._mask is not None and not self._mask[action]):
            raise InvalidValueError("action", _short(text), self._accepted(_bare(text)))
        return action

    def _accepted(self, text: str) -> str:
        """The legal actions of the kind that was meant, or the kinds that have any."""
        texts = self.texts()
        kinds = list(dict.fromkeys(text.partition("(")[0] for text in texts))
        head = _HEAD.search(text)
        meant = _kind(head.group().casefold() if head else "", kinds)
        if meant is None:
            return f"one legal action of {', '.join(kinds)}, such as {texts[0]}"
        return f"one of {_clipped(grouped([t for t in texts if t.partition('(')[0] == meant]))}"


def _kind(head: str, kinds: Sequence[str]) -> str | None:
    """The kind that `head` is, or nearly is."""
    close = difflib.get_close_matches(head, [kind.casefold() for kind in kinds], n=1, cutoff=0.75)
    return next((kind for kind in kinds if close and kind.casefold() == close[0]), None)


# -- decisions ------------------------------------------------------------------------------


class OptionTexts:
    """The options of an open question; `mask` says which may be taken, None that all may.

    The text of an option is `KEY = LABEL`, such as `c.vector = 16 lanes`. It is also read without
    its key, by its value behind the key (`c.vector = 16`), and by its number without one (`4`, as
    observations number them).
    """

    def __init__(self, question: Question | None, mask: NDArray[np.generic] | None = None) -> None:
        self._question, self._mask = question, mask

    def texts(self) -> list[str]:
        """The options that may be taken, in order."""
        if self._question is None:
            return [NOTHING]
        numbers = range(len(self._question.options))
        return [self.to_text(n) for n in numbers if self._mask is None or self._mask[n]]

    def to_text(self, action: int) -> str:
        """`KEY = LABEL`."""
        question = self._question
        number = 1 if question is None else len(question.options)
        if not 0 <= action < number:
            raise InvalidValueError("action", action, f"an integer from 0 to {number - 1}")
        if question is None:
            return NOTHING
        label = question.options[action].label
        twice = sum(option.label == label for option in question.options) > 1
        return f"{question.key} = {f'option {action}' if twice else label}"

    def read(self, text: str, legal: bool = True) -> int:
        """See `ActionTexts`."""
        action = self._found(_bare(text))
        if action is None or (legal and self._mask is not None and not self._mask[action]):
            raise InvalidValueError("action", _short(text), self._accepted())
        return action

    def _found(self, text: str) -> int | None:
        question = self._question
        if question is None:
            return 0 if _normal(text) in (_normal(NOTHING), "0", _normal(STOP)) else None
        key, equals, answer = text.partition("=")
        if equals:
            if _normal(key) != _normal(question.key):
                return None
            labelled = self._labelled(answer)
            return self._valued(answer) if labelled is None else labelled
        number, colon, label = text.partition(":")
        place = self._placed(number)
        if colon and place is not None:  # "4: 16 lanes", as observations list them
            return place if self._labelled(label) == place else None
        return place if place is not None else self._labelled(text)

    def _labelled(self, text: str) -> int | None:
        assert self._question is not None  # callers ask only where there is one
        options = self._question.options
        found = [n for n, option in enumerate(options) if _normal(option.label) == _normal(text)]
        if len(found) == 1:
            return found[0]
        named = _normal(text)
        return self._placed(text) if named.startswith(("option", "#")) else None

    def _valued(self, text: str) -> int | None:
        assert self._question is not None  # callers ask only where there is one
        found = [n for n, o in enumerate(self._question.options) if str(o.value) == _normal(text)]
        return found[0] if len(found) == 1 else None

    def _placed(self, text: str) -> int | None:
        assert self._question is not None  # callers ask only where there is one
        place = _PLACE.match(_normal(text))
        number = int(place.group(1)) if place and len(place.group(1)) < 6 else -1
        return number if 0 <= number < len(self._question.options) else None

    def _accepted(self) -> str:
        question, texts = self._question, self.texts()
        if question is None:
            return f"{NOTHING!r}: everything is decided"
        labels = [text.partition(" = ")[2] for text in texts]
        return f"{question.key} = one of: {_clipped(labels)}"
