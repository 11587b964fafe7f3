"""A scripted stand-in for a language model: reads the prompt, and picks by static cost. No model.

It takes what the prompt offers as a model would, as text, and knows nothing else: in the decision
space the options whose static cost is lowest, among transforms one legal action after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

__all__ = ["scripted_answer"]

_BATCH = re.compile(r"Propose up to (\d+) programs")
_CURRENT = re.compile(r"^Current program: #(\d+)", re.MULTILINE)
_SPEEDUP = re.compile(r"^  #(\d+) .*measured ([\d.]+)x", re.MULTILINE)
_ACTIONS_DONE = re.compile(r"^  #\d+ from #(\d+): (.*?)(?: \(|$| \| predicted)", re.MULTILINE)
_QUESTION = re.compile(r"^  (\S+): .* -> (.*)$", re.MULTILINE)
_OPTION = re.compile(r"^(\*?)(.*?)\*? \[([\d.e+-]+) us\]$")
_LEGAL = re.compile(r"^Legal actions on the current program \(\d+\):\n((?:  .*\n?)+)", re.MULTILINE)
_PREFERRED = ("VectorMath", "MultiLevelTile", "PartialSums", "VectorizeInner", "Vectorize",
              "DecomposeReduction", "Split")  # fmt: skip
_WHY = "scripted, no language model: "


def scripted_answer(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a conversation: {"proposals": […]} or {"stop": why}."""
    prompt = next(str(m["content"]) for m in reversed(messages) if m.get("role") == "user")
    batch, current = _BATCH.search(prompt), _CURRENT.search(prompt)
    if batch is None or current is None:
        return {"stop": f"{_WHY}the prompt is none that it knows"}
    base = int(current.group(1))
    speedup = dict(_SPEEDUP.findall(prompt)).get(str(base), "1")
    done = {(number, text) for number, text in _ACTIONS_DONE.findall(prompt)}
    moves = [
        (text, gain, why)
        for text, gain, why in _moves(prompt)
        if (str(base), text) not in done and f"{text}: makes the same" not in prompt
    ]
    proposals = [
        {
            "base": base,
            "actions": [text],
            "predicted_speedup": round(float(speedup) * gain, 3),
            "why": f"{_WHY}{why}",
        }
        for text, gain, why in moves[: int(batch.group(1))]
    ]
    if not proposals:
        return {"stop": f"{_WHY}no option of a lower static cost is left"}
    return {"proposals": proposals}


def _moves(prompt: str) -> list[tuple[str, float, str]]:
    """Action, expected gain and reason, most promising first."""
    legal = _LEGAL.search(prompt)
    if legal:
        return [(text, 1.0, "the next legal action in its list") for text in _ordered(legal[1])]
    return sorted(_cheaper(prompt), key=lambda move: -move[1])


def _cheaper(prompt: str) -> Iterator[tuple[str, float, str]]:
    """Options whose static cost is no higher than that of the answer that stands."""
    for key, options in _QUESTION.findall(prompt):
        read = [_OPTION.match(option) for option in options.split(" | ")]
        costs = [(bool(m[1]), m[2], float(m[3])) for m in read if m]
        now = next((cost for taken, _, cost in costs if taken), None)
        for taken, label, cost in costs:
            if now is not None and not taken and cost <= now and len(costs) == len(read):
                why = f"static cost {cost:g} us, {now:g} us as it is"
                yield f"{key} = {label}", now / cost, why


def _ordered(lines: str) -> list[str]:
    """The legal actions one by one, preferred kinds first."""
    texts = [text for line in lines.splitlines() for text in _unfolded(line.strip())]
    rank = {kind: place for place, kind in enumerate(_PREFERRED)}
    return sorted(texts, key=lambda text: rank.get(text.partition("(")[0], len(rank)))


def _unfolded(line: str) -> Iterator[str]:
    """`Split(loop=0|1, factor=2)` as two actions."""
    pieces = re.split(r"(?<==)([^,)]*)", line)
    for parts in product(
        *(piece.split("|") if n % 2 else [piece] for n, piece in enumerate(pieces))
    ):
        if "(" in line:
            yield "".join(parts)
