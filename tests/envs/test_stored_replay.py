"""`reward="replay"`: a tabular environment of stored programs, labelled, that never compiles."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hash_seeds import Alike
from recorded import Storing, fill_with_walks
from small import SMALL, TARGET, make

from tirgym.envs.decision import DecisionEnv
from tirgym.envs.replay import make_replay, replay_workloads
from tirgym.envs.schedule import ScheduleEnv
from tirgym.errors import InvalidValueError, TargetMismatchError
from tirgym.harness import desk, local_evaluator, replay_evaluator
from tirgym.harness.backend import backend
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Level
from tirgym.harness.hardware import fingerprint
from tirgym.harness.replay_evaluator import ReplayEvaluator
from tirgym.harness.status import Status
from tirgym.harness.store import Record, Store
from tirgym.kernels_suite.registry import load_workload

URIS = [SMALL["add"], SMALL["matmul"]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with recorded walks of two kernels."""
    path = tmp_path_factory.mktemp("replay") / "store.sqlite"
    store = Store(path)
    fill_with_walks(store, URIS)
    store.close()
    return path


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes an evaluator that builds fails."""

    def refuse(*args: Any, **keywords: Any) -> None:
        raise AssertionError("a strict replay built something")

    monkeypatch.setattr(local_evaluator.LocalEvaluator, "__init__", refuse)


def strict(path: Path | Store, **keywords: Any) -> DecisionEnv:
    made: dict[str, Any] = {"kernel": SMALL["matmul"], "reward": "replay", "missing": "refuse"}
    return DecisionEnv(**{**made, "store": path, **keywords})


def leaves(env: DecisionEnv) -> Iterator[tuple[str, dict[str, Any], float]]:
    """IR key, info and return of every episode that the masks allow."""
    state, info = env.state, env._info()
    for action in np.flatnonzero(info["action_mask"]):
        env.set_state(state)
        _, _, terminated, truncated, after = env.step(action)
        assert not truncated
        if terminated:
            yield env.program.ir_key, after, after["episode_return"]
        else:
            yield from leaves(env)


def all_of(env: DecisionEnv) -> list[tuple[str, dict[str, Any], float]]:
    """The `leaves` of a new episode."""
    env.reset(seed=0)
    return list(leaves(env))


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.usefixtures("nothing_is_built")
def test_masks_reach_every_stored_program_and_no_other(path: Path, uri: str) -> None:
    found = all_of(strict(path, kernel=uri))
    store = Store(path, read_only=True)
    context = context_of(load_workload(uri), TARGET)
    walks = store.walks(context)
    assert sorted(key for key, _, _ in found) == sorted(walk.ir_key for walk in walks)
    for key, info, total in found:
        record = store.get(context, store.code_key(context, key) or "", Level.TRAINING)
        assert record is not None
        assert record.measurement is not None
        assert info["status"] == "passed"
        assert total == pytest.approx(np.log(record.measurement.speedup), abs=1e-8)


def test_observations_show_the_same_mask(path: Path) -> None:
    env = strict(path, observation="dict")
    observation, info = env.reset(seed=0)
    full = DecisionEnv(SMALL["matmul"], reward="static", arch=TARGET.arch).reset(seed=0)[1]
    assert (observation["action_mask"] == info["action_mask"]).all()
    assert (env.action_masks() == info["action_mask"].astype(bool)).all()
    assert info["action_mask"].sum() < full["action_mask"].sum()
    text, _ = strict(path, observation="text").reset(seed=0)
    masked = full["action_mask"].sum() - info["action_mask"].sum()
    assert text.count("(masked)") == masked


def test_a_masked_answer_changes_nothing_and_costs_the_penalty(path: Path) -> None:
    env = strict(path)
    _, info = env.reset(seed=0)
    question = env.walk.question
    assert question is not None
    there = range(len(question.options))
    masked = next(option for option in there if not info["action_mask"][option])
    _, reward, terminated, _, after = env.step(masked)
    assert reward == pytest.approx(-0.05)
    assert (terminated, after["legal"]) == (False, 0)
    assert "no stored program" in after["message"]
    assert env.walk.question is question


def test_replayed_numbers_are_labelled(path: Path) -> None:
    env = strict(path)
    _, info = env.reset(seed=0)
    assert info["replayed_from"] == ""
    done = False
    while not done:
        action = np.flatnonzero(info["action_mask"])[0]
        _, _, done, _, info = env.step(action)
    assert (info["replayed_from"], info["verified"]) == (fingerprint(), 0)
    trace = env.trace()
    assert trace.result is not None
    assert (trace.result.status, trace.result.replayed_from) == ("replayed", fingerprint())
    assert trace.result.speedup == pytest.approx(info["speedup"])
    assert type(trace).from_json(trace.to_json()) == trace


PLAY = """
import sys, json
import numpy as np
from tirgym.envs.decision import DecisionEnv
env = DecisionEnv(sys.argv[2:], reward="replay", store=sys.argv[1], missing="refuse")
rng, said = np.random.default_rng(3), []
for seed in range(4):
    observation, info = env.reset(seed=seed)
    done = False
    while not done:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, done, _, info = env.step(action)
        said.append([action, reward, info["transform"], float(observation["options"].sum())])
    said.append(env.program.ir_key)
print(json.dumps(said))
"""


def test_episodes_are_the_same_in_every_process_and_hash_seed(path: Path, alike: Alike) -> None:
    assert len(json.loads(alike(PLAY, path, *URIS))) > 8


def test_every_kernel_of_a_list_needs_recorded_answers(path: Path) -> None:
    env = strict(path, kernel=SMALL["softmax"])
    with pytest.raises(InvalidValueError, match="tirgym store show"):
        env.reset(seed=0)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE walks SET answers = replace(answers, '.', '_')",
        "UPDATE walks SET ir_key = (SELECT max(ir_key) FROM walks w WHERE w.workload = walks.workload)",
    ],
)
def test_a_recording_of_other_questions_is_refused(path: Path, tmp_path: Path, change: str) -> None:
    stale = tmp_path / "stale.sqlite"
    with sqlite3.connect(path) as source, sqlite3.connect(stale) as copy:
        source.backup(copy)
        copy.execute(change)
        changed = copy.execute("SELECT changes()").fetchone()[0]
    source.close()
    copy.close()
    assert changed
    with pytest.raises(TargetMismatchError, match="other decision points"):
        all_of(strict(stale))


def test_two_ways_to_one_program_pay_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    fill_with_walks(store, [SMALL["add"]], 60)
    paid: dict[str, list[float]] = {}
    for key, _, total in all_of(strict(store, kernel=SMALL["add"])):
        paid.setdefault(key, []).append(total)
    assert any(len(totals) > 1 for totals in paid.values())
    assert all(len(set(totals)) == 1 for totals in paid.values())


# -- missing states -------------------------------------------------------------------------


def test_a_missing_state_is_measured_once_and_then_replayed(path: Path) -> None:
    store = Store()
    fill_with_walks(store, [SMALL["add"]], 3)
    measuring = Storing(store)
    evaluator = ReplayEvaluator(store, otherwise=measuring)
    env = DecisionEnv(SMALL["matmul"], reward="replay", arch=TARGET.arch, evaluator=evaluator)

    def play() -> dict[str, Any]:
        _, info = env.reset(seed=0)
        done = False
        while not done:
            _, _, done, _, info = env.step(0)
        return info

    measured = play()
    assert (measured["status"], measured["replayed_from"]) == ("passed", "")
    assert measured["verified"] == 1
    assert len(measuring.calls) == 1
    again = ReplayEvaluator(store, otherwise=measuring)
    env = DecisionEnv(SMALL["matmul"], reward="replay", arch=TARGET.arch, evaluator=again)
    replayed = play()
    assert (replayed["speedup"], replayed["replayed_from"]) == (measured["speedup"], fingerprint())
    assert len(measuring.calls) == 1
    again.close()
    assert measuring.closed


def test_a_verdict_that_does_not_stand_is_measured_again() -> None:
    store = Store()
    program = make(SMALL["add"], "Split(loop=0, factor=2)")
    context = context_of(program.workload, TARGET)
    store.put(Record(context, f"ir:{program.ir_key}", Level.TRAINING, Status.NOISY, "loud"))
    measuring = Storing(store)
    assert ReplayEvaluator(store).evaluate(program).status is Status.NOISY
    assert ReplayEvaluator(store, otherwise=measuring).evaluate(program).status is Status.PASSED


def test_what_is_done_with_missing_states_by_default(path: Path) -> None:
    """Measured where all numbers are of this machine, refused where they are not."""
    here, there = Store(), Store()
    fill_with_walks(here, [SMALL["add"]], 2)
    (context,) = here.contexts()
    for record in here.records():
        there.put(replace(record, context=replace(context, machine="elsewhere")))
    assert make_replay(here, TARGET, None).otherwise is not None
    assert make_replay(here, TARGET, "refuse").otherwise is None
    assert make_replay(there, TARGET, None).otherwise is None
    assert make_replay(Store(), TARGET, None).otherwise is None
    assert make_replay(Store(), TARGET, "measure").otherwise is not None
    with pytest.raises(InvalidValueError, match="do not mix"):
        make_replay(there, TARGET, "measure")
    older = Store()
    for record in here.records():
        older.put(replace(record, context=replace(context, versions="tvm=1")))
    assert make_replay(older, TARGET, None).otherwise is None
    with pytest.raises(InvalidValueError, match="measure, refuse"):
        make_replay(here, TARGET, "guess")


def test_gaps_are_measured_for_real_and_kept(tmp_path: Path) -> None:
    arch = backend("llvm").target(None, 1).arch
    store = tmp_path / "store.sqlite"
    Store(store).close()

    def play() -> tuple[str, str, float]:
        env = DecisionEnv(SMALL["add"], reward="replay", store=store, missing="measure", arch=arch)
        _, info = env.reset(seed=0)
        done = False
        while not done:
            _, reward, done, _, info = env.step(0)
        env.close()
        return info["status"], info["replayed_from"], reward

    first, again = play(), play()
    assert first[:2] in (("passed", ""), ("noisy", ""))
    if first[0] == "passed":
        assert again == ("passed", fingerprint(), first[2])


def test_missing_belongs_to_replay() -> None:
    with pytest.raises(InvalidValueError, match="missing"):
        DecisionEnv(SMALL["add"], reward="static", missing="refuse")
    with pytest.raises(InvalidValueError, match="the evaluator is given"):
        DecisionEnv(
            SMALL["add"], reward="replay", missing="refuse", evaluator=ReplayEvaluator(Store())
        )


@pytest.mark.usefixtures("nothing_is_built")
def test_schedules_replay_states_that_are_there_and_pay_nothing_elsewhere(path: Path) -> None:
    env = ScheduleEnv(SMALL["add"], reward="replay", store=path, missing="refuse")
    _, info = env.reset(seed=0)
    legal = np.flatnonzero(info["action_mask"])[0]
    _, reward, _, _, info = env.step(legal)
    assert (reward, info["status"], info["replayed_from"]) == (0.0, "incomplete", "")


# -- kernels of a store ---------------------------------------------------------------------


def test_workloads_are_listed_by_split(path: Path) -> None:
    store = Store()
    fill_with_walks(store, [*URIS, SMALL["softmax"]], 2)
    assert sorted(replay_workloads(store)) == sorted([*URIS, SMALL["softmax"]])
    assert sorted(replay_workloads(store, "train")) == sorted(URIS)
    assert replay_workloads(store, "val") == [SMALL["softmax"]]
    assert replay_workloads(path, "test") == []
    with pytest.raises(InvalidValueError, match="train, val, test"):
        replay_workloads(store, "dev")


def test_workloads_are_those_that_a_replay_for_the_target_answers() -> None:
    store, softmax = Store(), SMALL["softmax"]
    fill_with_walks(store, URIS, 2)
    fill_with_walks(store, [softmax], 2, target=replace(TARGET, num_threads=2))
    assert sorted(replay_workloads(store, target=TARGET)) == sorted(URIS)
    assert replay_workloads(store, target=replace(TARGET, num_threads=2)) == [softmax]
    elsewhere = replace(TARGET, arch="znver3")
    assert sorted(replay_workloads(store, target=elsewhere)) == sorted(URIS)
    fill_with_walks(store, [softmax], 2, target=replace(TARGET, arch="haswell"))
    assert sorted(replay_workloads(store, target=TARGET)) == sorted(URIS)
    with pytest.raises(InvalidValueError, match=r"llvm/haswell.*llvm/skylake-avx512"):
        replay_workloads(store, target=elsewhere)


def test_numbers_of_two_machines_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    store, here = Store(), fingerprint()
    fill_with_walks(store, [SMALL["add"]], 2)
    monkeypatch.setattr(desk, "fingerprint", lambda: "other")
    fill_with_walks(store, URIS, 2)
    assert {context.machine for context in store.contexts()} == {here, "other"}
    assert replay_workloads(store, target=TARGET) == [SMALL["add"]]
    assert sorted(replay_workloads(store)) == sorted(URIS)
    monkeypatch.setattr(replay_evaluator, "fingerprint", lambda: "third")
    with pytest.raises(InvalidValueError, match=r"not of .*other.*store export OUT --machine"):
        replay_workloads(store, target=TARGET)


def test_it_is_made_by_name_like_any_environment(path: Path) -> None:
    env = gymnasium.make(
        "tirgym/Decision-v0",
        kernel=URIS,
        reward="replay",
        store=str(path),
        missing="refuse",
    )
    _, info = env.reset(seed=1)
    assert info["workload"] in URIS
    assert env.unwrapped.target == TARGET  # type: ignore[attr-defined]
    env.close()


def test_kernels_in_files_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    uri = f"tirgym://local/{tmp_path}/mine.p%79:K?n=1"
    store = Store()
    fill_with_walks(store, URIS[:1], 1)
    (context,) = store.contexts()
    (walk, *_) = store.walks(context)
    (held, *_) = store.records()
    other = replace(context, workload=uri)
    store.put(replace(held, context=other))
    store.put_walk(other, walk.path, walk.ir_key, "drawn")
    assert replay_workloads(store) == URIS[:1]
    assert not (tmp_path / "ran").exists()
