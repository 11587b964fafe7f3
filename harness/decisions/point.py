"""`DecisionPoint`: one open choice as a plain record; `Recommendation`: the answer to it.

Both turn into JSON and back without loss: they are what an agent in another process is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tirgym.errors import DamagedFileError
from tirgym.harness.transforms.base import NodeRef

__all__ = ["DecisionKind", "DecisionPoint", "Option", "Recommendation"]


class DecisionKind(StrEnum):
    """What is decided; in this order in observations."""

    INLINE = "inline"
    """whether a block is computed anew where it is read"""
    RFACTOR = "rfactor"
    """into how many partial results a reduction is split"""
    LOCATION = "location"
    """the loop of its consumers that a block is computed in"""
    SKETCH = "sketch"
    """the structure of a block's loops: as they are, tiled, staged"""
    TILE = "tile"
    """one factor of a perfect tile"""
    VECTOR = "vector"
    """lanes of the innermost loop"""
    PARALLEL = "parallel"
    """how many outer loops are fused and spread over threads"""
    UNROLL = "unroll"
    """how many iterations the code generator may unroll"""
    INIT = "init"
    """whether the initialisation of a reduction leaves its loops"""
    CALLS = "calls"
    """whether a block calls the C library for exp, tanh, …, or computes them in vectors"""
    LANES = "lanes"
    """which loop of a contraction runs along vector lanes"""
    PAD = "pad"
    """the multiple that a loop of a contraction is padded to"""
    PACK = "pack"
    """whether an operand is copied, so that its tiles are contiguous"""


@dataclass(frozen=True, slots=True)
class Option:
    """One candidate."""

    label: str
    """in words"""
    value: int
    """what it means: a factor, extent or rank; its scale depends on the kind"""
    cost_us: float | None = None
    """static cost of the program right after this answer, None if nobody asked"""


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """One open choice. `default` is the static choice: what the compiler does without advice."""

    key: str
    """names the question, such as "C.tile.j.5"; the same in every walk that meets it"""
    kind: DecisionKind
    text: str
    """the question in words"""
    options: tuple[Option, ...]
    default: int
    node: NodeRef
    """the loop or block that is decided about, by the numbers in `snippet`"""
    block: str
    """name of the block concerned, "" for the whole program"""
    snippet: str
    """the loop nest around the node, one line for each loop and block"""
    workload: str
    """URI"""
    target: str
    hardware: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    number: int = 0
    """answers given before"""
    answers: tuple[tuple[str, int], ...] = ()
    """key and value of each of them, in order: with workload and target all that a program is made of"""

    def to_json(self) -> str:
        """Canonical text in one line."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> DecisionPoint:
        """The record whose `to_json` is `text`; raises DamagedFileError."""
        data = _object(text, "decision point")
        try:
            options = tuple(Option(**option) for option in data.pop("options"))
            node, kind = NodeRef(*data.pop("node")), DecisionKind(data.pop("kind"))
            answers = tuple((str(key), int(value)) for key, value in data.pop("answers", ()))
            return cls(kind=kind, options=options, node=node, answers=answers, **data)
        except (TypeError, ValueError, KeyError) as error:
            raise DamagedFileError("<text>", "decision point", str(error)) from None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What an agent answers."""

    option: int
    """index into `DecisionPoint.options`"""
    confidence: float = 1.0
    """0 to 1"""
    predicted_gain: float | None = None
    """expected speedup over the static choice, None if the agent makes no claim"""
    explanation: str = ""

    def to_json(self) -> str:
        """Canonical text in one line."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Recommendation:
        """The record whose `to_json` is `text`; raises DamagedFileError."""
        try:
            return cls(**_object(text, "recommendation"))
        except TypeError as error:
            raise DamagedFileError("<text>", "recommendation", str(error)) from None


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise DamagedFileError("<text>", what, f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise DamagedFileError("<text>", what, "the top level is not an object")
    return data
