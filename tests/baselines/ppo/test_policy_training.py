"""Trainings: the same arguments make the same weights, whatever ends them on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("sb3_contrib", "torch_geometric", "safetensors", "tensorboard"):
    pytest.importorskip(package)

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainings import SMALLEST

from tirgym.baselines.ppo.checkpoint import load_policy, read_header
from tirgym.baselines.ppo.env_spec import EnvSpec
from tirgym.baselines.ppo.evaluation import evaluate
from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.baselines.ppo.training import TrainArgs, TrainResult, train
from tirgym.errors import (
    DamagedFileError,
    InvalidValueError,
    TargetMismatchError,
    TrainingError,
    UnknownNameError,
)

KERNELS = ("core-v0/add", "core-v0/row_sum")
SMALL = replace(SMALLEST, kernels=KERNELS, steps=192, eval_every=128)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """An uninterrupted training."""
    return train(replace(SMALL, out=str(tmp_path_factory.mktemp("trained"))))


def scores(result: TrainResult) -> list[tuple[int, float]]:
    return [(row["steps"], row["mean_return"]) for row in result.evaluations]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_a_training_leaves_policy_logs_and_a_curve(trained: TrainResult) -> None:
    folder = Path(trained.args.out)
    assert (trained.steps, trained.resumed_from) == (192, 0)
    assert [row["steps"] for row in trained.evaluations] == [0, 128, 192]
    assert {path.name for path in folder.glob("state-*")} == {
        "state-000000000128.safetensors",
        "state-000000000192.safetensors",
    }
    logged = scalars(folder)
    for tag in ("train/entropy", "train/value_loss", "rollout/episode_return", "rollout/speedup"):
        assert [step for step, _ in logged[tag]] == [64, 128, 192], tag
        assert np.isfinite([value for _, value in logged[tag]]).all()
    assert [step for step, _ in logged["eval/geomean_speedup"]] == [0, 128, 192]
    assert {value for _, value in logged["rollout/invalid_actions"]} == {0.0}
    assert "rollout/verified_speedup" not in logged
    header = read_header(trained.policy)
    assert (header.agent, header.steps, header.kernels) == ("ppo-mlp", 192, KERNELS)


def test_the_policy_that_is_left_plays_as_it_was_evaluated(trained: TrainResult) -> None:
    spec = trained.args.eval_spec()
    assert spec.shapes == "default"
    played = evaluate(load_policy(trained.policy), spec)
    assert played.mean_return == trained.evaluations[-1]["mean_return"]
    best = evaluate(load_policy(trained.best), spec)
    assert best.geomean == max(row["geomean_speedup"] for row in trained.evaluations)


def test_the_curve_is_a_picture(trained: TrainResult) -> None:
    pytest.importorskip("matplotlib")
    assert trained.curve is not None
    assert trained.curve.read_bytes().startswith(b"\x89PNG")


def test_two_trainings_have_identical_weights(trained: TrainResult, tmp_path: Path) -> None:
    again = train(replace(SMALL, out=str(tmp_path)))
    assert again.policy.read_bytes() == trained.policy.read_bytes()
    other = train(replace(SMALL, out=str(tmp_path / "other"), seed=1))
    assert other.policy.read_bytes() != trained.policy.read_bytes()


def test_steps_that_are_added_go_on(trained: TrainResult, tmp_path: Path) -> None:
    first = train(replace(SMALL, out=str(tmp_path), steps=100))
    assert first.steps == 128
    assert first.policy.read_bytes() != trained.policy.read_bytes()
    told: list[int] = []
    then = train(replace(SMALL, out=str(tmp_path)), lambda at: told.append(at.steps))
    assert (then.steps, then.resumed_from) == (192, 128)
    assert told[0] == 132
    assert then.policy.read_bytes() == trained.policy.read_bytes()
    assert scores(then) == scores(trained)
    done = train(replace(SMALL, out=str(tmp_path)))
    assert (done.resumed_from, done.steps_per_s) == (192, None)


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = {path!r}
from test_policy_training import SMALL
from tirgym.baselines.ppo.training import train

def die(at):
    if at.steps >= {steps}:
        os.kill(os.getpid(), signal.SIGKILL)

train(replace(SMALL, out={out!r}), die)
"""


def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(
    trained: TrainResult, tmp_path: Path
) -> None:
    code = KILLED.format(path=[str(Path(__file__).parent), *sys.path], steps=164, out=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "policy.safetensors").exists()
    with (tmp_path / "progress.jsonl").open("a") as file:
        file.write('{"steps": 150, "cut')
    then = train(replace(SMALL, out=str(tmp_path)))
    assert then.resumed_from == 128
    assert then.policy.read_bytes() == trained.policy.read_bytes()
    assert scores(then) == scores(trained)
    ours, theirs = scalars(tmp_path), scalars(Path(trained.args.out))
    del ours["time/seconds"], theirs["time/seconds"]
    assert ours == theirs


def test_workers_end_with_a_killed_learner(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from tirgym.baselines.ppo.env_spec import EnvSpec\n"
        "from tirgym.baselines.ppo.remote_group import RemoteGroup\n"
        "group = RemoteGroup(EnvSpec(kernels=('core-v0/add',), shapes='tiny'), [0])\n"
        "print(group.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while _lives(pid):
        assert time.monotonic() < deadline, f"worker {pid} goes on without its learner"
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_graph_policy_trains_in_every_environment(tmp_path: Path) -> None:
    for env in ("tirgym/Decision-v0", "tirgym/Schedule-v0"):
        out = tmp_path / env.rpartition("/")[2]
        args = replace(
            SMALL, agent="ppo-gnn", env=env, out=str(out), steps=32, rollout=32, max_steps=6
        )
        result = train(args)
        row = result.evaluations[-1]
        assert row["steps"] == 32
        assert np.isfinite(row["figures"]["train/loss"])
        assert row["played"][0]["invalid"] == 0
        assert load_policy(result.policy) is not None


def test_a_replay_trains_on_what_the_store_holds(tmp_path: Path) -> None:
    args = replace(
        SMALL,
        reward="replay",
        store="core-v0",
        shapes=None,
        kernels=("matmul", "relu"),
        eval_kernels=("softmax",),
        steps=64,
    )
    for spec in (args.spec(), args.eval_spec()):
        assert all(kernel.startswith("tirgym://core-v0/") for kernel in spec.kernels)
    first = train(replace(args, out=str(tmp_path / "first")))
    again = train(replace(args, out=str(tmp_path / "again")))
    assert again.policy.read_bytes() == first.policy.read_bytes()
    (played,) = first.evaluations[-1]["played"]
    assert played["workload"].startswith("tirgym://core-v0/softmax?")
    assert first.evaluations[-1]["verified_speedup"] is None
    assert read_header(first.policy).reward == "replay"


def test_a_reward_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    args = replace(SMALL, out=str(tmp_path), reward="nan_reward:NanReward")
    with pytest.raises(TrainingError, match=r"nan at step \d+ of an episode of tirgym://core-v0/"):
        train(args)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="lower learning rate"):
        train(replace(SMALL, out=str(tmp_path), learning_rate=1e30, max_grad_norm=1e30))


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "agent": ({"agent": "ppo-gmm"}, UnknownNameError, "ppo-gnn"),
    "environment": ({"env": "tirgym/Decide-v0"}, UnknownNameError, "tirgym/Decision-v0"),
    "split": ({"split": "dev"}, UnknownNameError, "train, val, test"),
    "suite": ({"suite": "core-v9"}, UnknownNameError, "core-v0"),
    "reward": ({"reward": "statik"}, UnknownNameError, "static, model, measured, replay"),
    "kernel": ({"kernels": ("matmull",)}, UnknownNameError, "did you mean 'matmul'"),
    "shapes": ({"shapes": "huge"}, UnknownNameError, "tiny"),
    "graph observation": ({"observation": "graph"}, InvalidValueError, "Stable-Baselines3"),
    "other observation": ({"observation": "dict"}, InvalidValueError, "'features'"),
    "steps": ({"steps": 0}, InvalidValueError, "at least 1"),
    "rollout": ({"rollout": 65}, InvalidValueError, "a multiple of envs"),
    "learning rate": ({"learning_rate": 0.0}, InvalidValueError, "positive"),
    "gamma": ({"gamma": 1.5}, InvalidValueError, "from 0 to 1"),
    "replay of what ships in another space": (
        {"reward": "replay", "store": "core-v0", "env": "tirgym/Schedule-v0"},
        InvalidValueError,
        "recorded in the decision space",
    ),
    "store": (
        {"reward": "replay", "kernels": (), "store": "none.sqlite"},
        Exception,
        "none.sqlite",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    changed, error, said = BAD[name]
    with pytest.raises(error, match=said):
        train(replace(SMALL, out=str(tmp_path / "run"), **changed))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def copied(trained: TrainResult, tmp_path: Path) -> Path:
    """A copy of the folder of a training."""
    import shutil

    return Path(shutil.copytree(trained.args.out, tmp_path / "copied"))


def test_another_training_in_the_same_folder_is_refused(copied: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"seed: 7 .* 0, with which .* was begun"):
        train(replace(SMALL, out=str(copied), seed=7))


def test_a_folder_in_use_is_refused(copied: Path) -> None:
    with RunFolder(copied), pytest.raises(InvalidValueError, match="no other training"):
        train(replace(SMALL, out=str(copied), steps=256))


def edit_state(folder: Path, change: Callable[[Any], None]) -> None:
    run = RunFolder(folder)
    steps, path = run.states()[-1]
    tensors, facts = run.load_state(path)
    change(facts)
    run.save_state(steps, tensors, facts)


def test_a_state_of_other_spaces_is_refused(copied: Path) -> None:
    edit_state(copied, lambda facts: facts.update(spaces="0123456789abcdef"))
    with pytest.raises(TargetMismatchError, match="train anew in another folder"):
        train(replace(SMALL, out=str(copied), steps=256))


def test_a_damaged_state_is_named(copied: Path) -> None:
    _, path = RunFolder(copied).states()[-1]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DamagedFileError, match="to go on from the state before"):
        train(replace(SMALL, out=str(copied), steps=256))
    path.unlink()
    assert train(replace(SMALL, out=str(copied))).resumed_from == 128


def test_a_training_that_was_killed_at_its_very_end_still_leaves_its_policy(
    trained: TrainResult, copied: Path
) -> None:
    (copied / "policy.safetensors").unlink()
    done = train(replace(SMALL, out=str(copied)))
    assert done.steps_per_s is None
    assert done.policy.read_bytes() == trained.policy.read_bytes()


def test_damaged_arguments_are_named(copied: Path) -> None:
    (copied / "args.json").write_text(json.dumps({"agent": "ppo-mlp"}))
    with pytest.raises(DamagedFileError, match=r"args\.json"):
        train(replace(SMALL, out=str(copied)))


def test_threads_of_torch_stay_as_they_were(trained: TrainResult, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    train(replace(SMALL, out=str(tmp_path), steps=64, learner_threads=before + 1))
    assert torch.get_num_threads() == before
    assert os.environ.get("OMP_NUM_THREADS") == "1"


def test_arguments_are_kept_as_json() -> None:
    args = replace(SMALL, kernels=("a", "b"), max_steps=3)
    assert TrainArgs.from_dict(json.loads(json.dumps(args.to_dict()))) == args
    assert isinstance(args.spec(), EnvSpec)


def test_a_policy_stands_for_its_training_without_the_states(
    trained: TrainResult, tmp_path: Path
) -> None:
    whole = RunFolder(trained.args.out)
    kept = RunFolder(tmp_path)
    assert not kept.holds(trained.args)
    for name in ("args.json", "policy.safetensors"):
        (tmp_path / name).write_bytes((whole.path / name).read_bytes())
    assert kept.holds(replace(trained.args, out=str(tmp_path)))
    assert not kept.holds(replace(trained.args, steps=trained.steps + 64))
    with pytest.raises(InvalidValueError, match="seed"):
        kept.holds(replace(trained.args, seed=1))
