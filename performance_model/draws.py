"""`draws`: varied programs of one workload, each a function of a seed and its number.

A program is drawn in one of three ways, in rotation: answers to the compiler's own questions at
random, the static choices with a few of them changed, and random transforms of the default
vocabulary. Together they cover what search agents propose, good programs and bad ones. Agents that
answer questions, such as trained policies, add ways of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tirgym.harness.decisions import DecisionAgent, design_space
from tirgym.harness.decisions.space import SPACES
from tirgym.harness.decisions.walk import Walk
from tirgym.harness.program import Program
from tirgym.harness.store_records import Answers
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["RECORDED_SPACES", "TRIES", "Draw", "Proposal", "distinct", "draws", "proposals"]

RECORDED_SPACES = ("both", "decision")
"""Answers and transforms, or answers alone."""

TRIES = 8
"""Draws for each program that is wanted; small spaces have fewer programs than that."""
_DEEPEST = 14
"""Random transforms of one program at most."""
_DOUBT = 0.25
"""Share of its questions that an agent is not asked, so that it does not repeat itself."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A program to measure."""

    program: Program
    source: str
    """how it was drawn: the way, the seed and the number of the draw"""
    answers: Answers | None = None
    """that lead to it; None if it was made by transforms"""


@dataclass(frozen=True, slots=True)
class Draw:
    """A proposal that is not made yet."""

    source: str
    make: Callable[[], Proposal]


def draws(
    start: Program,
    seed: int,
    space: str = "both",
    agents: Mapping[str, DecisionAgent] | None = None,
) -> Iterator[Draw]:
    """Programs of `start`'s workload without end; each a function of `start`, `seed` and its number.

    They may repeat. The first two are `start` itself, unless only answers are wanted, and the static
    choices. Without a design space for the backend all are made of random transforms. `agents` answer,
    by name, for walks of their own, all but a quarter of the questions, which are answered at random.
    """
    vocabulary = default_vocabulary(start.target.backend)
    root = design_space(start) if start.target.backend in SPACES else None
    if space == "both" or root is None:
        yield Draw("unscheduled", lambda: Proposal(start, "unscheduled"))
    if root is not None:
        yield Draw("static", lambda: _walked(root.finish(), "static"))
    ways = _ways(start, root, vocabulary, space, agents or {})
    number = 0
    while True:
        name, make = ways[number % len(ways)]
        source = f"{name} {seed}.{number}"
        yield Draw(source, partial(make, source, np.random.default_rng([seed, number])))
        number += 1


_Make = Callable[[str, np.random.Generator], Proposal]


def _ways(
    start: Program,
    root: Walk | None,
    vocabulary: Vocabulary,
    space: str,
    agents: Mapping[str, DecisionAgent],
) -> list[tuple[str, _Make]]:
    """The ways to draw a program, in rotation."""

    def transforms(source: str, rng: np.random.Generator) -> Proposal:
        return Proposal(_walk_of_transforms(start, vocabulary, rng), source)

    if root is None:
        return [("transforms", transforms)]

    def walk(share: Callable[[np.random.Generator], float], agent: DecisionAgent | None) -> _Make:
        return lambda source, rng: _walked(_answered(root, agent, share(rng), rng), source)

    ways: list[tuple[str, _Make]] = [
        ("random", walk(lambda rng: 1.0, None)),
        ("near", walk(lambda rng: float(rng.uniform(0.05, 0.5)), None)),
    ]
    if space == "both":
        ways += [ways[0], ("transforms", transforms)]
    return ways + [(name, walk(lambda rng: _DOUBT, agent)) for name, agent in agents.items()]


def _answered(
    walk: Walk, agent: DecisionAgent | None, share: float, rng: np.random.Generator
) -> Walk:
    """The finished walk: a `share` of random answers, elsewhere those of `agent`, None for the static
    choice."""
    while (question := walk.question) is not None:
        if rng.random() < share:
            option = int(rng.integers(len(question.options)))
        elif agent is None:
            option = question.default
        else:
            option = agent.decide(walk.point()).option
        walk = walk.answer(option)
    return walk


def _walked(walk: Walk, source: str) -> Proposal:
    answers = tuple((answer.key, answer.value) for answer in walk.answers)
    return Proposal(walk.program, source, answers)


def _walk_of_transforms(
    program: Program, vocabulary: Vocabulary, rng: np.random.Generator
) -> Program:
    for _ in range(int(rng.integers(1, _DEEPEST + 1))):
        transform = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
        if transform is None:
            break
        program = program.apply(transform)
    return program


def proposals(start: Program, seed: int) -> Iterator[Program]:
    """The programs of `draws`, of answers and transforms."""
    return (draw.make().program for draw in draws(start, seed))


def distinct(start: Program, programs: int, seed: int) -> Iterator[Program]:
    """The first `programs` different proposals, as far as there are that many."""
    seen: set[str] = set()
    for tried, program in enumerate(proposals(start, seed)):
        if program.ir_key not in seen:
            seen.add(program.ir_key)
            yield program
        if len(seen) == programs or tried >= TRIES * programs:
            return
