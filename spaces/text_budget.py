"""`count_tokens`, `elide`, `fit`: texts that keep to a number of tokens and say what they leave out.

No tokenizer is asked, so that a text depends on nothing but the program: tokens are counted on the
safe side of the byte-pair encodings in use (a piece of at most four letters, a digit, any other mark,
a run of blanks).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tirgym.errors import InvalidValueError

__all__ = ["LEAST_TOKENS", "Part", "clip_lines", "count_tokens", "elide", "fit"]

LEAST_TOKENS = 400
"""Below, there is no room for a program and its actions."""

_PIECES = re.compile(r"[A-Za-z]{1,4}|\d|[^\sA-Za-z\d]|[^\S\n]{2,}|\n")
Item = TypeVar("Item")
Cost = Callable[[str], int]
"""What one line takes, its newline included."""


def count_tokens(text: str) -> int:
    """Tokens of `text`, at most or about."""
    return sum(1 for _ in _PIECES.finditer(text))


def _characters(line: str) -> int:
    return len(line) + 1


def _tokens(line: str) -> int:
    return count_tokens(line) + 1


def clip_lines(
    lines: Sequence[str], limit: int, what: str, cost: Cost = _characters
) -> Sequence[str]:
    """The first and last `lines` that fit into `limit`; says how many are left out."""
    if sum(map(cost, lines)) <= limit:
        return lines
    head: list[str] = []
    tail: list[str] = []
    room = limit - _longest_marker(lines, what, cost)
    low, high = 0, len(lines)
    while low < high:
        take_head = 2 * len(tail) >= len(head)
        line = lines[low] if take_head else lines[high - 1]
        room -= cost(line)
        if room < 0:
            break
        if take_head:
            head.append(line)
            low += 1
        else:
            tail.append(line)
            high -= 1
    return [*head, _gap_marker(lines, (low, high), what), *reversed(tail)]


def elide(lines: Sequence[str], limit: int, what: str, cost: Cost = _characters) -> Sequence[str]:
    """The outer structure of indented `lines` within `limit`; says how many lines are left out where.

    Lines are kept down to the deepest indentation that fits as a whole. What room is left goes to
    the deeper parts, the first and the last before those in the middle, in the same way.
    """
    if sum(map(cost, lines)) <= limit:
        return lines
    depths, kept = _depths(lines), None
    for level in sorted(set(depths)):
        wider = [depth <= level for depth in depths]
        if _shown_cost(lines, wider, what, cost) > limit:
            break
        kept = wider
    if kept is None:
        kept = _outermost(lines, depths, limit, what, cost)
    if not any(kept):
        return clip_lines(lines, limit, what, cost)
    gaps = list(_gaps(kept))
    shown = {gap: [_gap_marker(lines, gap, what)] for gap in gaps}
    room = limit - _shown_cost(lines, kept, what, cost)
    for gap in _outside_in(gaps):
        before = cost(shown[gap][0])
        inside = list(elide(lines[gap[0] : gap[1]], room + before, what, cost))
        spent = sum(map(cost, inside)) - before
        if spent <= room and len(inside) > 1:
            shown[gap], room = inside, room - spent
    return list(_merged(lines, kept, shown))


def _outermost(
    lines: Sequence[str], depths: Sequence[int], limit: int, what: str, cost: Cost
) -> list[bool]:
    """Which of the shallowest lines fit, the first and the last before those in the middle."""
    kept = [False] * len(lines)
    outer = [number for number, depth in enumerate(depths) if depth == min(depths)]
    for number in _outside_in(outer) if len(outer) < len(lines) else ():
        wider = [*kept[:number], True, *kept[number + 1 :]]
        if _shown_cost(lines, wider, what, cost) > limit:
            break
        kept = wider
    return kept


def _gap_marker(lines: Sequence[str], gap: tuple[int, int], what: str) -> str:
    """Says that the lines of `gap` are left out, as deep as the first of them."""
    line = lines[gap[0]]
    indent = " " * (len(line) - len(line.lstrip()))
    return f"{indent}... {gap[1] - gap[0]} {what} not shown ..."


def _longest_marker(lines: Sequence[str], what: str, cost: Cost) -> int:
    deepest = max(range(len(lines)), key=lambda n: len(lines[n]) - len(lines[n].lstrip()))
    indent = len(lines[deepest]) - len(lines[deepest].lstrip())
    return cost(f"{' ' * indent}... {len(lines)} {what} not shown ...")


def _depths(lines: Sequence[str]) -> list[int]:
    """Blanks in front of each line; an empty line stands as deep as the one before."""
    depths: list[int] = []
    for line in lines:
        bare = line.lstrip()
        depths.append(len(line) - len(bare) if bare else (depths[-1] if depths else 0))
    return depths


def _gaps(kept: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of lines that are not kept."""
    start = None
    for number, keep in enumerate([*kept, True]):
        if not keep and start is None:
            start = number
        elif keep and start is not None:
            yield start, number
            start = None


def _shown_cost(lines: Sequence[str], kept: Sequence[bool], what: str, cost: Cost) -> int:
    text = sum(cost(line) for line, keep in zip(lines, kept, strict=True) if keep)
    return text + sum(cost(_gap_marker(lines, gap, what)) for gap in _gaps(kept))


def _outside_in(items: Sequence[Item]) -> Iterator[Item]:
    """First, last, second, second to last, …"""
    low, high = 0, len(items)
    while low < high:
        yield items[low]
        low += 1
        if low < high:
            high -= 1
            yield items[high]


def _merged(
    lines: Sequence[str], kept: Sequence[bool], shown: dict[tuple[int, int], list[str]]
) -> Iterator[str]:
    starts = {gap[0]: inside for gap, inside in shown.items()}
    for number, (line, keep) in enumerate(zip(lines, kept, strict=True)):
        if keep:
            yield line
        elif number in starts:
            yield from starts[number]


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of a text, and how they may be shortened."""

    lines: Sequence[str]
    share: int = 0
    """of the room that parts without a share leave; 0: shown in full"""
    what: str = "lines"
    """what the lines are, for the mark of those left out"""
    nested: bool = False
    """the outer lines go before the first ones, see `elide`"""
    shorter: Sequence[str] | None = None
    """lines that say the same in less room, taken where the others do not fit"""


def fit(parts: Sequence[Part], max_tokens: int) -> str:
    """The parts as one text of at most `max_tokens`; room that a part does not need goes to others.

    Raises InvalidValueError for fewer tokens than LEAST_TOKENS, or than the fixed parts take.
    """
    fixed = sum(_tokens(line) for part in parts if not part.share for line in part.lines)
    least = max(LEAST_TOKENS, fixed + 40 * sum(bool(part.share) for part in parts))
    if max_tokens < least:
        raise InvalidValueError("tokens of a text", max_tokens, f"at least {least}")
    needs = {n: _need(part.lines) for n, part in enumerate(parts) if part.share}
    rooms = _rooms({n: parts[n].share for n in needs}, needs, max_tokens - fixed)
    lines: list[str] = []
    for number, part in enumerate(parts):
        shown = part.lines
        if part.share and needs[number] > rooms[number]:
            shown = part.lines if part.shorter is None else part.shorter
            shorten = elide if part.nested else clip_lines
            shown = shorten(shown, rooms[number], part.what, _tokens)
        lines += shown
    return "\n".join(lines)


def _need(lines: Sequence[str]) -> int:
    return sum(map(_tokens, lines))


def _rooms(shares: dict[int, int], needs: dict[int, int], room: int) -> dict[int, int]:
    """Tokens for each part: what it needs if its share is enough, else its share of what is left."""
    rooms: dict[int, int] = {}
    open_parts = dict(shares)
    while open_parts:
        total = sum(open_parts.values())
        served = [n for n, share in open_parts.items() if needs[n] * total <= room * share]
        if not served:
            return rooms | {n: room * share // total for n, share in open_parts.items()}
        for n in served:
            rooms[n] = needs[n]
            room -= needs[n]
            del open_parts[n]
    return rooms
