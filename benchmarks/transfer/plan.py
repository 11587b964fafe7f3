"""`TransferPlan`: which policies are trained, who plays, and on what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from tirgym.baselines.ppo.policy_kinds import POLICY_KINDS
from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.benchmarks.leaderboard.entrants import Entrant, entrant
from tirgym.errors import DamagedFileError, InvalidValueError, UnknownNameError
from tirgym.harness.backend import backend
from tirgym.harness.target import Target
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import list_kernels, load_workload

__all__ = ["GROUPS", "PLAYERS", "TRIALS", "TransferPlan", "held_out"]

TRIALS = (1, 16, 64)
"""1 is the policy's own answer without search."""

PLAYERS: Mapping[str, str] = {
    "static": "static",
    "random": "random,space=decision",
    "random-transforms": "random",
    "greedy": "greedy",
    "beam": "beam",
    "ppo-mlp": "ppo-mlp",
    "ppo-gnn-shuffled": "ppo-gnn",
    "ppo-gnn": "ppo-gnn",
}
"""Name in the tables → row of a board. Static takes the compiler's own choices, which a policy sees
marked; random answers decisions, as the policies do."""

GROUPS = ("families", "shapes")
"""Held-out families at their default shape, and families of the training at held-out shapes."""

_EVALUATIONS = 25
"""Points of a learning curve, about."""

_SHAPES_OF = ("matmul", "conv2d", "layernorm", "row_sum", "transpose", "gelu")
"""Kernels of the train split whose first holdout shape is played."""


def held_out() -> dict[str, str]:
    """Workload URI → group: every kernel of the test split, and the holdout shapes of some others."""
    found = {Workload.of(kernel).uri: GROUPS[0] for kernel in list_kernels("core-v0", Split.TEST)}
    for name in _SHAPES_OF:
        kernel = load_workload(name).kernel
        found[Workload.of(kernel, kernel.holdout[0]).uri] = GROUPS[1]
    return found


@dataclass(frozen=True)
class TransferPlan:
    """Everything that a transfer study is made from; kept as `plan.json` in its folder."""

    steps: int = 500_000
    """of each training"""
    seeds: int = 3
    """trainings of each policy, and searches of each player on each workload"""
    reward: str = "static"
    model: str | None = None
    """path of the performance model, with the reward model"""
    imitate: str | None = TrainArgs.imitate
    """store whose best walks of the train families policies imitate first"""
    learning_rate: float = TrainArgs.learning_rate
    entropy: float = TrainArgs.entropy
    env: str = "tirgym/Decision-v0"
    arch: str | None = None
    """of the machine code that is played for, such as that of the model; None: this CPU's"""
    workloads: tuple[str, ...] = ()
    """URIs; () means all of `held_out()`"""
    players: tuple[str, ...] = tuple(PLAYERS)
    trials: tuple[int, ...] = TRIALS

    def __post_init__(self) -> None:
        """Raise InvalidValueError or UnknownNameError for what cannot be studied."""
        for name in ("steps", "seeds"):
            if getattr(self, name) < 1:
                raise InvalidValueError(name, getattr(self, name), "a whole number of at least 1")
        for player in self.players:
            if player not in PLAYERS:
                raise UnknownNameError("player", player, PLAYERS)
        known = held_out()
        for uri in self.workloads:
            if uri not in known:
                raise UnknownNameError("held-out workload", uri, known)
        if list(self.trials) != sorted(set(self.trials)) or self.trials[0] < 1:
            raise InvalidValueError("trials", self.trials, "rising numbers of at least 1")
        _ = self.target

    @property
    def target(self) -> Target:
        """What is played for; raises InvalidValueError for an unknown `arch`."""
        return backend("llvm").target(self.arch)

    @property
    def groups(self) -> dict[str, str]:
        """Workload URI → group, of those that are played."""
        known = held_out()
        return {uri: known[uri] for uri in self.workloads or known}

    @property
    def policies(self) -> tuple[str, ...]:
        """The players that are trained."""
        return tuple(name for name in self.players if name in POLICY_KINDS)

    def training(self, folder: Path, policy: str, seed: int) -> TrainArgs:
        """The training of one policy, on the train families alone."""
        return TrainArgs(
            agent=policy,
            env=self.env,
            reward=self.reward,
            model=self.model,
            imitate=self.imitate,
            learning_rate=self.learning_rate,
            entropy=self.entropy,
            steps=self.steps,
            eval_every=max(1, self.steps // _EVALUATIONS),
            seed=seed,
            out=str(folder / "train" / f"{policy}-{seed}"),
        )

    def player(self, folder: Path, name: str, seed: int) -> Entrant:
        """Who plays as `name` with this seed; a policy plays the weights of its training's end."""
        row = PLAYERS[name]
        if name in POLICY_KINDS:
            out = Path(self.training(folder, name, seed).out)
            row = f"{row},checkpoint={out / 'policy.safetensors'}"
        return replace(entrant(row), label=name)

    def keep(self, folder: Path) -> None:
        """Write `plan.json`, or raise InvalidValueError where another plan is under way."""
        path = folder / "plan.json"
        if path.exists():
            before = _load(path)
            for field in fields(self):
                here, there = getattr(self, field.name), getattr(before, field.name)
                if here != there:
                    accepted = f"{there!r}, with which {folder} was begun, or another folder"
                    raise InvalidValueError(field.name, here, accepted)
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")


def _load(path: Path) -> TransferPlan:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(data[name]) for name in ("workloads", "players", "trials")}
        return TransferPlan(**{**data, **lists})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError(str(path), "plan of a transfer study", str(error)) from None
