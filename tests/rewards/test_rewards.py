"""Rewards telescope, cannot be farmed, and lose what they gained after a fatal verdict."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import pytest
from fakes import FakeCost, passed, verdict
from hypothesis import given
from hypothesis import strategies as st

from tirgym.errors import EvaluationError, InvalidValueError
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.status import FATAL, Status
from tirgym.rewards.final_speedup import FinalSpeedup
from tirgym.rewards.log_speedup import LogSpeedup
from tirgym.rewards.reward import EpisodeReward, Transition, on_grid
from tirgym.rewards.static_cost import StaticCost


class Steps:
    """Stands for a program; rewards look at nothing but identity, the cost fake at `steps`."""

    def __init__(self, n: int = 0) -> None:
        self.steps = (None,) * n


def program(n: int = 0) -> Program:
    return cast(Program, Steps(n))


HERE = program()


def move(
    evaluation: Evaluation | None, *, rejected: bool = False, final: bool = False
) -> Transition:
    return Transition(HERE, HERE, None, rejected, final, evaluation)


def play(reward: EpisodeReward, moves: list[Transition]) -> list[float]:
    reward.reset(HERE)
    return [reward.step(one) for one in moves]


speedups = st.floats(1e-4, 1e4)
quiet = sorted(set(Status) - FATAL - {Status.PASSED, Status.TOO_SLOW})


def evaluations(statuses: list[Status]) -> st.SearchStrategy[Evaluation]:
    return st.one_of(
        st.builds(passed, speedups, code_key=st.sampled_from("abcdef"), spread=st.floats(0, 0.3)),
        st.builds(verdict, st.sampled_from(statuses)),
        st.builds(
            verdict,
            st.just(Status.TOO_SLOW),
            slowdown_limit=st.floats(1.5, 1e4),
            code_key=st.just(""),
        ),
    )


moves = st.lists(
    st.builds(
        move,
        st.none() | evaluations(quiet),
        rejected=st.booleans(),
    ),
    max_size=40,
)


@given(moves)
def test_the_return_is_the_paid_log_speedup_less_the_penalties_exactly(
    played: list[Transition],
) -> None:
    reward = LogSpeedup()
    total = 0.0
    for one in play(reward, played):
        total += one
    rejected = sum(one.rejected for one in played)
    assert total == reward.total
    assert total == on_grid(math.log(reward.speedup)) - rejected * reward.illegal_penalty


@given(moves, st.sampled_from(sorted(FATAL)), st.floats(0, 50), st.booleans())
def test_a_fatal_verdict_takes_what_was_gained_and_costs_the_penalty(
    played: list[Transition], status: Status, penalty: float, rejected: bool
) -> None:
    """Never does a wrong program pay: not even where more than the penalty was lost before."""
    reward = LogSpeedup(penalty=penalty)
    *rewards, last = play(reward, [*played, move(verdict(status), rejected=rejected, final=True)])
    before = sum(rewards)
    assert before + last == reward.total == min(0.0, before) - reward.penalty
    assert last <= -reward.penalty
    assert reward.speedup == 1.0
    assert abs(reward.penalty - penalty) <= 2**-30


@given(st.lists(speedups, min_size=1, max_size=8), st.integers(2, 5))
def test_walking_in_circles_earns_nothing(around: list[float], rounds: int) -> None:
    """Split, fuse, split, fuse: from the second round on, a round pays exactly 0."""
    circle = [move(passed(s, code_key=f"code{i}")) for i, s in enumerate(around)]
    rewards = play(LogSpeedup(), circle * rounds)
    for n in range(1, rounds):
        assert sum(rewards[n * len(circle) : (n + 1) * len(circle)]) == 0.0


@given(speedups, st.lists(speedups, min_size=1, max_size=10))
def test_measuring_the_same_machine_code_again_pays_exactly_zero(
    first: float, again: list[float]
) -> None:
    rewards = play(LogSpeedup(), [move(passed(s, code_key="same")) for s in (first, *again)])
    assert rewards[1:] == [0.0] * len(again)


def test_differences_inside_the_noise_floor_pay_nothing_and_do_not_creep() -> None:
    creeping = [move(passed(1.02 ** (n + 1), code_key=f"c{n}")) for n in range(4)]
    rewards = play(LogSpeedup(noise_floor=0.03), creeping)
    assert rewards[0] == 0.0
    assert rewards[1] == pytest.approx(2 * math.log(1.02))  # against the start, not against 1.02
    assert rewards[2] == 0.0
    assert sum(rewards) == pytest.approx(4 * math.log(1.02))


def test_a_wide_interval_widens_the_noise_floor() -> None:
    assert play(LogSpeedup(), [move(passed(1.2, spread=0.25))]) == [0.0]
    assert play(LogSpeedup(), [move(passed(1.2, spread=0.01))])[0] > 0.15


def test_too_slow_pays_as_at_the_limit_and_the_way_back_pays_it_back() -> None:
    slow = verdict(Status.TOO_SLOW, code_key="slow", slowdown_limit=10.0)
    down, up = play(LogSpeedup(), [move(slow), move(passed(2.0, code_key="good"))])
    assert down == pytest.approx(-math.log(10))
    assert up == pytest.approx(math.log(20))
    broken = Evaluation(Status.TOO_SLOW, "ir")
    with pytest.raises(EvaluationError, match="slowdown limit"):
        play(LogSpeedup(), [move(broken)])


@pytest.mark.parametrize(
    "status", [Status.NOISY, Status.SUSPECT, Status.INCOMPLETE, Status.SEMANTIC_ONLY]
)
def test_verdicts_without_a_number_pay_nothing_and_keep_the_reference(status: Status) -> None:
    first, none, last = play(
        LogSpeedup(),
        [
            move(passed(2.0, code_key="a")),
            move(verdict(status)),
            move(passed(4.0, code_key="b")),
        ],
    )
    assert none == 0.0
    assert first + last == pytest.approx(math.log(4))


def test_rejected_actions_cost_the_illegal_penalty_and_nothing_else() -> None:
    reward = LogSpeedup(illegal_penalty=0.25)
    assert play(reward, [move(None, rejected=True), move(passed(2.0))]) == [
        -0.25,
        pytest.approx(math.log(2)),
    ]
    assert reward.speedup == pytest.approx(2.0)


def test_a_full_measurement_at_the_end_settles_the_return() -> None:
    rewards = play(
        LogSpeedup(),
        [
            move(passed(3.0, code_key="x")),
            move(passed(2.0, code_key="x", level=Level.FULL), final=True),
        ],
    )
    assert sum(rewards) == pytest.approx(math.log(2))


def test_final_speedup_pays_once() -> None:
    rewards = play(FinalSpeedup(), [move(None), move(passed(3.0)), move(passed(2.0), final=True)])
    assert rewards == [0.0, 0.0, pytest.approx(math.log(2))]
    assert sum(play(FinalSpeedup(), [move(verdict(Status.CRASH), final=True)])) == -1.0


def test_rewards_say_whether_they_pay_at_the_end() -> None:
    assert FinalSpeedup().pays_at_end
    assert not LogSpeedup().pays_at_end
    assert not StaticCost(FakeCost()).pays_at_end
    assert StaticCost(FakeCost(), every_step=False).pays_at_end


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20))
def test_static_cost_telescopes_to_the_last_prediction(depths: list[int]) -> None:
    reward, cost = StaticCost(FakeCost()), FakeCost()
    programs = [program(n) for n in depths]
    start = program()
    reward.reset(start)
    total, before = 0.0, start
    for after in programs:
        total += reward.step(Transition(before, after, None))
        before = after
    expected = math.log(cost.predict_us(start) / cost.predict_us(programs[-1]))
    assert total == reward.total == on_grid(expected)


def test_a_no_op_costs_the_static_model_no_call() -> None:
    cost = FakeCost()
    reward = StaticCost(cost)
    reward.reset(HERE)
    assert reward.step(move(None, rejected=True)) == -reward.illegal_penalty
    assert cost.calls == 1


@pytest.mark.parametrize(
    "make", [LogSpeedup, FinalSpeedup, lambda **kwargs: StaticCost(FakeCost(), **kwargs)]
)
def test_copies_are_independent_and_bad_penalties_are_refused(make: Any) -> None:
    reward = make(penalty=2.0)
    reward.reset(HERE)
    reward.step(move(passed(2.0, code_key="a"), final=True))
    fork = copy.copy(reward)
    fork.step(move(verdict(Status.CRASH), final=True))
    assert fork.total == -2.0 != reward.total
    reward.step(move(passed(4.0, code_key="b"), final=True))
    assert fork.speedup != reward.speedup or isinstance(reward, StaticCost)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InvalidValueError, match="penalty"):
            make(penalty=bad)
        with pytest.raises(InvalidValueError, match="illegal_penalty"):
            make(illegal_penalty=bad)


def test_a_bad_noise_floor_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="noise_floor"):
        LogSpeedup(noise_floor=-0.1)
