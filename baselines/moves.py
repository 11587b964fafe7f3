"""Moves: what a search agent does to a program in one go.

Many transforms pay only together: a split helps once its inner loop sits further in, and a far
interchange is a row of swaps. A move is one legal transform and what usually goes with it; each
step of it is legal by itself, so that a move is just a short walk. Moves know transforms by name
alone, and a transform they do not know is a move by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.errors import IllegalTransformError
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.program import Program

__all__ = ["Habits", "moves", "mutations", "try_apply"]

_GO_ON = 0.7
"""Chance that a row of swaps goes on by one more."""


def try_apply(program: Program, transform: Transform) -> Program | None:
    """The program after `transform`, or None where it is illegal."""
    try:
        return program.apply(transform)
    except IllegalTransformError:
        return None


class Habits:
    """How often each kind of transform made a program faster, by the cost that the caller uses.

    Kinds that helped are drawn more often. Each kind starts with `_PRIOR` imagined tries.
    """

    def __init__(self) -> None:
        self.tried: dict[str, int] = {}
        self.helped: dict[str, int] = {}

    def note(self, kind: str, helped: bool) -> None:
        """One move that began with `kind`."""
        self.tried[kind] = self.tried.get(kind, 0) + 1
        self.helped[kind] = self.helped.get(kind, 0) + helped

    def weight(self, kind: str) -> float:
        """Relative frequency with which `kind` should be drawn."""
        helped, tried = _PRIOR
        return (helped + self.helped.get(kind, 0)) / (tried + self.tried.get(kind, 0))


_PRIOR = (4, 10)


def moves(
    program: Program,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    number: int,
    habits: Habits,
) -> Iterator[tuple[str, Program]]:
    """At most `number` programs one random move away, with the kind that the move begins with.

    The kind of the first transform is drawn first, then one of its legal instances: otherwise the
    kinds with many instances would be nearly all that is tried. Programs may repeat.
    """
    mask = program.legal_mask(vocabulary)
    open_kinds = [
        (kind.name, low + np.flatnonzero(mask[low:high]))
        for kind, (low, high) in vocabulary.spans.items()
        if mask[low:high].any()
    ]
    if not open_kinds:
        return
    weights = np.array([habits.weight(name) for name, _ in open_kinds])
    for index in rng.choice(len(open_kinds), size=number, p=weights / weights.sum()):
        name, actions = open_kinds[index]
        transform = vocabulary[int(actions[rng.integers(len(actions))])]
        after = try_apply(program, transform)
        if after is not None:
            follow = _FOLLOW_UPS.get(name)
            yield name, follow(after, transform, vocabulary, rng) if follow else after


def mutations(
    program: Program,
    start: Program,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    number: int,
) -> Iterator[Program]:
    """At most `number` programs whose steps differ from those of `program` in one place.

    A step gets other parameters on the same node, is left out, or is swapped with the next one;
    the steps behind it are replayed, and those that became illegal are left out.
    """
    steps = program.steps[len(start.steps) :]
    if not steps:
        return
    before = [start]
    for step in steps[:-1]:
        before.append(before[-1].apply(step))
    for _ in range(number):
        place = int(rng.integers(len(steps)))
        rest = steps[place:]
        kind = rng.random()
        if kind < 0.6:
            others = _other_parameters(rest[0], vocabulary)
            if not others:
                continue
            rest = (others[rng.integers(len(others))], *rest[1:])
        elif kind < 0.8 or len(rest) == 1:
            rest = rest[1:]
        else:
            rest = (rest[1], rest[0], *rest[2:])
        made = before[place]
        for step in rest:
            made = try_apply(made, step) or made
        yield made


def _other_parameters(step: Transform, vocabulary: Vocabulary) -> list[Transform]:
    low, high = vocabulary.spans.get(type(step), (0, 0))
    table = (vocabulary[i] for i in range(low, high))
    return [other for other in table if other.node == step.node and other != step]


_FollowUp = Callable[["Program", Any, Vocabulary, np.random.Generator], "Program"]


def _instance(vocabulary: Vocabulary, name: str, *values: int) -> Transform | None:
    """The transform `name` with parameters `values`, if the vocabulary has that kind."""
    for kind in vocabulary.spans:
        if kind.name == name:
            return kind(*values)
    return None


def _row(program: Program, name: str, loops: Iterator[int], vocabulary: Vocabulary) -> Program:
    """Apply `name` to `loops` one after the other, as long as that is legal."""
    for loop in loops:
        step = _instance(vocabulary, name, loop)
        after = try_apply(program, step) if step is not None and loop >= 0 else None
        if after is None:
            break
        program = after
    return program


def _length(rng: np.random.Generator) -> int:
    """How many swaps go on: geometric."""
    return int(rng.geometric(1.0 - _GO_ON)) - 1


def _after_split(
    program: Program, split: Any, vocabulary: Vocabulary, rng: np.random.Generator
) -> Program:
    """Sink the new inner loop some way, then perhaps make something of it where it ended."""
    inner, far = split.loop + 1, _length(rng)
    before = len(program.steps)
    program = _row(program, "Reorder", iter(range(inner, inner + far)), vocabulary)
    inner += len(program.steps) - before
    finish = _FINISHES[rng.choice(len(_FINISHES), p=_FINISH_CHANCES)]
    for name in finish:
        after = _row(program, name, iter((inner,)), vocabulary)
        if after is program:
            break
        program = after
    return program


_FINISHES = ((), ("Vectorize",), ("RFactor", "Vectorize"), ("Unroll",))
"""What may become of the inner loop of a split; partial sums (RFactor) turn a reduction into lanes
that can be vectorized."""
_FINISH_CHANCES = (0.45, 0.3, 0.15, 0.1)


def _after_reorder(
    program: Program, swap: Any, vocabulary: Vocabulary, rng: np.random.Generator
) -> Program:
    """Carry the same loop on, inwards or outwards."""
    step = 1 if rng.random() < 0.5 else -1
    loops = islice(count(swap.loop + step, step), _length(rng))
    return _row(program, "Reorder", loops, vocabulary)


_FOLLOW_UPS: Mapping[str, _FollowUp] = {"Split": _after_split, "Reorder": _after_reorder}
