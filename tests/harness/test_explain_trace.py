"""Traces step by step: legality, measured times, and which step gained or lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEvaluator, verdict
from small import SMALL, TARGET, make

from tirgym.errors import DamagedFileError, InvalidValueError, TargetMismatchError
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.explain_trace import Measured, TraceExplanation, explain_trace, measured_by
from tirgym.harness.program import Program
from tirgym.harness.run_record import RunRecord
from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status
from tirgym.harness.step_log import recorded_steps
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace

STEPS = (
    "Split(loop=1, factor=8)",
    "Reorder(loop=2)",
    "Vectorize(loop=3)",
    "DecomposeReduction(loop=2)",
)
TRACE = Trace(SMALL["matmul"], TARGET, STEPS)


def evaluate(evaluator: FakeEvaluator) -> Any:
    return lambda program: evaluator.evaluate(program, Level.FULL)


def test_each_step_has_its_explanation() -> None:
    explanation = explain_trace(TRACE)
    assert explanation.legal
    assert [(step.number, step.transform) for step in explanation.steps] == list(
        enumerate(STEPS, 1)
    )
    programs = [make(SMALL["matmul"], *STEPS[:n]) for n in range(5)]
    assert [p.ir_key for p in explanation.programs] == [p.ir_key for p in programs]
    third = explanation.steps[2].explanation
    assert third is not None
    assert (third.before.values["vector_lanes"], third.after.values["vector_lanes"]) == (0, 8)


def test_an_illegal_step_ends_the_explanation_with_its_reason() -> None:
    trace = Trace(SMALL["matmul"], TARGET, (STEPS[0], "Split(loop=0, factor=5)", STEPS[1]))
    explanation = explain_trace(trace)
    assert not explanation.legal
    assert len(explanation.steps) == 2
    last = explanation.steps[-1]
    assert last.explanation is None
    assert "factor does not divide" in last.refusal
    assert len(explanation.programs) == 2
    record = explanation.to_dict()["steps"]
    assert [step["legal"] for step in record] == [True, False]
    assert record[1]["predicted_us"] == {"before": None, "after": None}


def test_a_step_that_another_target_lacks_is_illegal_there() -> None:
    trace = Trace(SMALL["matmul"], Target("llvm", TARGET.arch, 2), ("Parallel(loop=0)",))
    assert explain_trace(trace).legal
    explanation = explain_trace(trace, TARGET)
    assert "cannot be replayed" in explanation.steps[0].refusal


def test_another_program_than_recorded_is_refused() -> None:
    with pytest.raises(TargetMismatchError, match="another program"):
        explain_trace(Trace(SMALL["matmul"], TARGET, STEPS, ir_key="0123456789abcdef"))


def test_the_record_has_units_and_costs() -> None:
    record = json.loads(json.dumps(explain_trace(TRACE).to_dict()))
    units = {quantity["name"]: quantity["unit"] for quantity in record["quantities"]}
    assert units["l2_bytes"] == "bytes"
    assert units["predicted_us"] == "µs"
    assert set(record["start"]) == set(units)
    for before, after in zip(record["steps"], record["steps"][1:], strict=False):
        assert before["predicted_us"]["after"] == after["predicted_us"]["before"]
        assert set(after["changes"]) <= set(units)
    assert record["steps"][0]["measured"] is None
    assert all(quantity["what"] and quantity["source"] for quantity in record["quantities"])


def spread(speedup: float, width: float = 0.02) -> Measured:
    interval = (speedup * (1 - width), speedup * (1 + width))
    return Measured("passed", "measured", 100.0 / speedup, speedup, interval)


def test_gains_are_ratios_with_intervals() -> None:
    verdicts = {0: spread(1.0), 1: spread(2.0), 2: spread(2.02), 3: spread(0.5)}
    gains = explain_trace(TRACE).with_measured(verdicts).gains
    assert [(gain.step, round(gain.ratio, 2), gain.verdict) for gain in gains] == [
        (1, 2.0, "faster"),
        (2, 1.01, "no difference shown"),
        (3, 0.25, "slower"),
    ]
    low, high = gains[0].interval or (0.0, 0.0)
    assert low == pytest.approx(2.0 * 0.98 / 1.02)
    assert high == pytest.approx(2.0 * 1.02 / 0.98)


def test_a_gain_needs_both_of_its_times() -> None:
    """A time at the end says nothing about the last step alone."""
    explanation = explain_trace(TRACE)
    assert explanation.with_measured({0: spread(1.0), 4: spread(9.0)}).gains == ()
    crash = Measured("crash", "measured", message="segmentation fault")
    some = explanation.with_measured({0: spread(1.0), 1: crash, 2: spread(2.0), 3: spread(4.0)})
    assert [gain.step for gain in some.gains] == [3]
    point = Measured("passed", "recorded", 50.0, 2.0)
    (gain,) = explanation.with_measured({0: spread(1.0), 1: point}).gains
    assert (gain.interval, gain.verdict) == (None, "")


def test_every_program_is_measured_once() -> None:
    evaluator = FakeEvaluator([1.0, 2.0, Status.TOO_SLOW, 3.0, 6.0])
    told: list[int] = []
    explanation = measured_by(explain_trace(TRACE), evaluate(evaluator), told.append)
    assert told == [0, 1, 2, 3, 4]
    assert len({key for key, _ in evaluator.calls}) == len(evaluator.calls) == 5
    found = [explanation.begin, *(step.measured for step in explanation.steps)]
    assert [each.status for each in found if each] == ["passed"] * 2 + ["too_slow"] + ["passed"] * 2
    assert [gain.step for gain in explanation.gains] == [1, 4]


def test_equal_programs_are_asked_once() -> None:
    twice = Trace(SMALL["matmul"], TARGET, ("Reorder(loop=0)", "Reorder(loop=0)"))
    evaluator = FakeEvaluator()
    explanation = measured_by(explain_trace(twice), evaluate(evaluator))
    assert len(evaluator.calls) == 2
    assert explanation.begin == explanation.steps[1].measured


def played(tmp_path: Path, script: list[Any], steps: tuple[str, ...] = STEPS) -> Path:
    """The decision log of a session that applies the steps and judges each program."""
    evaluator = FakeEvaluator(script)
    with CompileHarness(arch=TARGET.arch, evaluator=evaluator) as harness:
        harness.load_ir(SMALL["add"])
        harness.compile_and_benchmark()
        harness.load_ir(SMALL["matmul"])
        harness.compile_and_benchmark()
        for step in steps:
            harness.apply_transform(step)
            harness.compile_and_benchmark()
        harness.save_history(tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


def test_the_decision_log_says_what_was_measured(tmp_path: Path) -> None:
    log = played(tmp_path, [9.0, 1.0, 2.0, 3.0, Status.NOISY, 4.0])
    explanation = explain_trace(TRACE)
    found = recorded_steps(log, explanation.programs)
    assert [(n, m.status, m.speedup) for n, m in found.items()] == [
        (0, "passed", 1.0),
        (1, "passed", 2.0),
        (2, "passed", 3.0),
        (3, "noisy", None),
        (4, "passed", 4.0),
    ]
    assert {m.source for m in found.values()} == {"recorded"}
    recorded_gains = explanation.with_measured(found).gains
    assert [(gain.step, gain.interval) for gain in recorded_gains] == [(1, None), (2, None)]


def test_a_verdict_that_rolled_back_is_not_pinned_on_another_program(tmp_path: Path) -> None:
    """The log then has the key of the program that the harness went back to."""
    log = played(tmp_path, [9.0, 1.0, 2.0, Status.WRONG_RESULT], STEPS[:2])
    found = recorded_steps(log, explain_trace(TRACE).programs)
    assert found[1].speedup == 2.0
    assert 2 not in found


def test_searches_are_found_by_their_transforms(tmp_path: Path) -> None:
    class Both:
        name = "both"

        def run(self, search: Any) -> None:
            search.evaluate(search.start)
            search.evaluate(make(SMALL["matmul"], *STEPS[:1]))

    with CompileHarness(arch=TARGET.arch, evaluator=FakeEvaluator([1.0, 1.5])) as harness:
        harness.load_ir(SMALL["matmul"])
        harness.search_loop(Both(), trials=2)
        harness.save_history(tmp_path / "log.jsonl")
    found = recorded_steps(tmp_path / "log.jsonl", explain_trace(TRACE).programs)
    assert found[1].speedup is not None
    assert sorted(found) == [0, 1]


def test_run_records_are_read_and_full_verdicts_win(tmp_path: Path) -> None:
    programs: tuple[Program, ...] = explain_trace(TRACE).programs
    record = RunRecord(tmp_path, "beam", 0)
    record.record(programs[2], judged(programs[2], 2.0, Level.TRAINING))
    record.record(programs[2], judged(programs[2], 3.0, Level.FULL), before=programs[2])
    record.record(programs[2], judged(programs[2], 4.0, Level.TRAINING))
    record.record(programs[1])
    record.record(make(SMALL["add"]), judged(make(SMALL["add"]), 7.0, Level.FULL))
    record.record(programs[4], verdict(Status.CRASH, programs[4].ir_key))
    record.close()
    found = recorded_steps(tmp_path, programs)
    assert {n: (m.status, m.speedup) for n, m in found.items()} == {
        2: ("passed", 3.0),
        4: ("crash", None),
    }


def judged(program: Program, speedup: float, level: Level) -> Evaluation:
    return FakeEvaluator([speedup]).evaluate(program, level)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]\n", "line 1 is no JSON object"),
        ('{"action": "load"}\n', "field subject is missing"),
        ('{"action": 3}\n', "field action is missing or of another type"),
        ('{"format": "tirgym-visit-1"}\n', "line 1"),
        ("{\n", "line 1 is no JSON object"),
    ],
)
def test_damaged_logs_are_named(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(text)
    programs = (make(SMALL["add"]),)
    with pytest.raises(DamagedFileError, match=problem):
        recorded_steps(tmp_path / "log.jsonl", programs)


def test_a_folder_without_records_and_a_missing_file_are_named(tmp_path: Path) -> None:
    programs = (make(SMALL["add"]),)
    with pytest.raises(DamagedFileError, match=r"no \.jsonl file"):
        recorded_steps(tmp_path, programs)
    with pytest.raises(DamagedFileError, match="no such file"):
        recorded_steps(tmp_path / "none.jsonl", programs)


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    log = played(tmp_path, [9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    whole = log.read_text()
    log.write_text(whole + whole.splitlines()[-1][:40])
    assert len(recorded_steps(log, explain_trace(TRACE).programs)) == 5


def test_explanations_of_one_trace_are_equal() -> None:
    first, again = explain_trace(TRACE), explain_trace(TRACE)
    assert isinstance(first, TraceExplanation)
    assert first.to_dict() == again.to_dict()
    with pytest.raises(InvalidValueError):
        explain_trace(Trace("tirgym://core-v0/add?m=0&n=4", TARGET, ()))
