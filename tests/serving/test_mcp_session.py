"""What a client does with a kernel, on an evaluator with scripted verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeEvaluator, passed, timing
from small import SMALL

from tirgym.errors import IllegalTransformError, InvalidValueError, UnknownNameError, UsageError
from tirgym.harness.baselines_report import BaselineRow
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.replay import replay
from tirgym.harness.status import Status
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Workload
from tirgym.serving.mcp_results import Exported
from tirgym.serving.mcp_session import KernelSession
from tirgym.serving.mcp_wire import Opening

OPENING = Opening(
    session="handle",
    kernel=SMALL["matmul"],
    shape=None,
    space="both",
    trials=3,
    seconds=100.0,
    agent="mcp:test",
    files=False,
    backend="llvm",
    arch="skylake-avx512",
    threads=1,
    store=None,
)
SPLIT, UNROLL = "Split(loop=1, factor=8)", "Unroll(loop=0)"


def session(
    script: Iterable[Status | float | Evaluation] = (), **changes: object
) -> tuple[KernelSession, FakeEvaluator]:
    """A session, and the evaluator that it asks. The first verdict is the unscheduled program's."""
    evaluator = FakeEvaluator(script)
    return KernelSession(replace(OPENING, **changes), evaluator=evaluator), evaluator  # type: ignore[arg-type]


def trace_of(exported: Exported) -> Trace:
    """The trace that was exported, read as `tirgym verify` reads it."""
    return Trace.from_json(json.dumps(exported.trace))


def test_a_session_begins_with_the_unscheduled_program() -> None:
    made, evaluator = session()
    loaded = made.loaded()
    assert loaded.state.workload == SMALL["matmul"]
    assert loaded.state.transforms == []
    assert loaded.state.nest[0].startswith("loop 0: i, extent 16")
    assert (loaded.state.trials_left, loaded.state.trials_used) == (3, 0)
    assert {"Split", "MultiLevelTile"} <= set(loaded.kinds)
    assert "asm" in loaded.levels
    assert not evaluator.calls


@pytest.mark.parametrize(
    ("shape", "uri"),
    [
        ("tiny", "tirgym://core-v0/matmul?m=10&n=12&k=14&dtype=float32"),
        ({"n": 8}, "tirgym://core-v0/matmul?m=16&n=8&k=32&dtype=float32"),
    ],
)
def test_shapes(shape: object, uri: str) -> None:
    made, _ = session(shape=shape)
    assert made.state().workload == uri


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"kernel": "matmull"}, "did you mean 'matmul'"),
        ({"kernel": "tirgym://core-v0/matmul?m=0"}, "dimension m of kernel matmul"),
        ({"kernel": "tirgym://[::1/softmax"}, "workload URI"),
        ({"kernel": "tirgym://core-v0]/softmax"}, "workload URI"),
        ({"kernel": "tirgym:"}, "workload URI"),
        ({"kernel": "runs/trace.json"}, "no trace"),
        ({"kernel": "mine.py:mine"}, "tirgym mcp --files lets it"),
        ({"kernel": "tirgym://local/mine.py:mine?n=1"}, "tirgym mcp --files lets it"),
        ({"kernel": "mine.py:mine", "files": True}, "there is no such file"),
        ({"shape": {"q": 3}}, "positive integers for m, n, k"),
        ({"shape": "large"}, "sizes by dimension, or 'tiny'"),
        ({"space": "all"}, "unknown vocabulary 'all'"),
    ],
)
def test_what_cannot_be_loaded(changes: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        session(**changes)  # type: ignore[arg-type]
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "kernel",
    [
        "{}.py:K",
        "tirgym://local/{}%2Epy:K",
        "tirgym://local/{}.p%79:K",
        "tirgym://core-v0/{}.%70%79:K?n=1",
        "tirgym://local/{}.p\ty:K",
    ],
)
def test_a_server_without_files_opens_none(kernel: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UsageError, match="tirgym mcp --files lets it"):
        session(kernel=kernel.format(tmp_path / "mine"))
    assert not (tmp_path / "ran").exists()


def test_an_action_answers_what_changed_and_the_new_nest() -> None:
    made, _ = session()
    before = made.state()
    applied = made.apply(SPLIT, "")
    assert applied.state.transforms == [SPLIT]
    assert len(applied.state.nest) == len(before.nest) + 1
    assert applied.predicted_us_before == before.predicted_us
    assert applied.changes
    assert applied.sentences
    changed = {change.quantity: (change.before, change.after) for change in applied.changes}
    assert changed["loops"] == (3, 4)


def test_an_illegal_action_says_rule_and_reason_and_changes_nothing() -> None:
    made, _ = session()
    before = made.state()
    with pytest.raises(IllegalTransformError, match=r"no such loop or block \[exists\]"):
        made.apply("Split(loop=40, factor=8)", "")
    assert made.state().transforms == before.transforms


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("Splitt(loop=1, factor=8)", "unknown kind of action 'Splitt'; did you mean 'Split'"),
        ("Split(loop=1)", "expected Split(loop=integer, factor=integer)"),
        ("Split(1, 8)", "expected NAME(KEY=VALUE"),
        ("", "expected NAME(KEY=VALUE"),
        ("STOP", "expected NAME(KEY=VALUE"),
        ("StorePrecision(block=0, dtype='float16')", "unknown kind of action"),
        ("MultiLevelTile(block=0)", "as legal_actions lists it"),
    ],
)
def test_text_that_is_no_action(action: str, line: str) -> None:
    made, _ = session()
    with pytest.raises(UsageError) as caught:
        made.apply(action, "")
    assert line in str(caught.value)


def test_every_action_that_is_listed_applies() -> None:
    made, _ = session()
    for kind in made.loaded().kinds:
        page = made.legal_actions(kind, None, None, 0, 2)
        for action in page.actions:
            made.apply(action, "")
            made.rollback("start")


def test_a_macro_stands_in_traces_as_transforms() -> None:
    made, _ = session()
    tile = made.legal_actions("MultiLevelTile", None, None, 0, 1).actions[0]
    made.apply(tile, "registers")
    exported = made.export("current", measure=False)
    assert len(exported.trace["transforms"]) > 1
    assert not any("MultiLevelTile" in step for step in exported.trace["transforms"])
    assert replay(trace_of(exported)).ir_key == exported.trace["ir_key"]


def test_pages_of_actions_make_up_the_whole() -> None:
    made, _ = session()
    whole = made.legal_actions(None, None, None, 0, 1000)
    assert whole.total == len(whole.actions) == sum(whole.kinds.values())
    assert whole.next_offset is None
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = made.legal_actions(None, None, None, offset, 7)
        found += page.actions
        offset = page.next_offset
    assert found == whole.actions
    assert made.legal_actions(None, None, None, whole.total, 7).actions == []


def test_actions_by_kind_and_node() -> None:
    made, _ = session()
    splits = made.legal_actions("Split", None, None, 0, 1000)
    assert splits.total == splits.kinds["Split"] > 0
    assert len(splits.short) < splits.total
    assert splits.short[0].startswith("Split(loop=0")
    assert "|" in splits.short[0]
    on_one = made.legal_actions("Split", 1, None, 0, 1000).actions
    assert on_one == [action for action in splits.actions if "loop=1," in action]
    blocks = made.legal_actions(None, None, 0, 0, 1000).actions
    assert blocks
    assert all("block=0" in action for action in blocks)
    with pytest.raises(UnknownNameError, match="did you mean 'Split'"):
        made.legal_actions("split", None, None, 0, 10)


def test_trials_count_new_machine_code_alone() -> None:
    made, evaluator = session([1.0, 2.0, passed(9.0, "", "code-of-split")])
    first = made.evaluate("training")
    assert (first.charged, first.speedup, first.state.trials_used) == (False, 1.0, 0)
    made.apply(SPLIT, "")
    evaluator.script = [passed(2.0, made._harness.program.ir_key, "same")]
    assert made.evaluate("training").charged
    assert not made.evaluate("training").charged  # the same IR: not even asked
    assert len(evaluator.calls) == 2
    made.apply(UNROLL, "")
    evaluator.script = [passed(9.0, made._harness.program.ir_key, "same")]
    again = made.evaluate("training")  # another IR, the same machine code
    assert (again.charged, again.speedup, again.state.trials_used) == (False, 2.0, 1)


def test_spent_trials_end_evaluation_and_nothing_else() -> None:
    made, evaluator = session(trials=1)
    made.apply(SPLIT, "")
    assert made.evaluate("training").state.trials_left == 0
    assert made.evaluate("training").speedup is not None
    calls = len(evaluator.calls)
    made.apply(UNROLL, "")
    for level in ("training", "full"):
        with pytest.raises(UsageError, match="the 1 trials of this session are spent"):
            made.evaluate(level)
    with pytest.raises(UsageError, match="are spent"):
        made.export("current", measure=True)
    with pytest.raises(UsageError, match="are spent"):
        made.profile(measure=True)
    assert len(evaluator.calls) == calls
    assert made.export("best", measure=True).trace["transforms"] == [SPLIT]


def test_a_full_evaluation_costs_the_trial_of_its_program_and_no_more() -> None:
    made, evaluator = session()
    made.apply(SPLIT, "")
    full = made.evaluate("full")
    assert (full.level, full.charged) == ("full", True)
    assert [level for _, level in evaluator.calls] == [Level.TRAINING, Level.TRAINING, Level.FULL]
    assert not made.evaluate("training").charged


def test_what_does_not_hold_has_no_number_and_is_left() -> None:
    made, _ = session([1.0, 1.5, Status.WRONG_RESULT])
    made.apply(SPLIT, "")
    made.evaluate("training")
    made.apply(UNROLL, "")
    judged = made.evaluate("training")
    assert (judged.status, judged.speedup, judged.latency_us) == ("wrong_result", None, None)
    assert judged.message == "scripted wrong_result"
    assert judged.rolled_back
    assert judged.evaluated == [SPLIT, UNROLL]
    assert judged.state.transforms == [SPLIT]
    assert judged.best_speedup == 1.5
    assert "went back" in judged.text()


def test_a_slow_program_stays() -> None:
    made, _ = session([1.0, Status.TOO_SLOW])
    made.apply(SPLIT, "")
    judged = made.evaluate("training")
    assert (judged.status, judged.rolled_back) == ("too_slow", False)
    assert judged.state.transforms == [SPLIT]


def test_reasons_stand_beside_their_effects() -> None:
    made, _ = session()
    made.apply(SPLIT, "eight lanes")
    with pytest.raises(IllegalTransformError):
        made.apply("Vectorize(loop=0)", "try the outer loop")
    made.apply(UNROLL, "")
    made.evaluate("training")
    log = made.history(0, 100)
    found = [(entry.action, entry.subject, entry.verdict, entry.why) for entry in log.entries]
    assert found == [
        ("load", SMALL["matmul"], "ok", ""),
        ("transform", SPLIT, "ok", "eight lanes"),
        ("transform", "Vectorize(loop=0)", "illegal", "try the outer loop"),
        ("transform", UNROLL, "ok", ""),
        ("evaluate", "training", "passed", ""),
    ]
    assert log.entries[1].change["loops"] == (3.0, 4.0)
    assert "[" in log.entries[2].message
    assert log.entries[4].speedup is not None
    assert log.total == 5
    part = made.history(1, 2)
    assert ([entry.number for entry in part.entries], part.next_offset) == ([1, 2], 3)


def test_snapshots() -> None:
    made, _ = session()
    made.apply(SPLIT, "")
    name = made.snapshot().snapshot
    made.apply(UNROLL, "")
    assert made.rollback(name).state.transforms == [SPLIT]
    assert made.rollback("start").state.transforms == []
    with pytest.raises(UnknownNameError, match="unknown snapshot 's9'"):
        made.rollback("s9")


def test_the_best_program_is_exported_with_a_number_of_its_own() -> None:
    made, evaluator = session()
    with pytest.raises(UsageError, match="nothing has passed yet"):
        made.export("best", measure=True)
    made.apply(SPLIT, "")
    made.evaluate("training")
    made.rollback("start")
    quick = made.export("best", measure=False)
    assert (quick.status, quick.trace["transforms"]) == ("unverified", [SPLIT])
    before = len(evaluator.calls)
    exported = made.export("best", measure=True)
    assert exported.status == "passed"
    assert {level for _, level in evaluator.calls[before:]} == {Level.FULL}
    trace = trace_of(exported)
    assert (trace.agent, trace.seed, trace.transforms) == ("mcp:test", None, (SPLIT,))
    assert trace.result is not None
    assert trace.result.speedup == exported.speedup
    assert replay(trace).ir_key == trace.ir_key


@pytest.mark.parametrize("program", ["best", "current"])
def test_what_too_few_processes_could_measure_is_exported_without_a_number(program: str) -> None:
    made, evaluator = session()
    made.apply(SPLIT, "")
    made.evaluate("training")
    checked = [2.0, 1.0] if program == "best" else []
    evaluator.script = [*checked, 2.0, 2.1, *[Status.NOISY] * 9]
    exported = made.export(program, measure=True)
    assert (exported.status, exported.speedup, exported.speedup_ci) == ("noisy", None, None)
    assert exported.text().startswith("noisy: no number; ")
    trace = trace_of(exported)
    assert trace.transforms == (SPLIT,)
    assert trace.result is not None
    assert (trace.result.status, trace.result.speedup) == ("noisy", None)
    assert not evaluator.script


def test_a_current_program_that_does_not_hold_is_not_exported() -> None:
    made, _ = session([1.0, Status.WRONG_RESULT])
    made.apply(SPLIT, "")
    with pytest.raises(UsageError, match=r"does not hold \(wrong_result: scripted wrong_result\)"):
        made.export("current", measure=True)
    assert made.state().transforms == []


def test_the_current_program_can_be_exported_unmeasured() -> None:
    made, evaluator = session()
    made.apply(SPLIT, "")
    exported = made.export("current", measure=False)
    assert (exported.status, exported.speedup) == ("unverified", None)
    assert not evaluator.calls


def test_ir_is_clipped_in_the_middle_and_says_so() -> None:
    made, _ = session()
    whole = made.ir("tir", 100_000)
    assert not whole.clipped
    assert whole.lines == len(whole.ir.splitlines())
    part = made.ir("tir", 500)
    assert part.clipped
    assert len(part.ir) <= 500
    assert "lines not shown" in part.ir
    with pytest.raises(UnknownNameError, match="unknown IR level of backend llvm 'ptx'"):
        made.ir("ptx", 500)


def test_baselines_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(workload: Workload, *others: object) -> tuple[BaselineRow, ...]:
        asked.append(workload.uri)
        return (
            BaselineRow("naive", "unscheduled IR", "passed", "", timing(10.0), 1.0, (1.0, 1.0)),
            BaselineRow("vendor", "none", "none", "no library has one call for this kernel"),
        )

    monkeypatch.setattr("tirgym.serving.mcp_session.measure_baselines", measured)
    made, _ = session(store=":memory:")
    found = made.baseline()
    assert made.baseline() == found
    assert asked == [SMALL["matmul"]]
    assert [(row.name, row.latency_us) for row in found.baselines] == [
        ("naive", 10.0),
        ("vendor", None),
    ]
    assert "none: no library" in found.text()


def test_results_have_a_schema_and_a_text() -> None:
    made, _ = session()
    for result in (
        made.loaded(),
        made.legal_actions(None, None, None, 0, 3),
        made.apply(SPLIT, ""),
        made.evaluate("training"),
        made.snapshot(),
        made.history(0, 10),
        made.export("best", measure=True),
    ):
        assert type(result).model_validate(result.model_dump(mode="json")) == result
        assert 0 < len(result.text()) < 4000


def test_bad_values_never_reach_the_session() -> None:
    with pytest.raises(InvalidValueError, match="trials"):
        session(trials=0)
