"""Trained policies search: samples of a policy, or a beam that it guides.

    tirgym optimize softmax --agent ppo-gnn --checkpoint runs/gnn/policy.safetensors --trials 16

The first program that is measured is the policy's own answer without search: the likeliest option of
every choice. Then come samples at a temperature, or the likeliest walks that a beam finds; no program
is tried twice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tirgym.baselines.choices import SPACES
from tirgym.baselines.ppo.checkpoint import shipped_checkpoint
from tirgym.baselines.ppo.extra import require_rl
from tirgym.baselines.ppo.player import Path, Player, Walks
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Search
from tirgym.harness.decisions import CallbackAgent, DecisionPoint, Recommendation
from tirgym.harness.program import Program

__all__ = ["Args", "GnnAgent", "MlpAgent", "decision_agent"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the policy agents."""

    checkpoint: str = ""
    """a trained policy; "": the one that comes with tirgym"""
    space: str = ""
    """that the policy must play; "": whatever it was trained in"""
    search: str = "sample"
    """sample or beam"""
    temperature: float = 1.0
    """of samples: above 1 more even than the policy, towards 0 its likeliest options alone"""
    warming: float = 1.25
    """factor on the temperature after a batch of samples that were all known"""
    batch: int = 16
    """programs that are measured together"""
    width: int = 16
    """of the beam; it doubles while trials are left"""
    fruitless: int = 20
    """batches in a row without a new program before the agent gives up"""


class PolicySearch:
    """A search agent around a checkpoint, which is loaded and checked when the agent is made."""

    name = ""
    spaces = SPACES
    """each policy plays the one that it was trained in"""
    _kinds: tuple[str, ...] = ()
    """agents whose checkpoints this one plays"""

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        if args.search not in _SEARCHES:
            raise UnknownNameError(f"search of agent {self.name}", args.search, _SEARCHES)
        for field, least in (("batch", 1), ("width", 1), ("fruitless", 1), ("warming", 1)):
            if not getattr(args, field) >= least:
                what = f"{field} of agent {self.name}"
                raise InvalidValueError(what, getattr(args, field), f"at least {least}")
        if not args.temperature > 0:
            what = f"temperature of agent {self.name}"
            raise InvalidValueError(what, args.temperature, "a positive number")
        require_rl(f"agent {self.name}")
        self.player = Player(args.checkpoint or shipped_checkpoint(self.name))
        trained = self.player.header.agent
        if trained not in self._kinds:
            accepted = f"a checkpoint of {' or '.join(self._kinds)}; this one is of {trained}"
            raise InvalidValueError(
                f"checkpoint of agent {self.name}", self.player.checkpoint, accepted
            )
        plays = self.player.header.vocabulary or "decision"
        if args.space not in ("", plays):
            accepted = f"{plays}, in which {os.path.basename(self.player.checkpoint)} was trained"
            raise InvalidValueError(f"space of agent {self.name}", args.space, accepted)
        self.name = trained

    def run(self, search: Search) -> None:
        """Spend the budget; raises TargetMismatchError for a backend that the policy does not know."""
        _Run(self.args, search, self.player.walks(search.start)).play()


class GnnAgent(PolicySearch):
    """The policy that reads programs as graphs."""

    name = "ppo-gnn"
    _kinds = ("ppo-gnn", "ppo-gnn-shuffled")


class MlpAgent(PolicySearch):
    """The policy that reads a flat vector of features, as the control."""

    name = "ppo-mlp"
    _kinds = ("ppo-mlp",)


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search, walks: Walks) -> None:
        self.args, self.search, self.walks = args, search, walks
        self.seen: set[str] = set()

    def play(self) -> None:
        """Measure the policy's answer, then search."""
        first = self.walks.follow(1, 0.0, self.search.rng)
        searchable = self.walks.state(()).question is not None
        if self._measure(self._new(first)) and searchable:
            _SEARCHES[self.args.search](self)

    def sample(self) -> None:
        """Draw walks until the budget is spent or nothing new turns up."""
        args, fruitless, temperature = self.args, 0, self.args.temperature
        while fruitless < args.fruitless and not self.search.out_of_time():
            number = min(args.batch, max(1, self.search.remaining_trials()))
            new = self._new(self.walks.follow(number, temperature, self.search.rng))
            fruitless = 0 if new else fruitless + 1
            temperature = temperature if new else temperature * args.warming
            if not self._measure(new):
                return

    def beam(self) -> None:
        """Measure the likeliest walks, from ever wider beams, until there are no others."""
        width, found = self.args.width, 0
        while not self.search.out_of_time():
            paths = self._beam(width)
            new = self._new(paths)
            if not self._measure(new) or len(paths) <= found:
                return
            width, found = 2 * width, len(paths)

    def _beam(self, width: int) -> list[Path]:
        """The `width` likeliest finished walks that a beam of that width finds, likeliest first."""
        ended: list[tuple[float, Path]] = []
        going: list[tuple[float, Path]] = [(0.0, ())]
        while going and not self.search.out_of_time():
            opinions = self.walks.opinions([path for _, path in going])
            reached = [
                (score - float(log_probability), (*path, option))
                for (score, path), opinion in zip(going, opinions, strict=True)
                for option, log_probability in enumerate(opinion)
            ]
            kept = sorted([*ended, *reached])[:width]
            over = {path for _, path in kept if self.walks.state(path).question is None}
            ended = [(score, path) for score, path in kept if path in over]
            going = [(score, path) for score, path in kept if path not in over]
        return [path for _, path in ended]

    def _new(self, paths: Sequence[Path]) -> list[Program]:
        """The programs at the ends of `paths` that were not tried yet, in order."""
        programs = []
        for path in paths:
            state = self.walks.state(path)
            key = state.program.ir_key
            if key not in self.seen:
                self.seen.add(key)
                self.search.decided[key] = {answer.key: answer.value for answer in state.answers}
                programs.append(state.program)
        return programs

    def _measure(self, programs: Sequence[Program]) -> bool:
        """Whether there is budget left after measuring `programs`."""
        return sum(1 for _ in self.search.evaluate_many(programs)) == len(programs)


_SEARCHES: dict[str, Callable[[_Run], None]] = {"sample": _Run.sample, "beam": _Run.beam}


def decision_agent(
    checkpoint: str = "", start: Program | None = None, *, files: bool = True
) -> CallbackAgent:
    """An agent that answers decision points with a policy's likeliest option; the shipped one for "".

    `start` and `files` are those of `PointObserver`. A policy that was trained with `candidate_costs`
    sees options with their static cost, whatever the points hold, and any other sees none. Raises what
    `load_policy` raises, and InvalidValueError for a policy that plays transforms.
    """
    from tirgym.spaces.point_observer import PointObserver

    require_rl("a policy that answers decision points")
    player = Player(checkpoint or shipped_checkpoint(GnnAgent.name))
    if player.header.vocabulary:
        accepted = (
            f"one that was trained in a Decision environment, not {player.header.environment}"
        )
        raise InvalidValueError("checkpoint of a decision agent", player.checkpoint, accepted)
    header = player.header
    observe = PointObserver(header.observation, start, header.candidate_costs, files=files)

    def answer(point: DecisionPoint) -> Recommendation:
        observation, mask = observe(point)
        (opinion,) = player.log_probabilities([observation], [mask])
        option = int(opinion.argmax())
        return Recommendation(option, float(math.exp(opinion[option])), None, "the policy's choice")

    return CallbackAgent(answer)
