"""The words of prompts; a pure function of what they are given, so that transcripts replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tirgym.baselines.llm.games import Game, State, program_lines
from tirgym.harness.backend import backend
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Workload
from tirgym.spaces.text import ascii_text
from tirgym.spaces.text_budget import Part, count_tokens, fit

__all__ = [
    "FOCUS",
    "Node",
    "Round",
    "Shown",
    "hardware_text",
    "history_line",
    "round_text",
    "shown_from",
    "shown_of",
    "system_text",
]

FOCUS = (
    "data movement: tile sizes, where blocks are computed, copies of what is read often",
    "arithmetic: vector lanes, partial sums, unrolling",
    "structure: which loops are fused, inlined or split off, layouts, padding",
)
"""What the explorers of several branches look at first, in turn."""

_HIDDEN_FACTS = frozenset({"backend", "arch", "fingerprint", "num_threads"})
_WHY = 160
"""Characters of a reason that the history repeats."""

_INTRODUCTION = (
    "You tune a tensor program for one machine. Programs that you propose are compiled, checked for "
    "correctness on fresh inputs, and timed. Speedup is the time of the unscheduled program over the "
    "time of yours; the highest speedup counts."
)
_TOOLS = (
    (
        "Tools: `propose` measures programs, one trial each. A proposal has a `base` (the number of a "
        "measured program; left out: the current one), `actions`, a `predicted_speedup` over the "
        "unscheduled program, and in one or two sentences `why`. Your prediction is recorded beside what "
        "is measured. `look` shows a program without measuring it. `stop` ends the search when nothing "
        "promising is left."
    ),
    "Without tools, answer with one JSON object and nothing else:",
    '{"proposals": [{"base": 1, "actions": ["..."], "predicted_speedup": 2.0, "why": "..."}]}',
    'or {"look": {"base": 1, "actions": ["..."]}} or {"stop": "why"}',
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A verdict as prompts show it."""

    status: str
    speedup: float | None = None
    latency_us: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A measured program: where it came from, what was claimed, and what was found."""

    number: int
    state: State
    shown: Shown
    predicted_us: float
    """static cost"""
    name: str = ""
    """of a program that nobody proposed"""
    base: int | None = None
    actions: tuple[str, ...] = ()
    predicted: float | None = None
    """speedup over the unscheduled program that the model claimed"""
    why: str = ""
    branch: int = 0
    note: str = ""

    @property
    def speedup(self) -> float:
        """Over the unscheduled program; 0 where there is no number."""
        return self.shown.speedup or 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """What a question to the model is about."""

    workload: Workload
    target: Target
    hardware: str
    nodes: Sequence[Node]
    current: int
    best: int
    trials_left: int
    batch: int
    notes: Sequence[str] = ()
    """what came of the last answer, and other news"""
    branch: int = 0
    branches: int = 1


def hardware_text(target: Target) -> str:
    """What the backend says of the machine, as `name value` in its order."""
    facts = backend(target.backend).describe(target)
    shown = []
    for name, value in facts.items():
        if name not in _HIDDEN_FACTS and isinstance(value, str | int | float):
            text = ("yes" if value else "no") if isinstance(value, bool) else value
            shown.append(f"{name} {text}")
    return ascii_text(", ".join(shown) or "unknown")


def shown_of(evaluation: Evaluation) -> Shown:
    """What prompts show of `evaluation`; times with four digits."""
    measured = evaluation.measurement
    message = ascii_text(" ".join(evaluation.message.split())[:160])
    if measured is None:
        return Shown(evaluation.status.value, message=message)
    speedup, latency_us = (float(f"{v:.4g}") for v in (measured.speedup, measured.latency_us))
    return Shown(evaluation.status.value, speedup, latency_us, message)


def system_text(game: Game) -> str:
    """What holds for the whole run."""
    return "\n".join((_INTRODUCTION, *game.rules, *_TOOLS))


def round_text(asked: Round, game: Game, cost: CostModel, max_tokens: int) -> str:
    """One question, of at most `max_tokens`; what there is no room for is left out and counted."""
    node = asked.nodes[asked.current]
    head = [
        f"Kernel: {asked.workload}",
        f"Target: {asked.target}",
        f"Hardware: {asked.hardware}",
        f"Trials left: {asked.trials_left}. Propose up to {asked.batch} programs now.",
        *_explorer(asked),
    ]
    history = [history_line(node) for node in asked.nodes]
    is_best = " (the best so far)" if asked.current == asked.best else ""
    best = asked.nodes[asked.best]
    notes = [f"Note: {ascii_text(note)}" for note in asked.notes]
    parts = [
        Part(head),
        Part(["", "Programs so far:"]),
        Part(history, 4, "programs"),
        Part([f"Best so far: #{best.number}, {_number(best.shown)}."]),
        Part(notes, 2, "notes"),
        Part(["", f"Current program: #{node.number}{is_best}"]),
        *program_lines(node.state, cost),
        *game.choices(node.state),
    ]
    return fit(parts, max(0, max_tokens - count_tokens(system_text(game))))


def _explorer(asked: Round) -> list[str]:
    """Which of several explorers is asked."""
    if asked.branches == 1:
        return []
    focus = FOCUS[asked.branch % len(FOCUS)]
    number = f"{asked.branch + 1} of {asked.branches}"
    return [
        f"You are explorer {number}; all see each other's results. Look first at {focus}.",
    ]


def history_line(node: Node) -> str:
    """`#5 from #1: c.vector = 8 lanes | predicted 11x, measured 8.7x, 103 us (static cost 95 us) | …`."""
    claim = f"predicted {node.predicted:.3g}x, " if node.predicted is not None else ""
    came = f"#{node.number} {node.name}" if node.name else f"#{node.number} from #{node.base}"
    made = f"{came}: {'; '.join(node.actions)}" if node.actions else came
    found = f"{claim}measured {_number(node.shown)} (static cost {node.predicted_us:.4g} us)"
    note = f" ({node.note})" if node.note else ""
    why = f" | why: {node.why[:_WHY]}" if node.why else ""
    return ascii_text(f"  {made}{note} | {found}{why}")


def _number(shown: Shown) -> str:
    if shown.speedup is None or shown.latency_us is None:
        return f"{shown.status}{f': {shown.message}' if shown.message else ''}"
    return f"{shown.speedup:.4g}x, {shown.latency_us:.4g} us"


def shown_from(data: Mapping[str, object]) -> Shown:
    """What a line of a transcript shows."""
    speedup, latency_us = data.get("speedup"), data.get("latency_us")
    numbers = [
        float(value) if isinstance(value, int | float) else None for value in (speedup, latency_us)
    ]
    status, message = str(data.get("status", "")), str(data.get("message", ""))
    return Shown(status, numbers[0], numbers[1], message)
