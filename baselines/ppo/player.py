"""`Player`: a trained policy walks through choices, as it would through episodes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.baselines.choices import Choices
from tirgym.baselines.ppo.checkpoint import game_for, load_policy, read_header
from tirgym.errors import TargetMismatchError
from tirgym.harness.cost import CostModel, static_cost_model
from tirgym.harness.program import Program
from tirgym.performance_model.one_thread import one_thread

__all__ = ["Path", "Player", "Walks"]

Path = tuple[int, ...]
"""The options that were taken, from the first choice on."""

_KEPT = 4000
"""States that are kept, so that walks that begin alike are built and judged once."""


class Player:
    """The policy of a checkpoint with the game that it plays; raises what `load_policy` raises."""

    def __init__(self, checkpoint: str | os.PathLike[str], device: str = "cpu") -> None:
        self.checkpoint = str(checkpoint)
        self.header = read_header(checkpoint)
        self.policy = load_policy(checkpoint, device)
        self.game = game_for(self.header)

    def log_probabilities(
        self, observations: Sequence[Any], masks: Sequence[NDArray[np.bool_]]
    ) -> NDArray[np.float64]:
        """(len(observations), actions): what the policy thinks of each action; masked ones get -1e8
        or less."""
        import torch

        stacked: Any = np.stack(masks)
        shown: Any
        if isinstance(observations[0], dict):
            shown = {name: np.stack([o[name] for o in observations]) for name in observations[0]}
        else:
            shown = np.stack(observations)
        with one_thread(), torch.no_grad():
            tensors, _ = self.policy.obs_to_tensor(shown)
            found = self.policy.get_distribution(tensors, action_masks=stacked).distribution.logits
        logits: NDArray[np.float64] = found.cpu().numpy().astype(np.float64)
        return logits

    def walks(self, start: Program) -> Walks:
        """All walks from an unscheduled program; options are priced as in the training, by static cost.

        Raises TargetMismatchError for a program of another backend than the policy was trained for.
        """
        backend = start.target.backend
        if backend != self.header.backend:
            raise TargetMismatchError(
                f"{self.checkpoint} was trained for backend {self.header.backend}, the program is "
                f"for {backend}; name a checkpoint that was trained for {backend}"
            )
        return Walks(self, start, static_cost_model(backend))


@dataclass(slots=True)
class _Place:
    state: Choices
    opinion: NDArray[np.float64] | None = None


class Walks:
    """States by the path that leads to them, with the policy's opinion of their options."""

    def __init__(self, player: Player, start: Program, cost: CostModel) -> None:
        self._player, self._cost = player, cost
        self._root = _Place(player.game.begin(start))
        self._kept: OrderedDict[Path, _Place] = OrderedDict()

    def state(self, path: Path) -> Choices:
        """The state that `path` leads to."""
        return self._place(path).state

    def opinions(self, paths: Sequence[Path]) -> list[NDArray[np.float64]]:
        """For each path, whose state has an open choice, the log-probability of each option."""
        places = [self._place(path) for path in paths]
        new = {id(place): place for place in places if place.opinion is None}
        if new:
            game = self._player.game
            shown = [game.observe(place.state, self._cost) for place in new.values()]
            judged = self._player.log_probabilities([o for o, _ in shown], [m for _, m in shown])
            for place, row in zip(new.values(), judged, strict=True):
                place.opinion = row[game.taken(place.state)]
        return [place.opinion for place in places if place.opinion is not None]

    def _place(self, path: Path) -> _Place:
        if not path:
            return self._root
        place = self._kept.get(path)
        if place is None:
            place = _Place(self.state(path[:-1]).answer(path[-1]))
        self._kept[path] = place
        self._kept.move_to_end(path)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return place

    def follow(self, number: int, temperature: float, rng: np.random.Generator) -> list[Path]:
        """Paths of `number` walks to their ends; options are drawn at `temperature`, 0 takes the best.

        The policy is asked about all walks at once.
        """
        paths: list[Path] = [()] * number
        while True:
            going = [i for i, path in enumerate(paths) if self.state(path).question is not None]
            if not going:
                return paths
            for i, opinion in zip(going, self.opinions([paths[i] for i in going]), strict=True):
                paths[i] = (*paths[i], _drawn(opinion, temperature, rng))


def _drawn(opinion: NDArray[np.float64], temperature: float, rng: np.random.Generator) -> int:
    """An option: the argmax of log-probability over temperature plus Gumbel noise."""
    if temperature > 0:
        opinion = opinion / temperature + rng.gumbel(size=len(opinion))
    return int(opinion.argmax())
