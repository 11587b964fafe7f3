"""The throughput benchmark runs, and its figures hang together."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from tirgym.benchmarks import throughput

TINY = ("add", "softmax")


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(throughput.run)
    return app


def test_the_static_section_is_faster_than_the_plain_way_in_the_same_run() -> None:
    report = throughput.static(episodes=5, plain_states=2, kernels=TINY)
    assert report.episodes == 5
    assert 0 < report.steps <= 5 * throughput.EPISODE_STEPS
    assert report.plain_states == 2
    assert report.ratio > 2
    assert report.ratio == pytest.approx(
        report.steps_per_s / report.plain_steps_per_s, rel=0.02, abs=0.1
    )
    assert set(report.phases_us) == set(throughput.PHASES)
    assert all(us > 0 for us in report.phases_us.values())
    assert report.snapshot_us < report.rollback_us


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
    import numpy as np

    from tirgym.envs.schedule import ScheduleEnv

    env = ScheduleEnv("matmul", reward="static")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    tilings = [throughput._random_tiling(env, rng) for _ in range(8)]
    assert len({program.ir_key for program in tilings}) > 4
    assert all(len(program.nest.loops) >= 6 for program in tilings)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_measured_section_measures() -> None:
    report = throughput.measured(rounds=4, batch=2)
    assert report.rounds == 4
    assert report.passed >= 2
    assert 0 < report.overhead_share < 1
    assert report.ratio == pytest.approx(report.rounds_per_s / report.one_by_one_per_s, rel=0.05)
    assert report.phases_ms["build_s"] > 0
