"""`Demonstrations`: the best recorded walks of each workload, as states and what to choose in them.

A measurement store holds finished walks through the design space with what gate and clock said of
them. The good ones show a policy what pays before it plays: filtered behaviour cloning, the "%BC" of
Chen et al., "Decision Transformer", NeurIPS 2021, with smooth weights in place of the filter's edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.baselines.ppo.games import Game
from tirgym.errors import InvalidValueError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.decisions import Walk, design_space
from tirgym.harness.replay_evaluator import stored_contexts
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.store import Context, Store
from tirgym.harness.store_records import StoredWalk
from tirgym.harness.target import Target
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Demonstrations", "State", "read_demonstrations"]

TEMPERATURE = 0.1
"""A walk counts exp(-d / TEMPERATURE) of the best of its workload, d being the difference of their log
speedups: 10 % slower counts a third."""
LEAST = 0.05
"""Walks that count less are left out."""


@dataclass(slots=True)
class State:
    """A place that good walks come through."""

    observation: Any
    mask: NDArray[np.bool_]
    """(actions,)"""
    wanted: NDArray[np.float32]
    """(actions,): how often each action is taken, in weights of walks; sums to `weight`"""
    weight: float
    """of all walks that come through; those of one workload sum to 1"""
    value: float
    """mean log speedup that they end with"""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """States of all workloads, workload by workload."""

    states: tuple[State, ...]
    walks: int
    """that they are of"""
    workloads: tuple[str, ...]


@dataclass(slots=True)
class _Place:
    walk: Walk
    votes: dict[int, float] = field(default_factory=dict)
    """option → weight of the walks that take it"""
    ends: float = 0.0
    """sum of weight times log speedup"""
    next: dict[int, _Place] = field(default_factory=dict)


def read_demonstrations(
    store: Store, workloads: Sequence[str], game: Game, target: Target
) -> Demonstrations:
    """What `store` shows about `workloads` (URIs), seen as `game`, one of decisions, shows it.

    Walks are those that a replay for `target` has: of its backend and thread count, and of another arch
    or machine only where the store has one alone. Raises InvalidValueError if it shows nothing or that
    is not clear, and TargetMismatchError where a recorded walk is not one of the design space any more.
    """
    states: list[State] = []
    shown, total = [], 0
    speedups = _speedups(store)
    for context in stored_contexts(store, target):
        uri = context.workload.partition("#")[0]
        good = _good(store, context, speedups) if uri in workloads else []
        if good:
            shown.append(uri)
            total += len(good)
            states += _states(context, uri, good, game, str(store.path))
    if not states:
        accepted = f"a store with walks of {', '.join(workloads[:3])}, …: {store.path} has none"
        raise InvalidValueError("demonstrations", str(store.path), accepted)
    return Demonstrations(tuple(states), total, tuple(shown))


def _speedups(store: Store) -> dict[tuple[Context, str], float]:
    """Log speedup by context and code key, of what passed the gate."""
    return {
        (record.context, record.key): math.log(record.measurement.speedup)
        for record in store.records()
        if record.measurement is not None
    }


def _good(
    store: Store, context: Context, speedups: dict[tuple[Context, str], float]
) -> list[tuple[StoredWalk, float, float]]:
    """The walks that count, with weight and log speedup; weights sum to 1."""
    found = []
    for walk in store.walks(context):
        key = store.code_key(context, walk.ir_key) or f"ir:{walk.ir_key}"
        if walk.settled and (context, key) in speedups:
            found.append((walk, speedups[context, key]))
    best = max((speed for _, speed in found), default=0.0)
    counted = [(w, math.exp((speed - best) / TEMPERATURE), speed) for w, speed in found]
    counted = [one for one in counted if one[1] >= LEAST and one[0].path]
    total = sum(weight for _, weight, _ in counted)
    return [(walk, weight / total, speed) for walk, weight, speed in counted]


def _states(
    context: Context,
    uri: str,
    good: Sequence[tuple[StoredWalk, float, float]],
    game: Game,
    name: str,
) -> Iterator[State]:
    start = backend(context.target.backend).start(load_workload(uri), context.target)
    root = _Place(design_space(start))
    for stored, weight, speed in good:
        at = root
        for key, value in stored.path:
            at = _walked(at, key, value, weight, speed, name)
    cost = StaticCostModel()
    pending = [root]
    while pending:
        place = pending.pop()
        pending += place.next.values()
        if not place.votes:
            continue
        observation, mask = game.observe(place.walk, cost)
        wanted = np.zeros(len(mask), np.float32)
        taken = game.taken(place.walk)
        for option, votes in place.votes.items():
            wanted[taken[option]] = votes
        weight = sum(place.votes.values())
        yield State(observation, mask, wanted, weight, place.ends / weight)


def _walked(at: _Place, key: str, value: int, weight: float, speed: float, name: str) -> _Place:
    question = at.walk.question
    values = [option.value for option in question.options] if question else []
    if question is None or question.key != key or value not in values:
        raise TargetMismatchError(
            f"{name} was recorded with other decision points (at {key}): record it again with "
            "`tirgym store record`, or use the tirgym version that recorded it"
        )
    option = values.index(value)
    at.votes[option] = at.votes.get(option, 0.0) + weight
    at.ends += weight * speed
    if option not in at.next:
        at.next[option] = _Place(at.walk.answer(option))
    return at.next[option]
