"""The benchmark of training counts what it says it counts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

for package in ("sb3_contrib", "torch_geometric"):
    pytest.importorskip(package)

import typer

from tirgym.benchmarks.training_speed import PeakMemory, run

ARGUMENTS = (
    "--agent", "ppo-mlp", "--kernels", "add,row_sum", "--envs", "2", "--workers", "0",
    "--rollout", "32", "--batch", "32", "--learner-threads", "1",
)  # fmt: skip


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(run)
    return made


def test_the_parts_of_a_training_add_up() -> None:
    done = CliRunner().invoke(app(), ["--json", "--steps", "96", *ARGUMENTS])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)["training_speed"]
    assert (report["steps"], report["envs"], report["workers"]) == (64, 2, 0)
    parts = [report[f"{part}_s"] for part in ("environment", "inference", "learner")]
    assert min(parts) > 0
    whole = report["steps"] / report["steps_per_s"]
    # Parts do not overlap; a busy machine may take the core away between them.
    assert 0.5 * whole <= sum(parts) <= 1.05 * whole + 0.05
    assert 0 < report["learner_cpu_ms_per_step"] <= report["cpu_ms_per_step"]
    assert report["peak_mb"] > 100


def test_one_rollout_is_too_few() -> None:
    done = CliRunner().invoke(app(), ["--steps", "20", *ARGUMENTS])
    assert done.exit_code == 2
    assert "at least two rollouts of 32" in done.output


def test_even_what_is_over_before_the_first_sample_has_a_peak() -> None:
    with PeakMemory() as memory:
        pass
    assert memory.peak_bytes > 10e6
