"""`ScheduleEnv`: what a step does, what ends an episode, what search can do with it."""

from __future__ import annotations

import gc
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from fakes import FakeEvaluator, passed
from gymnasium.error import InvalidAction, ResetNeeded
from schedule_envs import FUSE, SPLIT, VOCABULARY, legal, measured, static
from small import SMALL, TARGET

from tirgym.envs.schedule import ScheduleEnv
from tirgym.envs.strategies import make_vocabulary
from tirgym.errors import EvaluationError, InvalidValueError, UnknownNameError, WorkerDiedError
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.status import FATAL, Status
from tirgym.harness.transforms import VOCABULARIES
from tirgym.rewards.final_speedup import FinalSpeedup

# -- masks and actions ----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_masks_agree_with_step(kernel: str) -> None:
    env = static(kernel=SMALL[kernel], max_steps=1000)
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(6):
        masks = env.action_masks()
        assert masks.dtype == np.bool_
        before = env.program
        for action in rng.choice(np.flatnonzero(~masks), 5):
            _, reward, terminated, truncated, info = env.step(action)
            assert env.program is before
            assert (info["legal"], info["status"]) == (0, "illegal")
            assert info["message"].startswith(env.action_space.to_text(int(action)))
            assert reward == -env.state.reward.illegal_penalty  # type: ignore[attr-defined]
            assert (terminated, truncated) == (False, False)
        _, _, _, _, info = env.step(rng.choice(legal(env)))
        assert info["legal"] == 1
        assert env.program is not before
        np.testing.assert_array_equal(info["action_mask"], env.action_masks())


@pytest.mark.parametrize("action", [-1, 10**6, 1.5, "STOP", None, np.array([1, 2]), True])
def test_an_action_outside_the_space_is_one_clear_error(action: Any) -> None:
    env = static()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"expected an integer from 0 to \d+ \(STOP\)"):
        env.step(action)
    assert env.state.steps == 0


def test_actions_of_policies_are_taken_as_they_come() -> None:
    env = static()
    env.reset(seed=0)
    for action in (np.int64(0), np.array(0), np.array([0])):
        env.step(action)
    assert env.state.steps == 3


def test_parallel_is_masked_on_one_thread() -> None:
    env = static()
    _, info = env.reset(seed=0)
    parallel = [i for i, text in enumerate(env.action_space.table) if text.startswith("Parallel")]
    assert parallel
    assert not info["action_mask"][parallel].any()


# -- verdicts -------------------------------------------------------------------------------


def test_stop_ends_the_episode_with_a_full_verdict_and_a_verified_trace() -> None:
    env, evaluator = measured(2.0, 3.0)
    env.reset(seed=0)
    _, reward, *_ = env.apply(SPLIT)
    assert reward == pytest.approx(np.log(2))
    assert env.trace().result is None
    _, reward, terminated, truncated, info = env.step(env.action_space.stop)
    assert (terminated, truncated) == (True, False)
    assert [level for _, level in evaluator.calls] == [Level.TRAINING, Level.FULL]
    assert info["verified"] == 1
    assert info["speedup"] == pytest.approx(3.0)
    assert info["transform"] == "STOP"
    trace = env.trace(agent="me")
    assert trace.transforms == (SPLIT,)
    assert trace.result is not None
    assert (trace.result.status, trace.result.speedup) == ("passed", 3.0)
    assert trace.vocabulary == VOCABULARY.digest
    with pytest.raises(ResetNeeded, match="over"):
        env.step(0)


@pytest.mark.parametrize("status", sorted(FATAL))
def test_a_fatal_verdict_ends_with_a_return_of_minus_the_penalty(status: Status) -> None:
    env, _ = measured(7.0, status)
    env.reset(seed=0)
    total = env.apply(SPLIT)[1]
    _, reward, terminated, truncated, info = env.apply("Split(loop=2, factor=2)")
    assert total + reward == -1.0 == info["episode_return"]
    assert (terminated, truncated) == (True, False)
    assert info["status"] == status.value
    assert env.reset(seed=0)[1]["steps"] == 0


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.ILLEGAL])
def test_what_does_not_compile_is_a_penalised_no_op(status: Status) -> None:
    env, evaluator = measured(status, 2.0)
    env.reset(seed=0)
    start = env.program
    _, reward, terminated, _, info = env.apply(SPLIT)
    assert env.program is start
    assert not terminated
    assert reward == -env.state.reward.illegal_penalty  # type: ignore[attr-defined]
    assert (info["status"], info["legal"], info["trials"]) == (status.value, 0, 1)
    assert "scripted" in info["message"]
    assert env.apply(SPLIT)[1] == pytest.approx(np.log(2))
    assert len(evaluator.calls) == 2


def test_a_refused_last_step_still_gets_the_final_program_verified() -> None:
    env, evaluator = measured(2.0, Status.COMPILE_ERROR, 2.0, max_steps=2)
    env.reset(seed=0)
    env.apply(SPLIT)
    _, _, terminated, truncated, info = env.apply("Split(loop=2, factor=2)")
    assert (terminated, truncated, info["verified"]) == (False, True, 1)
    assert info["status"] == "compile_error"
    assert [key for key, _ in evaluator.calls][2] == info["ir_key"]


@pytest.mark.parametrize("status", [Status.NOISY, Status.SUSPECT])
def test_noisy_and_suspect_are_measured_again_and_pay_nothing(status: Status) -> None:
    env, evaluator = measured(status, 2.0, status, status)
    env.reset(seed=0)
    _, reward, _, _, info = env.apply(SPLIT)
    assert reward == pytest.approx(np.log(2))
    assert info["status"] == "passed"
    _, reward, terminated, _, info = env.apply("Split(loop=2, factor=2)")
    assert (reward, terminated, info["status"]) == (0.0, False, status.value)
    assert len(evaluator.calls) == 4


def test_too_slow_pays_and_goes_on() -> None:
    env, _ = measured(Status.TOO_SLOW, 2.0)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.apply(SPLIT)
    assert reward == pytest.approx(-np.log(10))
    assert not terminated
    assert info["speedup"] == pytest.approx(0.1)
    assert env.apply("Split(loop=2, factor=2)")[1] == pytest.approx(np.log(20))


def test_split_and_fuse_in_circles_earn_nothing() -> None:
    """The numbers drift by noise; the machine code comes back, and so does what it paid."""
    script = [passed(2.0 + n / 10, code_key="split" if n % 2 == 0 else "fused") for n in range(8)]
    env, _ = measured(*script, max_steps=100)
    env.reset(seed=0)
    rewards = [env.apply(text)[1] for text in (SPLIT, FUSE) * 4]
    assert rewards[2:] == [-rewards[1], rewards[1]] * 3


def test_illegal_actions_are_not_measured() -> None:
    env, evaluator = measured()
    env.reset(seed=0)
    env.step(np.flatnonzero(~env.action_masks())[0])
    assert evaluator.calls == []


# -- ends of episodes -----------------------------------------------------------------------


def test_the_step_budget_truncates() -> None:
    env = static(max_steps=2)
    env.reset(seed=0)
    assert env.step(legal(env)[0])[2:4] == (False, False)
    assert env.step(legal(env)[0])[2:4] == (False, True)
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_the_time_budget_truncates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tirgym.envs.compiler_env.time.monotonic", lambda: now[0])
    env = static(time_limit_s=10)
    env.reset(seed=0)
    assert env.step(legal(env)[0])[3] is False
    now[0] = 10.0
    assert env.step(legal(env)[0])[3] is True


def test_a_final_reward_needs_one_evaluation() -> None:
    env, evaluator = measured(5.0)
    env = static(reward=FinalSpeedup(), evaluator=evaluator, max_steps=3)
    env.reset(seed=0)
    rewards = [env.step(legal(env)[0])[1] for _ in range(3)]
    assert rewards == [0.0, 0.0, pytest.approx(np.log(5))]
    assert [level for _, level in evaluator.calls] == [Level.FULL]


def test_stepping_before_reset_says_so() -> None:
    with pytest.raises(ResetNeeded, match="reset"):
        static().step(0)
    with pytest.raises(ResetNeeded, match="reset"):
        static().action_masks()


# -- workloads ------------------------------------------------------------------------------


def test_kernels_and_shapes_are_drawn_by_seed() -> None:
    env = static(kernel=["matmul", "softmax", "add"], shape="tiny")
    drawn = [env.reset(seed=seed)[1]["workload"] for seed in range(12)]
    assert drawn == [env.reset(seed=seed)[1]["workload"] for seed in range(12)]
    assert len(set(drawn)) == 3
    env.reset(seed=4)
    later = [env.reset()[1]["workload"] for _ in range(12)]
    assert len(set(later)) == 3


def test_options_name_kernel_and_shape_for_one_episode() -> None:
    env = static()
    _, info = env.reset(seed=0, options={"kernel": "softmax", "shape": {"m": 4, "n": 6}})
    assert info["workload"] == "tirgym://core-v0/softmax?m=4&n=6&dtype=float32"
    assert env.reset()[1]["workload"] == SMALL["matmul"]
    assert "m=8&" in env.reset(options={"shape": {"m": 8}})[1]["workload"]
    with pytest.raises(InvalidValueError, match="kernel and shape"):
        env.reset(options={"kernl": "softmax"})
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        env.reset(options={"kernel": "softmaxx"})


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        ({"kernel": "matmull"}, "matmul"),
        ({"kernel": []}, "at least one"),
        ({"kernel": 3}, "a kernel name"),
        ({"shape": "big"}, "holdout"),
        ({"shape": {"m": 0}}, "positive integers"),
        ({"backend": "llvmm"}, "llvm"),
        ({"observation": "dct"}, "dict"),
        ({"reward": "fast"}, "measured"),
        ({"backend": None}, "llvm"),
        ({"max_steps": 0}, "at least 1"),
        ({"max_steps": 2.5}, "a whole number of at least 1"),
        ({"max_steps": "many"}, "a whole number of at least 1"),
        ({"max_steps": float("nan")}, "a whole number of at least 1"),
        ({"max_steps": True}, "a whole number of at least 1"),
        ({"num_threads": 0}, "a whole number from 1"),
        ({"num_threads": 1.0}, "a whole number from 1"),
        ({"num_threads": True}, "a whole number from 1"),
        ({"time_limit_s": -1.0}, "above 0"),
        ({"render_mode": "human"}, "ansi"),
        ({"vocabulary": "primitive", "factors": [1]}, "at least 2"),
        ({"vocabulary": "macros"}, "primitive, macro, both"),
        ({"vocabulary": 3}, "a Vocabulary, or one of"),
        ({"factors": [4]}, "the vocabulary is given"),
        ({"arch": "pentium9"}, "mcpu"),
    ],
)
def test_bad_arguments_are_one_line_that_says_what_is_accepted(
    keywords: dict[str, Any], problem: str
) -> None:
    with pytest.raises((InvalidValueError, UnknownNameError), match=problem) as caught:
        static(**keywords)
    assert "\n" not in str(caught.value)


def test_counts_may_be_numbers_of_numpy() -> None:
    env = static(max_steps=np.int64(2), num_threads=np.int64(1))
    env.reset(seed=0)
    assert type(env.target.num_threads) is int
    assert env.trace().target == env.target


def test_factors_choose_the_tile_sizes() -> None:
    env = static(vocabulary="primitive", factors=[3])
    splits = {text for text in env.action_space.table if text.startswith("Split")}
    assert all(text.endswith("factor=3)") for text in splits)


@pytest.mark.parametrize("backend", sorted(VOCABULARIES))
def test_factors_change_nothing_but_tile_sizes(backend: str) -> None:
    if backend == "triton":
        pytest.importorskip("triton", reason="pip install 'tirgym[triton]'")
    usual = list(map(str, make_vocabulary("primitive", backend, None)))
    chosen = list(map(str, make_vocabulary("primitive", backend, [3])))
    assert [t for t in chosen if "factor" not in t] == [t for t in usual if "factor" not in t]


# -- search ---------------------------------------------------------------------------------


def test_forks_share_the_evaluator_and_nothing_else() -> None:
    env, evaluator = measured()
    env.reset(seed=0)
    env.apply(SPLIT)
    fork = env.fork()
    fork.apply("Split(loop=2, factor=2)")
    assert (env.state.steps, fork.state.steps) == (1, 2)
    assert env.program is not fork.program
    assert len(env.state.code_keys) == 1
    fork.close()
    assert not evaluator.closed
    env.apply("Split(loop=2, factor=2)")
    assert env.program.ir_key == fork.program.ir_key
    assert env.state.reward.total == fork.state.reward.total
    assert env.reset()[1]["workload"] == fork.reset()[1]["workload"]


def test_states_are_restored_exactly() -> None:
    env = static(max_steps=100)
    env.reset(seed=0)
    env.apply(SPLIT)
    state = env.state
    expected, _ = env.set_state(state)
    actions = [int(a) for a in legal(env)[:3]]
    runs = []
    for _ in range(2):
        env.set_state(state)
        runs.append([env.step(action)[1] for action in actions])
    assert runs[0] == runs[1]
    observation, info = env.set_state(state)
    assert info["steps"] == 1
    for name, array in expected.items():
        np.testing.assert_array_equal(array, observation[name])


def test_apply_takes_transforms_and_texts_of_the_table_only() -> None:
    env = static()
    env.reset(seed=0)
    env.apply(env.vocabulary[int(legal(env)[0])])
    with pytest.raises(InvalidValueError, match="Split"):
        env.apply("Split(loop=0, factor=5)")
    assert env.apply("STOP")[2]


# -- evaluators that die --------------------------------------------------------------------


class Dying(FakeEvaluator):
    """Its machinery fails at the first call."""

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        raise WorkerDiedError("gone")


def test_after_a_broken_evaluator_or_close_the_next_reset_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[FakeEvaluator] = []

    def make(backend: str, store: Any) -> FakeEvaluator:
        made.append(FakeEvaluator() if made else Dying())
        return made[-1]

    monkeypatch.setattr("tirgym.envs.compiler_env.make_evaluator", make)
    env = static(reward="measured")
    env.reset(seed=0)
    with pytest.raises(EvaluationError, match="gone"):
        env.apply(SPLIT)
    assert made[0].closed
    with pytest.raises(ResetNeeded):
        env.apply(SPLIT)
    env.reset(seed=0)
    assert env.apply(SPLIT)[4]["status"] == "passed"
    env.close()
    assert made[1].closed
    env.reset(seed=0)
    assert env.apply(SPLIT)[4]["status"] == "passed"
    assert len(made) == 3


# -- five kernels, and memory ---------------------------------------------------------------

FIVE = ["matmul", "softmax", "add", "layernorm", "conv2d"]


def episodes(env: gymnasium.Env[Any, Any], count: int, steps: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(count):
        _, info = env.reset()
        for _ in range(steps):
            choices = np.flatnonzero(info["action_mask"][:-1])
            info = env.step(rng.choice(choices) if len(choices) else -1)[4]


def test_the_static_environment_runs_on_five_kernels() -> None:
    pytest.importorskip("tirgym.harness.static_cost")
    for kernel in FIVE:
        env = gymnasium.make("tirgym/ScheduleStatic-v0", kernel=kernel, arch=TARGET.arch)
        _, info = env.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(4):
            choices = np.flatnonzero(info["action_mask"][:-1])
            observation, reward, terminated, _, info = env.step(rng.choice(choices))
            assert np.isfinite(float(reward))
            assert not terminated
        assert env.observation_space.contains(observation)
        assert info["workload"].startswith(f"tirgym://core-v0/{kernel}?")
        assert info["overflow"] == 0


def grown_mib(env: ScheduleEnv, count: int) -> float:
    process = psutil.Process()
    episodes(env, count, 4)
    gc.collect()
    before = process.memory_info().rss
    episodes(env, count, 4)
    gc.collect()
    return float(process.memory_info().rss - before) / 2**20


def test_memory_is_flat_over_many_short_episodes() -> None:
    assert grown_mib(static(kernel=SMALL["add"]), 40) < 16


@pytest.mark.slow
def test_memory_is_flat_over_two_thousand_episodes() -> None:
    env = static(kernel=["matmul", "softmax", "add"], shape="tiny")
    grown_mib(env, 500)  # fills the bounded caches
    assert grown_mib(env, 1000) < 16
