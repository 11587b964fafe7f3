"""`EnvSpec`: the training environments as plain data, so that worker processes can make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import gymnasium

from tirgym.baselines.ppo.curriculum import make_curriculum
from tirgym.baselines.ppo.curriculum_env import CurriculumEnv
from tirgym.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from tirgym.envs.compiler_env import CompilerEnv
    from tirgym.kernels_suite.kernel import Workload
    from tirgym.rewards.reward import Reward

__all__ = ["ENV_IDS", "TRAIN_REWARDS", "EnvSpec"]

ENV_IDS: Mapping[str, str] = {
    "tirgym/Decision-v0": "final",
    "tirgym/DecisionStatic-v0": "final",
    "tirgym/Schedule-v0": "measured",
    "tirgym/ScheduleStatic-v0": "measured",
}
"""Id → what the environment calls the reward that is measured."""

TRAIN_REWARDS = ("static", "model", "measured", "replay")
"""Rewards by name: predicted by formulas, predicted by a trained model, measured behind the gate, read
from a store."""

DOUBT = 1.0
"""Standard deviations of the model's members that a training takes off what it expects, so that a policy
does not learn to find what the model is wrong about."""

_GIVEN = ("max_steps", "missing", "candidate_costs")
"""Arguments that only some environments take, passed on where they are set."""


@dataclass(frozen=True)
class EnvSpec:
    """Which environments a training or an evaluation plays in."""

    env: str = "tirgym/Decision-v0"
    kernels: tuple[str, ...] = ("matmul",)
    """names, URIs, or file.py:NAME"""
    shapes: str = "train"
    """name of the shapes that are drawn from (see `tirgym.envs.strategies.SHAPE_SETS`)"""
    observation: str = "dict"
    reward: str = "static"
    """one of `TRAIN_REWARDS`, or "package.module:Class" of a class with the protocol `Reward`"""
    model: str | None = None
    """path of a trained performance model, for the reward "model" """
    store: str | None = None
    """path of the measurement store, or the name of one that ships; None: the user's"""
    num_threads: int = 1
    """of the target"""
    arch: str | None = None
    """of the target; None: this machine's, with a replay the store's"""
    max_steps: int | None = None
    """None: the environment's own"""
    missing: str | None = None
    """what a replay does with states that the store lacks, see `tirgym.envs.replay`"""
    candidate_costs: bool = False
    """show each option of a decision with its static cost"""
    curriculum: str = "rounds"
    seed: int = 0

    def choices(self) -> list[list[Workload]]:
        """For each kernel its workloads; raises what `WorkloadSampler` raises."""
        from tirgym.envs.strategies import WorkloadSampler

        return WorkloadSampler(list(self.kernels), self.shapes).choices

    def make(self) -> CompilerEnv:
        """An environment without curriculum.

        Raises UnknownNameError for an id or a reward, InvalidValueError for a reward class that
        cannot be had, and what the environment raises.
        """
        if self.env not in ENV_IDS:
            raise UnknownNameError("environment", self.env, ENV_IDS)
        arguments: dict[str, Any] = {
            "kernel": list(self.kernels),
            "shape": self.shapes,
            "observation": self.observation,
            "reward": self._reward(),
            "num_threads": self.num_threads,
            "arch": self.arch,
            "store": self.store,
        }
        arguments |= {name: getattr(self, name) for name in _GIVEN if getattr(self, name)}
        if self.reward == "model":
            arguments |= self._asked_model()
        made = gymnasium.make(self.env, disable_env_checker=True, **arguments)
        return cast("CompilerEnv", made.unwrapped)

    def make_all(self, indices: Sequence[int]) -> list[CurriculumEnv]:
        """The training environments with these numbers, each with a curriculum of its own.

        They share an evaluator and what is kept between episodes; the first one's `close` ends it.
        """
        choices, first = self.choices(), self.make()
        played = [first, *(first.fork() for _ in indices[1:])]
        return [
            CurriculumEnv(env, make_curriculum(self.curriculum, choices, self.seed, index), choices)
            for env, index in zip(played, indices, strict=True)
        ]

    def _asked_model(self) -> dict[str, Any]:
        """The reward of a model, and the target that it knows, on which nothing has to run.

        Where a measured episode is paid at its end, so is this one.

        Raises what `PerformanceModel.load` raises.
        """
        from tirgym.performance_model.model import PerformanceModel
        from tirgym.rewards.model_speedup import ModelSpeedup

        model = PerformanceModel.load(str(self.model))
        target = model.header.target
        for name in ("num_threads", "arch"):
            known, asked = getattr(target, name), getattr(self, name)
            if asked not in (known, None):
                raise InvalidValueError(name, asked, f"{known}, for which {self.model} was trained")
        paid = ModelSpeedup(model, doubt=DOUBT, every_step=ENV_IDS[self.env] != "final")
        return {"reward": paid, "arch": target.arch}

    def _reward(self) -> str | Reward:
        if self.reward in TRAIN_REWARDS:
            return ENV_IDS[self.env] if self.reward == "measured" else self.reward
        module, colon, attribute = self.reward.partition(":")
        if not colon:
            raise UnknownNameError("reward", self.reward, (*TRAIN_REWARDS, "package.module:Class"))
        try:
            made: Reward = getattr(import_module(module), attribute)()
        except (ImportError, AttributeError, TypeError) as error:
            accepted = f"package.module:Class that is made without arguments ({error})"
            raise InvalidValueError("reward", self.reward, accepted) from None
        return made
