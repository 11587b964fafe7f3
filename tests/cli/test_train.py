"""`tirgym train`: what it says, how it goes on, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

for package in ("sb3_contrib", "torch_geometric", "safetensors", "tensorboard"):
    pytest.importorskip(package)

from tirgym.baselines.ppo import extra
from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.cli.train import policy_command

Cli = Callable[..., Any]
SMALL = (
    "train", "--agent", "ppo-mlp", "--kernels", "add,row_sum", "--eval-kernels", "row_sum",
    "--shapes", "tiny", "--envs", "2", "--workers", "0", "--rollout", "32", "--batch", "32",
    "--learner-threads", "1",
)  # fmt: skip


def test_train_reports_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    done = cli(*SMALL, "--steps", "32", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    said = done.json()
    assert (said["agent"], said["steps"], said["resumed_from"]) == ("ppo-mlp", 32, 0)
    assert said["verified_speedup"] is None
    assert said["geomean_speedup"] == said["evaluations"][-1]["geomean_speedup"]
    assert Path(said["policy_file"]).is_file()
    assert "step 2 of 32" in done.err
    lines = (tmp_path / "run" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == said["evaluations"]
    more = cli(*SMALL, "--steps", "64", "--out", tmp_path / "run")
    assert more.code == 0, more.err
    assert "gone on from step 32" in more.out
    assert "by the static reward" in more.out
    again = cli(*SMALL, "--steps", "64", "--out", tmp_path / "run")
    assert "nothing was left to train" in again.out


def test_the_command_trains_as_python_does_unless_told_otherwise() -> None:
    """A training goes on with the arguments that it was begun with, whoever began it."""
    known = asdict(TrainArgs()) | {"kernels": None, "eval_kernels": None}
    options = signature(policy_command).parameters
    given = {name: option.default for name, option in options.items() if name in known}
    del given["out"]  # the command asks for it
    assert given == {name: known[name] for name in given}


BAD: dict[str, tuple[list[str], int, str]] = {
    "agent": (["--agent", "ppo-gmm"], 2, "Accepted: ppo-gnn, ppo-gnn-shuffled, ppo-mlp"),
    "environment": (["--env", "tirgym/Decide-v0"], 2, "did you mean 'tirgym/Decision-v0'"),
    "split": (["--split", "dev"], 2, "train, val, test"),
    "reward": (["--reward", "statik"], 2, "did you mean 'static'"),
    "reward class": (["--reward", "nowhere:Reward"], 2, "package.module:Class"),
    "kernel": (["--kernels", "matmull"], 2, "did you mean 'matmul'"),
    "graph": (["--observation", "graph"], 2, "Stable-Baselines3 has no place for it"),
    "steps": (["--steps", "0"], 2, "at least 1"),
    "threads": (["--threads", "100000"], 2, "1 to"),
    "missing": (["--missing", "refuse"], 2, "replay"),
    "store": (["--reward", "replay", "--store", "none.sqlite"], 2, "none.sqlite"),
    "reward that is no number": (["--reward", "nan_reward:NanReward"], 1, "the reward is nan"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(cli: Cli, tmp_path: Path, name: str) -> None:
    arguments, code, said = BAD[name]
    done = cli(*SMALL, "--steps", "32", "--out", tmp_path / "run", *arguments)
    assert done.code == code
    errors = [line for line in done.err.splitlines() if line.startswith("tirgym: error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in done.err
    assert not done.out
    assert code == 1 or not (tmp_path / "run").exists()


def test_a_file_for_a_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli(*SMALL, "--out", tmp_path / "file")
    assert (done.code, "--out" in done.err) == (2, True)


def test_another_training_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli(*SMALL, "--steps", "32", "--out", tmp_path).code == 0
    done = cli(*SMALL, "--steps", "32", "--out", tmp_path, "--seed", "1")
    assert (done.code, "another folder" in done.err) == (2, True)


def test_the_arch_is_part_of_a_training(cli: Cli, tmp_path: Path) -> None:
    named = (*SMALL, "--steps", "32", "--out", tmp_path, "--arch", "x86-64-v2")
    assert cli(*named).code == 0
    assert json.loads((tmp_path / "args.json").read_text())["arch"] == "x86-64-v2"
    assert "nothing was left to train" in cli(*named).out
    done = cli(*named[:-2])
    assert (done.code, "'x86-64-v2', with which" in done.err) == (2, True)


def test_what_failed_before_the_first_checkpoint_leaves_the_folder_free(
    cli: Cli, tmp_path: Path
) -> None:
    broken = cli(*SMALL, "--steps", "32", "--out", tmp_path, "--reward", "nan_reward:NanReward")
    assert (broken.code, (tmp_path / "args.json").exists()) == (1, True)
    assert cli(*SMALL, "--steps", "32", "--out", tmp_path).code == 0


def test_a_missing_extra_says_what_to_install(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda module: None)
    done = cli(*SMALL, "--out", tmp_path / "run")
    assert (done.code, "pip install 'tirgym[rl]'" in done.err) == (2, True)
    assert not (tmp_path / "run").exists()
