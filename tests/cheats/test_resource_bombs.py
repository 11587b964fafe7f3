"""Trick: take all memory, all disk, or all time, of the run, of the compiler, or of the verifier."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from boards import ADD, TARGET
from fakes import FakeEvaluator
from handmade import quick
from tvm.s_tir import Schedule

from tirgym.benchmarks.leaderboard.entrants import entrant
from tirgym.benchmarks.leaderboard.recipes import ProgramMaker, program_of
from tirgym.benchmarks.leaderboard.record import Kind, Outcome, Recipe, RecipeKind, parse_record
from tirgym.benchmarks.leaderboard.running import Conditions, run_row
from tirgym.benchmarks.leaderboard.submission import check_submission
from tirgym.errors import IllegalTransformError, InvalidValueError, UsageError
from tirgym.harness.backend import backend
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload


def test_an_agent_that_eats_memory_ends_its_own_process_alone() -> None:
    given = Conditions(
        TARGET, (2,), memory_bytes=3 << 30, make_evaluator=lambda target, seed: FakeEvaluator()
    )
    found = run_row(entrant("boards:Eater"), ADD, 0, given)
    assert found.outcome is Outcome.CRASH
    assert "MemoryError" in found.message
    assert found.used.trials == 0


@pytest.mark.parametrize(
    ("agent", "outcome", "says"),
    [
        ("Gusher", Outcome.TIMEOUT, "killed at its time limit"),
        ("Sleeper", Outcome.TIMEOUT, "killed at its time limit"),
        ("Mute", Outcome.CRASH, "closed its pipe and went on"),
    ],
)
def test_no_agent_outlives_its_time(
    agent: str, outcome: Outcome, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by asking without reading, nor by hiding from the run."""
    monkeypatch.setattr("tirgym.benchmarks.leaderboard.apart.GRACE_S", 0.5)
    given = Conditions(
        TARGET, (2,), hard_limit_s=2.0, make_evaluator=lambda target, seed: FakeEvaluator()
    )
    began = time.monotonic()
    found = run_row(entrant(f"boards:{agent}"), ADD, 0, given)
    assert (found.outcome, found.used.trials) == (outcome, 0)
    assert says in found.message
    assert time.monotonic() - began - found.used.start_s < 20.0


def test_numbers_that_would_fill_the_memory_of_the_run_are_refused() -> None:
    """The run makes programs itself, outside the limits of the agent's process."""
    maker = ProgramMaker(load_workload(ADD), TARGET)
    for step in ("Unroll(loop=68719476736)", f"Unroll(loop={10**30})", f"Split({'(' * 4000}"):
        began = time.monotonic()
        with pytest.raises((UsageError, IllegalTransformError)):
            maker.make(Recipe(RecipeKind.TRANSFORMS, (step,)))
        assert time.monotonic() - began < 5.0


def test_a_program_that_compiles_for_ever_is_refused_before_the_build() -> None:
    """A matrix product with every loop unrolled: two million statements."""
    workload = load_workload("tirgym://core-v0/matmul?m=128&n=128&k=128&dtype=float32")
    schedule = Schedule(TensorIRProgram.start(workload, backend("llvm").target()).mod)
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    for loop in schedule.get_loops(block):
        schedule.unroll(loop)
    program = TensorIRProgram(workload, backend("llvm").target(), (), schedule)
    began = time.monotonic()
    with quick() as evaluator:
        found = evaluator.evaluate(program)
    assert found.status is Status.ILLEGAL
    assert time.monotonic() - began < 10.0


def test_a_submission_of_endless_traces_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("big")
    (tmp_path / "big.json").write_text(
        json.dumps({"transforms": ["Split(loop=0, factor=2)"] * 200_000})
    )
    found = check_submission(tmp_path, TARGET, 1)
    assert "at most" in found.rows[0].reason


def test_nested_json_is_a_line_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="damaged"):
        parse_record("[" * 100_000)


@pytest.mark.parametrize("text", ["[" * 100_000, "[[], []", "{}", "[1, 2]", '[[["Split"]], []]'])
def test_schedules_that_are_none_are_refused(text: str) -> None:
    recipe = Recipe(RecipeKind.SCHEDULE, schedule=text)
    with pytest.raises(InvalidValueError, match="schedule of TVM"):
        program_of(recipe, load_workload(ADD), TARGET, Kind.PEER)
