"""Trick: be paid twice for one gain: circles, no-ops, luck, and a crash after the harvest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fakes import FakeCost, FakeEvaluator, passed
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LIMITS, SMALL, TARGET

from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.status import FATAL, Status
from tirgym.harness.transforms import default_vocabulary

VOCABULARY = default_vocabulary(limits=LIMITS)
SPLIT, FUSE, OTHER = "Split(loop=0, factor=2)", "Fuse(loop=0)", "Split(loop=2, factor=2)"


class Noisy:
    """Speedup 2 once loop 0 is split, else 1; each call is off by up to 20 %; code equals IR."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        true = 2.0 if len(program.steps) % 2 else 1.0
        luck = float(np.exp(self.rng.uniform(-0.2, 0.2)))
        return passed(true * luck, program.ir_key, f"code-{program.ir_key}", level)

    def close(self) -> None:
        """Nothing to close."""


def episode(evaluator: Any, texts: Sequence[str], reward: str = "measured") -> list[float]:
    """Rewards of an episode that plays `texts` as far as it goes."""
    env = ScheduleEnv(
        SMALL["matmul"],
        reward=reward,
        cost=FakeCost(),
        vocabulary=VOCABULARY,
        arch=TARGET.arch,
        evaluator=evaluator if reward == "measured" else None,
        max_steps=1000,
    )
    env.reset(seed=0)
    rewards = []
    for text in texts:
        _, reward_, terminated, _, _ = env.apply(text)
        rewards.append(float(reward_))
        if terminated:
            break
    return rewards


@given(seed=st.integers(0, 2**32 - 1), rounds=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_circles_harvest_no_noise(seed: int, rounds: int) -> None:
    """Going round and round through the same machine code ends where the first round ended."""
    once = sum(episode(Noisy(seed), [SPLIT, FUSE] * 2))
    often = sum(episode(Noisy(seed), [SPLIT, FUSE] * (rounds + 1)))
    assert often == pytest.approx(once, abs=1e-12)


def test_a_no_op_measured_again_pays_exactly_nothing() -> None:
    """Another IR of the same machine code, whatever the second clock says."""
    lucky = [passed(2.0, code_key="same"), passed(9.0, code_key="same")]
    assert episode(FakeEvaluator(lucky), [SPLIT, OTHER]) == [pytest.approx(np.log(2)), 0.0]


@pytest.mark.parametrize("status", sorted(FATAL))
def test_what_was_harvested_before_a_crash_is_taken_back(status: Status) -> None:
    rewards = episode(FakeEvaluator([8.0, status]), [SPLIT, OTHER])
    assert sum(rewards) == -1.0


def test_a_full_check_at_the_end_takes_a_lucky_training_pass_back() -> None:
    rewards = episode(FakeEvaluator([8.0, Status.WRONG_RESULT]), [SPLIT, "STOP"])
    assert sum(rewards) == -1.0


@pytest.mark.parametrize("rounds", [1, 5])
def test_circles_earn_nothing_with_predicted_costs(rounds: int) -> None:
    """Costs that depend on the program alone: the way back costs what the way there paid."""
    env = ScheduleEnv(
        SMALL["matmul"], reward="static", vocabulary=VOCABULARY, arch=TARGET.arch, max_steps=1000
    )
    env.reset(seed=0)
    start = env.program.ir_key
    total = sum(float(env.apply(text)[1]) for text in (SPLIT, FUSE) * rounds)
    if env.program.ir_key == start:
        assert total == pytest.approx(0.0, abs=1e-9)
    else:
        again = sum(float(env.apply(text)[1]) for text in (SPLIT, FUSE))
        assert again == pytest.approx(0.0, abs=1e-9)
