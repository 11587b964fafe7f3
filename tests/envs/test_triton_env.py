"""`tirgym/Triton-v0`: what a step does, pays, refuses and survives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

from triton_envs import EDIT, MATMUL, SOFTMAX, WARPS, FaultyPool, drop, faulty, made, with_ttgir

from tirgym.envs.schedule import ScheduleEnv
from tirgym.envs.triton import TritonEnv
from tirgym.errors import BackendUnavailableError, CompileFailedError, InvalidValueError
from tirgym.harness.replay import replay
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace
from tirgym.harness.triton.cost import TritonCostModel
from tirgym.harness.triton.evaluator import SemanticEvaluator
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.request import Compiled
from tirgym.kernels_suite.registry import load_workload
from tirgym.rewards.reward import EpisodeReward, Needs, Transition, on_grid
from tirgym.spaces.recipe import recipe_names


@pytest.fixture
def env() -> Iterator[TritonEnv]:
    env = made()
    env.reset(seed=0)
    yield env
    env.close()


def bytes_of(observation: dict[str, Any]) -> list[bytes]:
    return [observation[key].tobytes() for key in sorted(observation)]


def test_steps_pay_the_log_of_the_predicted_speedup() -> None:
    env = made(kernel="tirgym://triton-v0/softmax?m=64&n=1024&dtype=float32")
    env.reset(seed=0)
    start, cost = env.program, TritonCostModel()
    for text in ("SetMeta(parameter='num_warps', value=1)", EDIT):
        _, _, terminated, _, info = env.apply(text)
        assert (info["status"], info["verified"], terminated) == ("semantic_only", 0, False)
        assert "not measured" in info["message"]
        ratio = cost.predict_us(start) / cost.predict_us(env.program)
        assert info["episode_return"] == on_grid(math.log(ratio))
        assert info["episode_return"] != 0
    _, reward, terminated, _, info = env.apply("STOP")
    assert (reward, terminated, info["status"]) == (0.0, True, "semantic_only")
    env.close()


def test_rollback_is_byte_identical_and_the_trace_replays(env: TritonEnv) -> None:
    env.apply(WARPS)
    before, state = env.set_state(env.state), env.state
    env.apply(EDIT)
    after = env.set_state(env.state)[0]
    assert bytes_of(after) != bytes_of(before[0])
    again = env.set_state(state)
    assert bytes_of(again[0]) == bytes_of(before[0])
    assert again[1]["action_mask"].tobytes() == before[1]["action_mask"].tobytes()
    env.apply(EDIT)
    assert bytes_of(env.set_state(env.state)[0]) == bytes_of(after)
    trace = Trace.from_json(env.trace().to_json())
    assert trace.transforms == (WARPS, EDIT)
    assert set(trace.versions) == {"triton"}
    assert replay(trace).ir_key == trace.ir_key == env.program.ir_key


def test_the_recipe_is_observed(env: TritonEnv) -> None:
    first = env.set_state(env.state)
    second = env.apply(WARPS)[0]
    third, *_, info = env.apply(EDIT)
    warps = recipe_names().index("num_warps")
    assert first[0]["recipe"][warps] == np.float32(np.log2(9.0) / 16)
    assert second["recipe"][warps] == np.float32(np.log2(5.0) / 16)
    assert np.array_equal(third["recipe"], info["recipe"])
    gone = recipe_names().index("ttgir.runs.ttgpuir.reorder_instructions")
    assert second["recipe"][gone] > third["recipe"][gone] == 0
    assert np.count_nonzero(third["passes"]) == np.count_nonzero(second["passes"]) - 1


@pytest.mark.parametrize("form", ["dict", "graph", "features", "text"])
def test_every_form_is_of_its_space(form: str) -> None:
    env = made(observation=form)
    for observation in (env.reset(seed=0)[0], env.apply(WARPS)[0], env.apply(EDIT)[0]):
        assert env.observation_space.contains(observation)
    if form == "text":
        for line in ("Operations of TTGIR:", "num_warps=4", "#   ttgpuir.coalesce()"):
            assert line in observation
        assert "ttgpuir.reorder_instructions()" not in observation
    env.close()


def test_a_wrong_program_ends_the_episode_as_a_failed_gate_does() -> None:
    with faulty(with_ttgir("arith.addf", "arith.maxnumf")) as env:
        env.apply(WARPS)
        _, _, terminated, _, info = env.apply(drop("ttgpuir.optimize_thread_locality"))
    assert (info["status"], terminated) == ("wrong_result", True)
    assert info["episode_return"] == -1.0
    assert "out" in info["message"]


def test_what_is_not_covered_is_incomplete_and_pays_nothing() -> None:
    with faulty(with_ttgir("math.exp ", "math.cbrt ")) as env:
        paid = env.apply(WARPS)[4]["episode_return"]
        _, reward, terminated, _, info = env.apply(drop("ttgpuir.coalesce_async_copy"))
    assert (info["status"], reward, terminated) == ("incomplete", 0.0, False)
    assert "math.cbrt" in info["message"]
    assert (info["episode_return"], info["verified"]) == (paid, 0)


def test_what_fits_no_compute_unit_is_illegal_and_says_why() -> None:
    with faulty(lambda _, compiled: replace(compiled, shared_bytes=1 << 20)) as env:
        _, reward, terminated, _, info = env.apply(drop("ttgpuir.fuse_nested_loops"))
    assert (info["status"], info["legal"], terminated) == ("illegal", 0, False)
    assert reward == on_grid(-0.05)
    assert "1048576 bytes of shared memory" in info["message"]


def test_a_pipeline_that_fails_keeps_the_compilers_words_and_the_episode_goes_on() -> None:
    env = made(kernel=MATMUL, arch="sm_80", max_steps=8)
    env.reset(seed=0)
    start = env.program
    for _ in range(2):
        _, reward, terminated, _, info = env.apply(drop("ttgpuir.accelerate_matmul"))
        assert (info["status"], info["legal"]) == ("compile_error", 0)
        assert (reward, terminated) == (on_grid(-0.05), False)
        assert "error:" in info["message"]
        assert "\n" not in info["message"]
        assert env.program is start
    assert env.apply("SetMeta(parameter='num_stages', value=1)")[4]["status"] == "semantic_only"
    env.close()


def _crash(pool: CompilePool, _: Compiled) -> Any:
    return pool.call_many("os:_exit", [3])[0]


def _hang(pool: CompilePool, _: Compiled) -> Any:
    pool.timeout_s = 0.3
    answer = pool.call_many("time:sleep", [60])[0]
    pool.timeout_s = 120.0
    return answer


@pytest.mark.parametrize(
    ("fault", "words", "edited"),
    [
        (_crash, "ended with status 3", "nvidia.interleave_tmem"),
        (_hang, "over 0.3", "hopper.hopper_warpspec"),
    ],
)
def test_a_compiler_that_crashes_or_hangs_ends_nothing(fault: Any, words: str, edited: str) -> None:
    with faulty(fault) as env:
        _, reward, terminated, _, info = env.apply(drop(edited))
        assert (info["status"], terminated) == ("compile_error", False)
        assert reward == on_grid(-0.05)
        assert words in info["message"]
        assert env.apply(WARPS)[4]["status"] == "semantic_only"
        program = replay(replace(env.trace(), transforms=(drop(edited),), ir_key=""))
    with SemanticEvaluator() as later:  # a crash may be the machine's: it is tried again
        assert later.evaluate(program).status == "semantic_only"


class _Free(EpisodeReward):
    """Pays nothing and asks for no verdict."""

    needs = Needs.NOTHING

    def _next_level(self, transition: Transition) -> float:
        return 0.0


def test_a_reward_that_asks_for_no_verdict_still_meets_the_compiler() -> None:
    env = made(reward=_Free())
    env.reset(seed=0)
    good, env._pool = env._pool, FaultyPool(lambda *_: CompileFailedError("ttgir", "a\nb"))
    info = env.apply(drop("ttgpuir.combine_tensor_select_and_if"))[4]
    assert (info["status"], info["message"]) == ("compile_error", "no ttgir: a; b")
    assert env.apply(WARPS)[4]["legal"] == 1
    good.close()
    env.close()


def test_what_it_does_not_play_is_refused_in_one_line() -> None:
    for keywords, words in (
        ({"reward": "measured"}, "static, or a Reward"),
        ({"backend": "llvm"}, "triton; tirgym/Schedule-v0"),
        ({"compile_limit_s": 0}, "seconds above 0"),
        ({"kernel": "core-v0/relu"}, "kernel with a Triton source"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            made(**keywords).reset(seed=0)
    with pytest.raises(InvalidValueError, match="tirgym/Triton-v0 plays triton"):
        ScheduleEnv(SOFTMAX, backend="triton", arch="sm_90", reward="static")


def test_bare_names_mean_kernels_of_its_suite() -> None:
    env = made(kernel=["softmax", "add"], shape="tiny")
    uris = {env.reset(seed=seed)[1]["workload"] for seed in range(8)}
    assert uris == {
        load_workload(f"tirgym://triton-v0/{name}", shape).uri
        for name, shape in (("softmax", {"m": 6, "n": 20}), ("add", {"m": 12, "n": 20}))
    }
    env.close()


def test_no_gpu_and_no_architecture_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirgym.harness.backends.triton.cuda_capability", lambda: None)
    with pytest.raises(BackendUnavailableError, match="name one with --arch: sm_80"):
        made(arch=None)


def test_a_session_works_on_triton_programs() -> None:
    from tirgym.harness.session import CompileHarness

    with CompileHarness("triton", "sm_90") as harness:
        harness.load_ir(SOFTMAX)
        harness.apply_transform(WARPS)
        evaluation = harness.compile_and_benchmark()
        assert (evaluation.status, evaluation.speedup) == ("semantic_only", None)
        assert harness.program.target == Target("triton", "sm_90", 1)


@pytest.mark.slow
def test_every_action_applies_or_says_why_not() -> None:
    env = made(max_steps=10**6)
    env.reset(seed=0)
    state = env.state
    statuses: dict[str, int] = {}
    for action in np.flatnonzero(env.action_masks()[:-1]):
        info = env.step(int(action))[4]
        assert info["status"] in ("semantic_only", "compile_error", "illegal", "incomplete")
        assert info["message"]
        statuses[info["status"]] = statuses.get(info["status"], 0) + 1
        env.set_state(state)
    assert statuses["semantic_only"] > 100
    env.close()


@pytest.mark.slow
def test_a_masked_policy_trains_on_features() -> None:
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is missing: pip install 'tirgym[rl]'")
    from sb3_contrib import MaskablePPO

    env = made(observation="features", max_steps=4)
    model = MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [8]})
    model.learn(16)
    observation, _ = env.reset(seed=0)
    action, _ = model.predict(observation, action_masks=env.action_masks())
    assert env.action_masks()[int(action)]
    env.close()
