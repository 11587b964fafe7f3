"""`tirgym explain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from fakes import FakeEvaluator

from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace, TraceResult

Cli = Callable[..., Any]

URI = "tirgym://core-v0/matmul?m=16&n=24&k=32&dtype=float32"
STEPS = (
    "Split(loop=1, factor=8)",
    "Reorder(loop=2)",
    "Vectorize(loop=3)",
    "DecomposeReduction(loop=2)",
)


class Evaluator(FakeEvaluator):
    """A scripted stand-in for `LocalEvaluator`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def host(cli: Cli) -> Target:
    record = cli("show", "add", "-s", "tiny", "--json").json()
    return Target(record["backend"], record["target"], record["num_threads"])


def save(tmp_path: Path, target: Target, **changes: Any) -> Path:
    path = tmp_path / "t.json"
    Trace(**{"workload": URI, "target": target, "transforms": STEPS, **changes}).save(path)
    return path


def test_a_row_and_sentences_for_each_step(cli: Cli, host: Target, tmp_path: Path) -> None:
    done = cli("explain", save(tmp_path, host))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"{URI} for {host}"
    assert lines[2].split()[:2] == ["0", "(unscheduled)"]
    assert "24.8% → 0.0%" in lines[4]
    assert "0 → 8" in lines[5]
    assert "tests for the first step of a reduction fall from 12,288 to 0" in done.out
    assert "step 3: Vectorize(loop=3)" in done.out
    assert "measured" not in done.out


def test_json_states_units_legality_and_costs(cli: Cli, host: Target, tmp_path: Path) -> None:
    record = cli("explain", save(tmp_path, host), "--json").json()
    assert (record["workload"], record["target"], record["legal"]) == (URI, host.arch, True)
    assert [step["transform"] for step in record["steps"]] == list(STEPS)
    third = record["steps"][2]
    assert third["changes"]["vector_bits"] == {
        "before": 0, "after": 256, "unit": "bits", "exact": True, "buffers": {},
    }  # fmt: skip
    assert third["legal"] is True
    assert third["predicted_us"]["after"] == third["after"]["predicted_us"]


def test_one_step_in_full(cli: Cli, host: Target, tmp_path: Path) -> None:
    path = save(tmp_path, host)
    done = cli("explain", path, "--step", 3)
    assert done.code == 0
    assert "lanes of the widest vectorized loop" in done.out
    assert "step 3" in done.out
    assert "step 4" not in done.out
    record = cli("explain", path, "--step", 3, "--json").json()
    assert [step["step"] for step in record["steps"]] == [3]


def test_a_kernel_is_described(cli: Cli) -> None:
    done = cli("explain", "matmul", "-s", "m=16,n=24,k=32")
    assert (done.code, done.err) == (0, "")
    assert "  arithmetic operations: 24,576" in done.out.splitlines()
    record = cli("explain", "matmul", "-s", "m=16,n=24,k=32", "--json").json()
    assert record["steps"] == []
    assert record["start"]["flops"] == 24_576
    assert "stores: 50.7 kB" in record["start_sentences"]


def test_the_recorded_result_is_shown_at_the_end(cli: Cli, host: Target, tmp_path: Path) -> None:
    """And is not taken for the gain of the last step."""
    result = TraceResult("passed", 4.0, (3.9, 4.1), 40.0, 10.0)
    done = cli("explain", save(tmp_path, host, result=result))
    assert "recorded: 10.00 µs, speedup 4.00x (3.90 to 4.10) over unscheduled" in done.out
    assert "gained most" not in done.out
    record = cli("explain", save(tmp_path, host, result=result), "--json").json()
    assert record["start_measured"]["latency_us"] == 40.0
    assert record["steps"][-1]["measured"]["speedup"] == 4.0
    assert record["steps"][-1]["gain"] is None


def test_measuring_says_who_gained_and_lost(
    cli: Cli, host: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Evaluator([1.0, 0.5, 4.0, 4.0, 4.0])
    monkeypatch.setattr("tirgym.harness.local_evaluator.LocalEvaluator", lambda: evaluator)
    done = cli("explain", save(tmp_path, host), "--measure")
    assert done.code == 0, done.err
    assert evaluator.closed
    last = done.out.splitlines()[-2:]
    assert last[0].startswith(f"gained most: step 2, {STEPS[1]}: 8.00x")
    assert last[1].startswith(f"lost most: step 1, {STEPS[0]}: takes 2.00x")
    assert "no difference shown" in done.out


def test_a_final_program_that_fails_is_exit_code_1(
    cli: Cli, host: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Evaluator([1.0, 1.0, 1.0, 1.0, Status.WRONG_RESULT])
    monkeypatch.setattr("tirgym.harness.local_evaluator.LocalEvaluator", lambda: evaluator)
    done = cli("explain", save(tmp_path, host), "--measure")
    assert done.code == 1
    assert "not passed: wrong_result" in done.err
    assert "measured: wrong_result: scripted" in done.out


def test_a_decision_log_is_shown(cli: Cli, host: Target, tmp_path: Path) -> None:
    with CompileHarness(evaluator=FakeEvaluator([1.0, 1.5])) as harness:
        harness.load_ir(URI)
        harness.compile_and_benchmark()
        harness.apply_transform(STEPS[0])
        harness.compile_and_benchmark()
        harness.save_history(tmp_path / "log.jsonl")
    done = cli("explain", save(tmp_path, host), "--log", tmp_path / "log.jsonl")
    assert done.code == 0
    assert "recorded: 666.67 µs, speedup 1.50x over unscheduled" in done.out


def test_an_illegal_step_is_shown_and_is_exit_code_1(
    cli: Cli, host: Target, tmp_path: Path
) -> None:
    path = save(tmp_path, host, transforms=(STEPS[0], "Split(loop=0, factor=5)", STEPS[1]))
    done = cli("explain", path)
    assert done.code == 1
    assert "step 2 is not legal" in done.err
    assert "factor does not divide" in done.out
    record = cli("explain", path, "--json").json()
    assert [step["legal"] for step in record["steps"]] == [True, False]
    beyond = cli("explain", path, "--step", 3)
    assert beyond.code == 2
    assert "was not reached" in beyond.err


def test_a_trace_of_another_target_warns(cli: Cli, tmp_path: Path) -> None:
    other = Target("llvm", "x86-64", 1)
    done = cli("explain", save(tmp_path, other), "--measure")
    assert done.code == 0
    assert f"explained for {other}, where it was recorded" in done.err
    assert "nothing was measured" in done.err
    moved = cli("explain", save(tmp_path, other), "--arch", "haswell")
    assert f"recorded for {other}, explained for llvm/haswell/1 thread" in moved.err


def test_another_shape(cli: Cli, host: Target, tmp_path: Path) -> None:
    path = save(tmp_path, host, ir_key="0123456789abcdef")
    assert cli("explain", path).code == 2
    done = cli("explain", path, "-s", "m=32")
    assert done.code == 0
    assert "warning: recorded at" in done.err
    assert "fall from 24,576 to 0" in done.out
