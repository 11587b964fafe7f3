"""`TextObservation`: the program and its legal actions in words ("text"), for language models."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium.spaces import Text
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.spaces.action_text import TransformTexts, grouped
from tirgym.spaces.graph import IRGraph, encoder_for
from tirgym.spaces.text_budget import Part, clip_lines, elide, fit
from tirgym.spaces.transform_space import TransformSpace

__all__ = [
    "MAX_CHARACTERS",
    "TextObservation",
    "ascii_text",
    "clip_lines",
    "describe",
    "program_parts",
]

MAX_CHARACTERS = 16_384
"""Length of a text observation at most."""

_TREES = {"triton": ("Operations of TTGIR:", "operations")}
_LOOPS = ("Loops and blocks, numbered as transforms address them:", "loops and blocks")
"""What stands above the tree of a program, by dialect, and what its lines are."""
_TREE, _IR, _ACTIONS = 4_000, 5_000, 6_500
"""Characters that the loop tree, the IR and the actions may take each at most."""


def describe(
    program: Program,
    actions: TransformSpace,
    mask: NDArray[np.int8],
    max_tokens: int | None = None,
) -> str:
    """The text observation, ASCII, blind to measurements.

    It is at most MAX_CHARACTERS long, or takes at most `max_tokens` (see `count_tokens`); inner lines
    of loop tree and IR are left out first. Actions that there is no room for are grouped:
    `Split(loop=0|1, factor=2|4)` are four. Raises InvalidValueError for too few tokens.
    """
    legal = TransformTexts(actions, mask).texts()
    ask = f"Legal actions ({len(legal)}), answer with one of them:"
    if max_tokens is not None:
        head = program_parts(program)
        short = Part(legal, 3, "legal actions", shorter=grouped(legal))
        return fit([*head, Part([ask]), short], max_tokens)
    steps = [str(step) for step in program.steps]
    heading, lines = _TREES.get(program.dialect, _LOOPS)
    sections = [
        f"Kernel: {program.workload}",
        f"Target: {program.target}",
        f"Applied: {'; '.join(clip_lines(steps, 600, 'transforms')) or 'nothing yet'}",
        "",
        heading,
        *elide(encoder_for(program.dialect).tree(program), _TREE, lines),
        "",
        "IR:",
        *elide(program.text().splitlines(), _IR, "lines"),
        "",
        ask,
        *clip_lines(legal, _ACTIONS, "legal actions"),
    ]
    return ascii_text("\n".join(sections))[:MAX_CHARACTERS]


def program_parts(program: Program) -> list[Part]:
    """Kernel, target, applied transforms, loop tree and IR, for a text that keeps to its tokens."""
    steps = [f"  {step}" for step in map(str, program.steps)] or ["  nothing yet"]
    tree = [ascii_text(line) for line in encoder_for(program.dialect).tree(program)]
    heading, lines = _TREES.get(program.dialect, _LOOPS)
    ir = [ascii_text(line) for line in program.text().splitlines() if _says_something(line)]
    return [
        Part([f"Kernel: {program.workload}", f"Target: {program.target}", "Applied:"]),
        Part(steps, 1, "transforms"),
        Part(["", heading]),
        Part(tree, 2, lines, nested=True),
        Part(["", "IR:"]),
        Part(ir, 3, "lines", nested=True),
        Part([""]),
    ]


def _says_something(line: str) -> bool:
    """Neither empty nor one of the imports that TVMScript begins with, as comments."""
    return bool(line) and not line.startswith("# from tvm")


def ascii_text(text: str) -> str:
    """`text` with u for micro, and a question mark for any other character that is not ASCII."""
    return text.replace("µ", "u").encode("ascii", "replace").decode("ascii")


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
