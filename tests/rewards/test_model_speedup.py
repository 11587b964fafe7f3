"""`ModelSpeedup`: pays what a model expects, less its doubt; and `reward="model"`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import FakeCost
from numpy.typing import NDArray
from small import LIMITS, SMALL, make

from tirgym.envs.strategies import make_reward
from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.program import Program
from tirgym.harness.transforms import default_vocabulary
from tirgym.rewards.model_speedup import ModelSpeedup
from tirgym.rewards.reward import Needs, Transition

SPLIT = "Split(loop=1, factor=4)"


class TwoMembers:
    """Members that agree on the unscheduled program and differ by 0.2 for each step."""

    def opinions(self, programs: Sequence[Program]) -> NDArray[np.float64]:
        steps = np.array([float(len(program.steps)) for program in programs])
        return np.stack([0.4 * steps, 0.6 * steps])

    def predict_us(self, program: Program) -> float:
        return float(100.0 * np.exp(-0.5 * len(program.steps)))


class Counting(TwoMembers):
    """Counts the programs that it is asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def opinions(self, programs: Sequence[Program]) -> NDArray[np.float64]:
        self.asked += len(programs)
        return super().opinions(programs)


def step(reward: ModelSpeedup, before: Program, after: Program) -> float:
    return reward.step(Transition(before, after, None))


@pytest.mark.parametrize(("doubt", "paid"), [(0.0, 0.5), (1.0, 0.4), (2.0, 0.3)])
def test_it_pays_the_mean_less_the_doubt_and_takes_it_back(doubt: float, paid: float) -> None:
    start, after = make(SMALL["add"]), make(SMALL["add"], SPLIT)
    reward = ModelSpeedup(TwoMembers(), doubt=doubt)
    reward.reset(start)
    assert reward.needs is Needs.NOTHING
    assert step(reward, start, after) == pytest.approx(paid, abs=1e-8)
    assert reward.speedup == pytest.approx(np.exp(paid))
    assert step(reward, after, after) == 0.0
    assert step(reward, after, start) == pytest.approx(-paid, abs=1e-8)
    assert reward.total == 0.0


@pytest.mark.parametrize("doubt", [-1.0, float("nan"), float("inf")])
def test_a_doubt_below_zero_is_refused(doubt: float) -> None:
    with pytest.raises(InvalidValueError, match="doubt"):
        ModelSpeedup(TwoMembers(), doubt=doubt)


@pytest.mark.parametrize("cost", [None, FakeCost()])
def test_the_name_needs_a_model(cost: Any) -> None:
    with pytest.raises(InvalidValueError, match="tirgym model train"):
        make_reward("model", cost)


@pytest.mark.parametrize("name", ["tirgym/Schedule-v0", "tirgym/Decision-v0"])
def test_environments_are_paid_by_a_model(name: str) -> None:
    arguments: dict[str, Any] = {"kernel": SMALL["add"], "arch": "skylake-avx512"}
    if "Schedule" in name:
        arguments["vocabulary"] = default_vocabulary(limits=LIMITS)
    env = gymnasium.make(name, reward="model", cost=TwoMembers(), **arguments)
    _, info = env.reset(seed=0)
    env.action_space.seed(0)
    total, over = 0.0, False
    while not over:
        action = env.action_space.sample(info["action_mask"])
        _, reward, terminated, truncated, info = env.step(action)
        total, over = total + float(reward), terminated or truncated
    steps = len(env.unwrapped.program.steps)  # type: ignore[attr-defined]
    assert total == pytest.approx(0.5 * steps, abs=1e-6)


def test_a_path_that_holds_no_model_is_said_when_the_environment_is_made(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="there is no such file"):
        gymnasium.make("tirgym/Schedule-v0", reward="model", cost=str(tmp_path / "none"))


@pytest.mark.parametrize("steps", [1, 3])
def test_paid_at_the_end_it_is_the_same_return_for_one_opinion(steps: int) -> None:
    programs = [make(SMALL["add"])]
    table = default_vocabulary(limits=LIMITS)
    for _ in range(steps):
        legal = np.flatnonzero(programs[-1].legal_mask(table))
        programs.append(programs[-1].apply(table[int(legal[0])]))
    returns = []
    for every_step in (True, False):
        model = Counting()
        reward = ModelSpeedup(model, doubt=1.0, every_step=every_step)
        reward.reset(programs[0])
        paid = [step(reward, *pair) for pair in pairwise(programs)]
        paid.append(reward.step(Transition(programs[-1], programs[-1], None, final=True)))
        assert every_step or not any(paid[:-1])
        assert model.asked == (1 + steps if every_step else 2)
        returns.append(sum(paid))
        assert reward.total == returns[-1]
    assert returns[0] == returns[1] != 0.0
