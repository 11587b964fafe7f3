"""Trick: fill the store with numbers before the run, and let it answer instead of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from boards import Stepper
from forged import forge_store
from handmade import host, quick

from tirgym import settings
from tirgym.benchmarks.leaderboard import measuring
from tirgym.benchmarks.leaderboard.agent_process import Order
from tirgym.benchmarks.leaderboard.apart import AgentApart
from tirgym.benchmarks.leaderboard.measuring import Job, measure_here
from tirgym.benchmarks.leaderboard.record import Kind, Recipe, RecipeKind
from tirgym.benchmarks.leaderboard.running import Conditions
from tirgym.harness.agent import Budget
from tirgym.harness.backend import backend
from tirgym.harness.calibration import estimated_peaks
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.kernels_suite.registry import load_workload

ADD = "tirgym://core-v0/add?m=8&n=16&dtype=float32"


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluator: LocalEvaluator) -> Path:
    """The user's store says that the unscheduled add is a thousand times as fast as itself."""
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))
    start = backend("llvm").start(load_workload(ADD), host())
    forge_store(settings.store_path(), start, evaluator.check(start).code_key)
    return tmp_path


def test_the_users_store_does_lie(poisoned: Path) -> None:
    """Or the tests below would show nothing."""
    start = backend("llvm").start(load_workload(ADD), host())
    with LocalEvaluator() as evaluator:
        assert evaluator.evaluate(start).speedup == 1000.0


def test_runs_start_from_an_empty_store(poisoned: Path) -> None:
    made = Conditions(host(), (1,)).make_evaluator(host(), 0)
    assert isinstance(made, LocalEvaluator)
    with made as evaluator:
        assert evaluator.store.path == ":memory:"
        assert list(evaluator.store.contexts()) == []


def test_agents_have_an_empty_data_folder(poisoned: Path) -> None:
    order = Order("boards:Stepper", {}, ADD, host(), 0, Budget(1), 8 << 30, 1 << 20)
    environment: dict[str, str] = {}
    with AgentApart(order, Kind.AGENT, 60.0) as player:
        environment = player._environment()
        home = Path(environment["TIRGYM_HOME"])
        assert home != poisoned
        assert list(home.iterdir()) == []
        assert player.saw == Stepper.saw
    assert not home.exists()


def test_verification_measures_whatever_the_store_says(
    poisoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "peaks", estimated_peaks)
    asked = []

    def evaluator(target: object, store: str, seed: int) -> LocalEvaluator:
        asked.append(store)
        return quick(store)

    monkeypatch.setattr(measuring, "LocalEvaluator", evaluator)
    naive = Job(Recipe(RecipeKind.TRANSFORMS), Kind.AGENT, shapes=False)
    (found,) = measure_here(ADD, host(), [naive], 0)
    assert (found.speedup, asked) == (1.0, [":memory:"])
