"""`TextObservation`: the program and its legal actions in words ("text"), for language models."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium.spaces import Text
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.spaces.graph import IRGraph, encoder_for
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["MAX_CHARACTERS", "TextObservation", "clip_lines", "describe"]

MAX_CHARACTERS = 16_384
"""Length of a text observation at most."""

_TREE, _IR, _ACTIONS = 4_000, 5_000, 6_500
"""Characters that the loop tree, the IR and the actions may take each at most."""


def clip_lines(lines: list[str], limit: int, what: str) -> list[str]:
    """The first and last `lines` that fit into `limit` characters; says how many are left out."""
    if sum(len(line) + 1 for line in lines) <= limit:
        return lines
    head: list[str] = []
    tail: list[str] = []
    room = limit - 60
    low, high = 0, len(lines)
    while low < high:
        take_head = 2 * len(tail) >= len(head)
        line = lines[low] if take_head else lines[high - 1]
        room -= len(line) + 1
        if room < 0:
            break
        if take_head:
            head.append(line)
            low += 1
        else:
            tail.append(line)
            high -= 1
    return [*head, f"... {high - low} {what} not shown ...", *reversed(tail)]


def describe(program: Program, actions: TransformSpace, mask: NDArray[np.int8]) -> str:
    """The text observation, ASCII, at most MAX_CHARACTERS long; blind to measurements."""
    legal = [actions.table[i] for i in np.flatnonzero(mask)]
    tree = encoder_for(program.dialect).tree(program)
    steps = [str(step) for step in program.steps]
    sections = [
        f"Kernel: {program.workload}",
        f"Target: {program.target}",
        f"Applied: {'; '.join(clip_lines(steps, 600, 'transforms')) or 'nothing yet'}",
        "",
        "Loops and blocks, numbered as transforms address them:",
        *clip_lines(tree, _TREE, "loops and blocks"),
        "",
        "IR:",
        *clip_lines(program.text().splitlines(), _IR, "lines"),
        "",
        f"Legal actions ({len(legal)}), answer with one of them:",
        *clip_lines(legal, _ACTIONS, "legal actions"),
    ]
    text = "\n".join(sections)
    return text.encode("ascii", "replace").decode("ascii")[:MAX_CHARACTERS]


class TextObservation:
    """`describe` as a member of `Text`.

    AsyncVectorEnv needs `shared_memory=False` for it: Gymnasium 1.4 reads shared texts only once.
    """

    def __init__(self, actions: TransformSpace) -> None:
        self._actions = actions
        self.space = Text(MAX_CHARACTERS, charset=string.printable)

    def observe(self, program: Program, graph: IRGraph, mask: NDArray[np.int8]) -> str:
        """The text."""
        return describe(program, self._actions, mask)

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """0: what is left out is said in the text."""
        return 0
