"""The throughput benchmark runs, and its figures hang together."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tirgym.benchmarks import static_throughput, throughput
from tirgym.benchmarks.measured_throughput import measured, random_tiling
from tirgym.benchmarks.plain_way import plain_step
from tirgym.benchmarks.static_throughput import static
from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.transforms.split import Split

TINY = ("add", "softmax")


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(throughput.run)
    return app


def test_the_static_section_is_faster_than_the_plain_way_in_the_same_run() -> None:
    report = static(episodes=5, plain_states=2, kernels=TINY, suite=("relu", *TINY))
    assert report.episodes == 5
    assert 0 < report.steps <= 5 * static_throughput.EPISODE_STEPS
    assert report.plain_states == 2
    assert report.ratio > 2
    assert report.ratio == pytest.approx(
        report.steps_per_s / report.plain_steps_per_s, rel=0.02, abs=0.1
    )
    assert set(report.phases_us) == set(static_throughput.PHASES)
    assert all(us > 0 for us in report.phases_us.values())
    assert report.snapshot_us < report.rollback_us
    assert report.suite_kernels == 3
    assert report.suite_steps_per_s > report.plain_steps_per_s


def test_the_plain_way_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    env = ScheduleEnv("matmul", reward="static", max_steps=4)
    env.reset(seed=0)
    split = env.program.apply(Split(1, 8))  # a refused Tensorize warns of the variables it names
    assert plain_step(env.vocabulary, split, Split(0, 2)) > 0
    assert capfd.readouterr() == ("", "")


def test_one_section_can_be_asked_for_as_json() -> None:
    done = CliRunner().invoke(
        command(), ["--json", "--section", "memory", "--memory-episodes", "6"]
    )
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert list(report) == ["memory"]
    assert report["memory"]["end_mib"] > 50


def test_an_unknown_section_is_refused_with_those_that_exist() -> None:
    done = CliRunner().invoke(command(), ["--section", "dynamic"])
    assert done.exit_code == 2
    assert "measured" in done.output


def test_random_tilings_are_legal_and_differ() -> None:
    env = ScheduleEnv("matmul", reward="static")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    tilings = [random_tiling(env, rng) for _ in range(8)]
    assert len({program.ir_key for program in tilings}) > 4
    assert all(len(program.nest.loops) >= 6 for program in tilings)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_measured_section_measures() -> None:
    report = measured(rounds=4, batch=2)
    assert report.rounds == 4
    assert report.passed >= 2
    assert 0 < report.overhead_share < 1
    assert report.ratio == pytest.approx(report.rounds_per_s / report.one_by_one_per_s, rel=0.05)
    assert report.phases_ms["build_s"] > 0
