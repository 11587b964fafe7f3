"""Trick: write the number down instead of earning it: an evaluation, a store row, a trace."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import passed
from forged import MEASURED, forge_store
from handmade import host, start

from tirgym.cli.traces import _claim_holds
from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, GateReport, Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.timing import TimingPlan
from tirgym.harness.trace import Trace, TraceResult
from tirgym.harness.verification import verify_best

PLAN = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)


# -- evaluations ----------------------------------------------------------------------------


def test_a_pass_without_a_gate_cannot_be_made() -> None:
    with pytest.raises(InvalidValueError, match="gate report"):
        Evaluation(Status.PASSED, "ir", measurement=MEASURED)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_a_number_beside_any_other_verdict_cannot_be_made(status: Status) -> None:
    with pytest.raises(InvalidValueError, match="status passed"):
        Evaluation(status, "ir", measurement=MEASURED, gate=GateReport((), 0.0, True))
    with pytest.raises(InvalidValueError, match="status passed"):
        replace(passed(2.0), status=status)


def test_a_verdict_cannot_be_turned_into_another() -> None:
    wrong = Evaluation(Status.WRONG_RESULT, "ir", gate=GateReport((), 9.0, False, "wrong"))
    with pytest.raises(AttributeError):
        wrong.status = Status.PASSED  # type: ignore[misc]
    with pytest.raises(InvalidValueError):
        replace(wrong, status=Status.PASSED)


# -- the store ------------------------------------------------------------------------------


@pytest.fixture
def poisoned(tmp_path: Path, evaluator: LocalEvaluator) -> Path:
    path = tmp_path / "store.sqlite"
    forge_store(path, start(), evaluator.check(start(), Level.TRAINING).code_key)
    return path


def test_a_forged_row_is_not_what_a_search_reports(poisoned: Path) -> None:
    """The winner's number is measured once more, whatever the store says."""
    with LocalEvaluator(host(), poisoned, plans=dict.fromkeys(Level, PLAN)) as evaluator:
        claimed = evaluator.evaluate(start())
        assert claimed.speedup == 1000.0
        verdict = verify_best([Candidate(start(), claimed)], start(), evaluator)
    assert verdict.candidate.evaluation.speedup == 1.0


def test_a_forged_row_is_not_what_a_fresh_check_reports(poisoned: Path) -> None:
    with LocalEvaluator(host(), poisoned, plans=dict.fromkeys(Level, PLAN)) as evaluator:
        assert evaluator.evaluate(start(), Level.FULL, fresh=True).speedup == 1.0


@pytest.mark.parametrize(
    "change", ["UPDATE verdicts SET gate = NULL", "UPDATE verdicts SET status = 'wrong_result'"]
)
def test_a_row_edited_by_hand_into_an_impossible_record_is_damage(
    poisoned: Path, change: str
) -> None:
    with sqlite3.connect(poisoned) as connection:
        connection.execute(change)
    connection.close()
    with LocalEvaluator(host(), poisoned) as evaluator, pytest.raises(DamagedFileError):
        evaluator.evaluate(start())


# -- traces ---------------------------------------------------------------------------------


def claim(path: Path, **changes: Any) -> Path:
    """A trace of the unscheduled add that claims to be a thousand times faster."""
    made = Trace(
        "tirgym://core-v0/add?m=12&n=20&dtype=float32",
        host(),
        (),
        result=TraceResult("passed", 1000.0, (990.0, 1010.0), 1000.0, 1.0),
    )
    path.write_text(json.dumps({"format": "tirgym-trace-1", **asdict(made), **changes}))
    return path


def test_a_claim_is_measured_again(tmp_path: Path, cli: Callable[..., Any]) -> None:
    boast = TraceResult("passed", 1000.0, (1.0, 2000.0), 1000.0, 1.0)
    path = claim(tmp_path / "t.json", result=asdict(boast))
    record = cli("verify", str(path), "--json").json()
    assert record["claim_holds"] is False
    assert record["verified"]["speedup"] == 1.0


@pytest.mark.parametrize("interval", [(1.0, 2000.0), (0.0, 0.0), None, (-1e9, 1e9)])
def test_an_interval_that_the_claimant_wrote_excuses_nothing(
    interval: tuple[float, float] | None,
) -> None:
    """Measured 2x: a claim of 1000x with an interval from 1 on does not hold, nor does infinity."""
    found = passed(2.0)
    for speedup, holds in ((1000.0, False), (1e999, False), (float("nan"), False), (2.2, True)):
        assert _claim_holds(TraceResult("passed", speedup, interval), found) is holds
    assert _claim_holds(TraceResult("passed", None, interval), found) is None
    assert _claim_holds(None, found) is None


def test_a_claim_about_another_program_is_refused(tmp_path: Path, cli: Callable[..., Any]) -> None:
    done = cli("verify", str(claim(tmp_path / "t.json", ir_key="0123456789abcdef")))
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Split(loop=__import__('os').getpid(), factor=2)",
        "Split(loop=0, factor=2).apply_to(1, 2)",
        "UnsafeSetDtype(block=0, dtype='float16')",
    ],
)
def test_a_trace_runs_no_code(text: str, tmp_path: Path, cli: Callable[..., Any]) -> None:
    done = cli("replay", str(claim(tmp_path / "t.json", transforms=[text])))
    assert (done.code, done.out) == (2, "")
