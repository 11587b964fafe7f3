"""`DecisionEnv`: what an answer does, what ends an episode, what search can do with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import FakeCost, FakeEvaluator
from gymnasium.error import InvalidAction, ResetNeeded
from small import SMALL, TARGET

from tirgym.envs.decision import DecisionEnv
from tirgym.envs.wrappers import EarlyStop
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.decisions import (
    SPACES,
    CallbackAgent,
    DecisionPoint,
    Guard,
    RandomAgent,
    StaticAgent,
    design_space,
)
from tirgym.harness.evaluation import Level
from tirgym.harness.replay import replay
from tirgym.harness.status import Status
from tirgym.spaces.decision_space import OPTION_FEATURES
from tirgym.spaces.graph import encoder_for


def static(**keywords: Any) -> DecisionEnv:
    made: dict[str, Any] = {"kernel": SMALL["matmul"], "reward": "static", "arch": TARGET.arch}
    return DecisionEnv(**{**made, **keywords})


def finished(env: DecisionEnv, agent: Any) -> tuple[float, dict[str, Any]]:
    """Return and last info of an episode that `agent` decides."""
    info: dict[str, Any] = {}
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, info = env.decide(agent)
        total, over = total + reward, terminated or truncated
    return total, info


@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_an_episode_of_static_choices_is_the_static_program(kernel: str) -> None:
    env = static(kernel=SMALL[kernel])
    env.reset(seed=0)
    expected = design_space(env.program).finish().program
    total, info = finished(env, StaticAgent())
    assert env.program.ir_key == expected.ir_key == info["ir_key"]
    assert total == pytest.approx(np.log(info["speedup"]))
    assert info["question"] == ""
    trace = env.trace("static")
    assert replay(trace).ir_key == expected.ir_key
    with pytest.raises(ResetNeeded, match="over"):
        env.step(0)


def test_masks_are_the_options_and_others_change_nothing() -> None:
    env = static()
    _, info = env.reset(seed=0)
    question = env.walk.question
    assert question is not None
    assert info["action_mask"].sum() == len(question.options)
    assert env.action_masks().dtype == np.bool_
    before = env.walk
    _, reward, terminated, truncated, info = env.step(len(question.options))
    assert (info["legal"], info["status"], terminated, truncated) == (0, "illegal", False, False)
    assert question.key in info["message"]
    assert reward == -env.state.reward.illegal_penalty  # type: ignore[attr-defined]
    assert env.walk is before
    with pytest.raises(InvalidAction, match="from 0 to 31"):
        env.step(32)


def test_the_last_answer_ends_the_episode_with_a_full_verdict() -> None:
    evaluator = FakeEvaluator(otherwise=lambda program: 3.0)
    env = static(reward="final", evaluator=evaluator)
    env.reset(seed=0)
    total, info = finished(env, RandomAgent(1))
    assert [level for _, level in evaluator.calls] == [Level.FULL]
    assert total == pytest.approx(np.log(3.0))
    assert (info["verified"], info["status"]) == (1, "passed")
    result = env.trace().result
    assert result is not None
    assert result.speedup == 3.0


def test_measured_rewards_judge_every_answer_that_changes_the_program() -> None:
    evaluator = FakeEvaluator()
    env = static(reward="measured", evaluator=evaluator)
    env.reset(seed=0)
    total, info = finished(env, StaticAgent())
    assert total == pytest.approx(np.log(info["speedup"]))
    keys = [key for key, _ in evaluator.calls]
    assert len(set(keys)) >= len(keys) - 1
    assert evaluator.calls[-1][1] is Level.FULL


def test_a_wrong_result_costs_the_penalty() -> None:
    env = static(reward="final", evaluator=FakeEvaluator([Status.WRONG_RESULT]))
    env.reset(seed=0)
    total, info = finished(env, StaticAgent())
    assert total == -1.0
    assert (info["status"], info["verified"]) == ("wrong_result", 0)


def test_the_step_budget_truncates() -> None:
    env = static(max_steps=2)
    env.reset(seed=0)
    env.step(0)
    _, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)


def test_forks_and_snapshots_go_their_own_ways() -> None:
    env = static()
    env.reset(seed=0)
    env.step(0)
    state, fork = env.state, env.fork()
    first = finished(env, RandomAgent(2))
    assert finished(fork, RandomAgent(2))[1]["ir_key"] == first[1]["ir_key"]
    _, info = env.set_state(state)
    assert info["steps"] == 1
    assert finished(env, RandomAgent(2))[1]["ir_key"] == first[1]["ir_key"]


def test_costs_of_candidates_are_those_of_the_programs_that_they_make() -> None:
    env = static(candidate_costs=True, cost=FakeCost())
    observation, _ = env.reset(seed=0)
    while not env.walk.done:
        number = int(observation["action_mask"].sum())
        shown = observation["options"]
        point = env.point()
        assert all(option.cost_us is not None and option.cost_us > 0 for option in point.options)
        known = shown[:number, OPTION_FEATURES.index("known_cost")]
        assert (known == 1).all()
        ratio = shown[:number, OPTION_FEATURES.index("log_cost_ratio")]
        values = np.array([option.cost_us for option in point.options], np.float64)
        np.testing.assert_allclose(ratio, np.minimum(np.log(values / values.min()), 8), atol=1e-5)
        observation, *_ = env.step(0)


def test_costs_of_candidates_are_told_beside_a_graph() -> None:
    env, graphs = (
        static(candidate_costs=True, observation=observation) for observation in ("dict", "graph")
    )
    observation, _ = env.reset(seed=0)
    _, info = graphs.reset(seed=0)
    assert observation["options"][0, OPTION_FEATURES.index("known_cost")] == 1
    while not env.walk.done:
        np.testing.assert_array_equal(info["options"], observation["options"])
        observation, *_ = env.step(0)
        *_, info = graphs.step(0)


def test_the_decided_node_is_marked() -> None:
    env, graphs = static(), static(observation="graph")
    observation, _ = env.reset(seed=0)
    instance, info = graphs.reset(seed=0)
    agent = RandomAgent(5)
    seen = set()
    while not env.walk.done:
        question = env.walk.question
        assert question is not None
        seen.add(question.node.kind)
        assert observation["target"].sum() == 1
        marked = int(np.flatnonzero(instance.nodes[:, -1])[0])
        np.testing.assert_array_equal(
            observation["nodes"][observation["target"] == 1][0], instance.nodes[marked, :-1]
        )
        assert (info["action_node"][: len(question.options)] == marked).all()
        answer = agent.decide(env.point()).option
        observation, *_ = env.step(answer)
        instance, _, _, _, info = graphs.step(answer)
    assert seen == {"loop", "block", "program"}


def test_observations_are_those_of_the_program_whatever_led_to_it() -> None:
    env = static(kernel=SMALL["softmax"], observation="graph")
    rng = np.random.default_rng(0)
    unchanged = 0
    for seed in range(3):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            before = env.program
            options = np.flatnonzero(info["action_mask"])
            shown, _, terminated, truncated, info = env.step(int(rng.choice(options)))
            unchanged += env.program is before
            fresh = encoder_for(env.program.dialect).encode(env.program)
            np.testing.assert_array_equal(shown.nodes[:, : fresh.nodes.shape[1]], fresh.nodes)
            over = terminated or truncated
    assert unchanged


def test_text_lists_the_options() -> None:
    env = static(observation="text", candidate_costs=True)
    text, _ = env.reset(seed=0)
    question = env.walk.question
    assert question is not None
    assert f"Decide: {question.text}" in text
    assert text.count("predicted") == len(question.options)
    assert text.count("(static choice)") == 1


def test_failing_agents_are_overruled_and_counted() -> None:
    def ask(point: DecisionPoint) -> int:
        if point.number % 2:
            raise ValueError("odd")
        return 10**6

    guard = Guard(CallbackAgent(ask), seconds=None)
    env = static()
    env.reset(seed=0)
    expected = design_space(env.program).finish().program.ir_key
    assert finished(env, guard)[1]["ir_key"] == expected
    assert guard.report.taken == 0
    assert guard.report.raised > 0
    assert guard.report.out_of_range > 0


def test_early_stop_ends_an_episode_on_the_way() -> None:
    env = EarlyStop(static(), patience=2, gain=99.0)
    env.reset(seed=0)
    env.step(0)
    _, _, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info["verified"]) == (
        False,
        True,
        0,
    )  # a static reward runs nothing
    with pytest.raises(InvalidValueError, match="paid at the end alone"):
        EarlyStop(static(reward="final", evaluator=FakeEvaluator()))


def test_renders_and_refuses_unknown_names() -> None:
    env = static(render_mode="ansi")
    env.reset(seed=0)
    env.step(1)
    assert "last action:" in env.render()
    with pytest.raises(UnknownNameError, match="pixels"):
        static(observation="pixels")


def test_a_kernel_without_open_choices_is_evaluated_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SPACES, "llvm", "toy:EmptySpace")
    evaluator = FakeEvaluator()
    env = static(reward="final", evaluator=evaluator)
    _, info = env.reset(seed=0)
    assert info["question"] == ""
    assert np.flatnonzero(info["action_mask"]).tolist() == [0]
    assert env.step(3)[4]["legal"] == 0
    _, reward, terminated, _, info = env.decide(StaticAgent())
    assert (reward, terminated, info["transform"]) == (0.0, True, "nothing to decide")
    assert [level for _, level in evaluator.calls] == [Level.FULL]
    assert env.trace().transforms == ()
