"""`TrainArgs`: everything that a training is made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tirgym.baselines.ppo.curriculum import CURRICULA
from tirgym.baselines.ppo.env_spec import ENV_IDS, TRAIN_REWARDS, EnvSpec
from tirgym.baselines.ppo.policy_kinds import POLICY_KINDS, PolicyKind
from tirgym.envs.strategies import SHAPE_SETS
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.shipped_store import is_shipped
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import SUITES, list_kernels, load_workload

__all__ = ["TrainArgs"]

MAY_CHANGE = frozenset(
    {"steps", "out", "workers", "eval_every", "checkpoint_every", "learner_threads"}
)
"""Fields that a training may be resumed with other values of."""


@dataclass(frozen=True)
class TrainArgs:
    """A training; the same arguments make the same weights where rewards are deterministic."""

    agent: str = "ppo-gnn"
    env: str = "tirgym/Decision-v0"
    reward: str = "static"
    """static, model, measured, replay, or "package.module:Class" """
    model: str | None = None
    """path of a trained performance model, for the reward model; it may have learned from families that
    are trained on alone"""
    suite: str = "core-v0"
    split: str = "train"
    """families that are trained on"""
    kernels: tuple[str, ...] = ()
    """instead of those of the split: names, URIs, or file.py:NAME"""
    shapes: str | None = None
    """that are drawn from (`tirgym.envs.strategies.SHAPE_SETS`); None: train, or with a replay those
    that the store holds"""
    curriculum: str = "rounds"
    steps: int = 200_000
    """environment steps, rounded up to whole rollouts"""
    envs: int = 16
    workers: int | None = None
    """processes that step the environments; None: one a core, none for a single environment"""
    seed: int = 0
    out: str = "runs/train"
    """folder of the checkpoints, logs and pictures"""
    store: str | None = None
    """measurement store, or the name of one that ships; None: the user's"""
    imitate: str | None = None
    """measurement store, or the name of one that ships, whose best walks about the kernels that are trained
    on a policy learns to choose like before it plays (Decision environments)"""
    imitation_epochs: int = 10
    """passes over those walks"""
    missing: str | None = None
    """what a replay does with states that the store lacks: measure or refuse; None: what fits"""
    observation: str | None = None
    """None: the agent's own"""
    num_threads: int = 1
    """of the target"""
    arch: str | None = None
    """of the target; None: this machine's, with a model or a replay the one of the model or store"""
    max_steps: int | None = None
    """of an episode; None: the environment's own"""
    candidate_costs: bool = False
    """show each option of a decision with its static cost, which takes as long as trying each"""
    eval_split: str = "val"
    eval_kernels: tuple[str, ...] = ()
    """instead of those of the split"""
    eval_every: int = 20_000
    """steps"""
    checkpoint_every: int = 10_000
    """steps"""
    learner_threads: int = 1
    device: str = "cpu"

    rollout: int = 1024
    """steps of all environments between updates"""
    batch: int = 128
    epochs: int = 4
    learning_rate: float = 1e-3
    gamma: float = 1.0
    """1: episodes are short, and returns are log speedups"""
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    max_grad_norm: float = 0.5

    def check(self) -> None:
        """Raise UnknownNameError or InvalidValueError for what cannot be trained."""
        tables: tuple[tuple[str, str, Iterable[str]], ...] = (
            ("agent", self.agent, POLICY_KINDS),
            ("environment", self.env, ENV_IDS),
            ("suite", self.suite, SUITES),
            ("split", self.split, list(Split)),
            ("split", self.eval_split, list(Split)),
            ("shapes", self.shapes or SHAPE_SETS[0], SHAPE_SETS),
            ("curriculum", self.curriculum, CURRICULA),
        )
        for kind, name, accepted in tables:
            if name not in accepted:
                raise UnknownNameError(kind, name, accepted)
        if self.reward not in TRAIN_REWARDS and ":" not in self.reward:
            accepted_rewards = (*TRAIN_REWARDS, "package.module:Class")
            raise UnknownNameError("reward", self.reward, accepted_rewards)
        self.kind.require_observation(self.agent, self.shown)
        self._check_model()
        self._check_replay()
        if self.imitate is not None and "Decision" not in self.env:
            accepted = "a Decision environment, whose answers stores hold walks of"
            raise InvalidValueError("env with imitate", self.env, accepted)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidValueError(name, value, f"a whole number of at least {least}")
        if self.rollout % self.envs or self.rollout % self.batch:
            multiple = f"a multiple of envs ({self.envs}) and of batch ({self.batch})"
            raise InvalidValueError("rollout", self.rollout, multiple)
        for name in ("learning_rate", "max_grad_norm", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidValueError(name, value, "a positive number")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidValueError(name, getattr(self, name), "a number from 0 to 1")

    def _check_replay(self) -> None:
        """Raise InvalidValueError for a strict replay in whose episodes hardly anything can be earned."""
        strict = self.reward == "replay" and self.missing != "measure"
        if strict and "Decision" not in self.env and is_shipped(self.store):
            accepted = (
                f"a Decision environment: {self.store} was recorded in the decision space, Schedule "
                "episodes hardly ever end at its programs; or --missing measure, or a store of your "
                "own (tirgym store record --space both)"
            )
            raise InvalidValueError("env with a replay of what ships", self.env, accepted)

    def _check_model(self) -> None:
        """Raise InvalidValueError for a model that has no use, or that saw what is held out here."""
        if (self.reward == "model") != (self.model is not None):
            accepted = (
                "the path of a model together with the reward model, and neither without the other"
            )
            raise InvalidValueError("model", self.model, accepted)
        if self.model is None:
            return
        from tirgym.performance_model.model import PerformanceModel

        names = self.kernels or _kernels(self.suite, self.split)
        trained = {load_workload(name).kernel.family for name in names}
        seen = set(PerformanceModel.load(self.model).header.families) - trained
        if seen:
            accepted = (
                f"one that learned from {', '.join(sorted(trained))} alone, which are trained on"
            )
            saw = f"{self.model}, which saw {', '.join(sorted(seen))}"
            raise InvalidValueError("model", saw, accepted)

    @property
    def kind(self) -> PolicyKind:
        """The kind of policy that the agent is."""
        return POLICY_KINDS[self.agent]

    @property
    def shown(self) -> str:
        """Name of the observation."""
        return self.observation or self.kind.observation

    @property
    def total_steps(self) -> int:
        """Steps in whole rollouts."""
        return math.ceil(self.steps / self.rollout) * self.rollout

    def spec(self) -> EnvSpec:
        """The training environments; a replay plays the workloads that the store holds.

        Raises InvalidValueError if it holds none of the split.
        """
        return self._spec(self.kernels, self.split, self.shapes or "train")

    def eval_spec(self) -> EnvSpec:
        """The environments of evaluations: held-out kernels at their default shapes."""
        return self._spec(self.eval_kernels, self.eval_split, "default")

    def shown_workloads(self) -> list[str]:
        """URIs of the workloads that are imitated: those of the training that the store has walks of.

        Raises InvalidValueError if it has none.
        """
        return list(_stored(self.imitate, self.kernels, self.split, self.target()))

    def target(self) -> Target:
        """What the environments play on: with a model what it knows, with a replay what the store has."""
        from tirgym.envs.replay import replay_target
        from tirgym.harness.backend import backend

        if self.model is not None:
            from tirgym.performance_model.model import PerformanceModel

            return PerformanceModel.load(self.model).header.target
        here = backend("llvm").target(self.arch, self.num_threads)
        if self.reward != "replay":
            return here
        stored = replay_target(self.store, here)
        if self.arch not in (None, stored.arch):
            raise InvalidValueError(
                "arch", self.arch, f"{stored.arch}, of which the store has numbers"
            )
        return stored

    def _spec(self, kernels: tuple[str, ...], split: str, shapes: str) -> EnvSpec:
        if self.reward == "replay" and self.shapes is None:
            kernels, shapes = _stored(self.store, kernels, split, self.target()), "default"
        return EnvSpec(
            env=self.env,
            kernels=kernels or _kernels(self.suite, split),
            shapes=shapes,
            observation=self.shown,
            reward=self.reward,
            model=self.model,
            store=self.store,
            num_threads=self.num_threads,
            arch=self.arch,
            max_steps=self.max_steps,
            missing=self.missing,
            candidate_costs=self.candidate_costs,
            curriculum=self.curriculum,
            seed=self.seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainArgs:
        """The arguments whose `to_dict` is `data`; raises ValueError or TypeError.

        What a training of an earlier version did not have yet takes its default.
        """
        names = {field.name for field in fields(cls)}
        missing = names - _SINCE.keys() - set(data)
        if odd := missing | (set(data) - names):
            raise ValueError(f"missing or unexpected: {', '.join(sorted(odd))}")
        lists = {name: tuple(data[name]) for name in ("kernels", "eval_kernels")}
        return cls(**{**_SINCE, **data, **lists})

    def require_same(self, before: TrainArgs) -> None:
        """Raise InvalidValueError where a training with `before` cannot be gone on with."""
        for field in fields(self):
            if field.name in MAY_CHANGE:
                continue
            here, there = getattr(self, field.name), getattr(before, field.name)
            if here != there:
                accepted = f"{there!r}, with which {Path(self.out)} was begun, or another folder"
                raise InvalidValueError(field.name, here, accepted)


_SINCE = {"arch": None}
"""Arguments that came later, as trainings before them were made."""
_LEAST = {
    "steps": 1,
    "envs": 1,
    "workers": 0,
    "seed": 0,
    "num_threads": 1,
    "max_steps": 1,
    "eval_every": 1,
    "checkpoint_every": 1,
    "learner_threads": 1,
    "rollout": 2,
    "batch": 2,
    "epochs": 1,
    "imitation_epochs": 1,
}


def _kernels(suite: str, split: str) -> tuple[str, ...]:
    found = list_kernels(suite, Split(split))
    return tuple(f"{kernel.suite}/{kernel.name}" for kernel in found)


def _stored(
    store: str | None, kernels: Sequence[str], split: str, target: Target
) -> tuple[str, ...]:
    """Workloads of kernels, or of a split, that a store holds answers for, on `target`.

    URIs stay as they are. Raises InvalidValueError where it holds none.
    """
    from tirgym.envs.replay import replay_workloads

    where = store or "the user's store"
    remedy = "tirgym store show lists them; with shapes given, what is missing may be measured"
    if not kernels:
        found = tuple(replay_workloads(store, split, target))
        if not found:
            accepted = f"one with answers for kernels of the {split} split ({remedy})"
            raise InvalidValueError("store", where, accepted)
        return found
    held = replay_workloads(store, target=target, files=True)
    uris: list[str] = []
    for name in kernels:
        kernel = load_workload(name).kernel
        start = f"tirgym://{kernel.suite}/{kernel.name}?"
        shapes = [name] if name.startswith("tirgym:") else [u for u in held if u.startswith(start)]
        if not shapes:
            accepted = f"one that {where} holds answers for ({remedy})"
            raise InvalidValueError("kernel to replay", name, accepted)
        uris += shapes
    return tuple(uris)
