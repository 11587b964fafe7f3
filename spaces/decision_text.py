"""`describe_question`: an open decision in words, for language models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.decisions.walk import Question
from tirgym.harness.program import Program
from tirgym.spaces.graph import encoder_for
from tirgym.spaces.text import MAX_CHARACTERS, ascii_text, program_parts
from tirgym.spaces.text_budget import Part, clip_lines, elide, fit

__all__ = ["describe_question", "question_lines"]


def describe_question(
    program: Program,
    question: Question | None,
    costs: Sequence[float] | None = None,
    mask: NDArray[np.int8] | None = None,
    max_tokens: int | None = None,
) -> str:
    """The program and its open question, ASCII, blind to measurements.

    `costs` are static costs in µs of the options, `mask` says which may be taken. The text is at most
    MAX_CHARACTERS long, or takes at most `max_tokens` (see `count_tokens`); inner lines of loop tree
    and IR are left out first. Raises InvalidValueError for too few tokens.
    """
    asked = question_lines(question, costs, mask)
    if max_tokens is not None:
        return fit([*program_parts(program), Part(asked)], max_tokens)
    steps = clip_lines([str(step) for step in program.steps], 1_500, "transforms")
    lines = [
        f"Kernel: {program.workload}",
        f"Target: {program.target}",
        f"Applied: {'; '.join(steps) or 'nothing yet'}",
        "",
        "Loops and blocks:",
        *elide(encoder_for(program.dialect).tree(program), 5_000, "loops and blocks"),
        "",
        "IR:",
        *elide(program.text().splitlines(), 6_000, "lines"),
        "",
        *asked,
    ]
    return ascii_text("\n".join(lines))[:MAX_CHARACTERS]


def question_lines(
    question: Question | None,
    costs: Sequence[float] | None = None,
    mask: NDArray[np.int8] | None = None,
) -> list[str]:
    """The question, then a line for each option with its number; or that everything is decided."""
    if question is None:
        return ["Everything is decided."]
    where = f" ({question.node.kind} {question.node.index})"
    lines = [f"Decide: {question.text}{'' if where == ' (program 0)' else where}"]
    for place, option in enumerate(question.options):
        note = " (static choice)" if place == question.default else ""
        note += "" if mask is None or mask[place] else " (masked)"
        cost = f", predicted {costs[place]:.3g} us" if costs else ""
        lines.append(f"  {place}: {option.label}{cost}{note}")
    return [ascii_text(line) for line in lines]
