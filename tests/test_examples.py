"""The examples run; the others are run by tests/cli/test_search_and_traces.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_random_agent_plays_three_episodes() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "random_agent.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "episode 0",
        "episode 1",
        "episode 2",
    ]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.stdout == done.stdout


def test_a_rule_of_ones_own_answers_the_compiler() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "decide.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (width,) = (line for line in lines if line.startswith("c.register.j.3 = "))
    assert 8 <= int(width.rpartition(" ")[2]) <= 16  # the widest that is no more than 16
    assert lines[-1].startswith("predicted speedup ")
    assert f"{len(lines) - 1} answers taken" in lines[-1]


LEARNERS = {
    "train_sb3.py": (("sb3_contrib", "torch_geometric"), ("200",), "softmax, unseen: predicted"),
    "ppo_single_file.py": (
        ("torch",),
        ("--steps", "128", "--envs", "4", "--rollout", "16", "--kernels", "add,relu"),
        "step    128  predicted speedup",
    ),
    "ppo_torchrl.py": (("torchrl",), ("512",), "step    512  predicted speedup"),
}
"""File → modules that it needs, arguments, and what its output has."""


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_learn_for_a_few_steps(name: str) -> None:
    modules, arguments, said = LEARNERS[name]
    for module in modules:
        pytest.importorskip(module)
    ignored = "ignore:`torch.jit.script:DeprecationWarning"
    command = [sys.executable, "-W", ignored, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
