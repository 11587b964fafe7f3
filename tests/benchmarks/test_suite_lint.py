"""The lint passes what is sound, and each of its rules can fail."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tirgym.benchmarks import suite_lint
from tirgym.benchmarks.suite_lint import Finding, lint, measured
from tirgym.errors import UnknownNameError
from tirgym.harness.evaluation import Evaluation, GateReport, Level, Measurement, TimingStats
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Shape
from tirgym.kernels_suite.registry import load_kernel


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(store=":memory:") as made:
        yield made


def test_sound_kernels_pass_and_the_report_is_json(evaluator: LocalEvaluator) -> None:
    calls: list[tuple[int, int]] = []
    names = ["add", "argmax", "softmax"]
    report = lint(
        names, True, lambda done, total, _: calls.append((done, total)), evaluator=evaluator
    )
    assert report.ok, report.findings
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert json.loads(json.dumps(report.to_json()))["kernels"] == names


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        lint(["softmx"], quick=True)


def counted_inputs() -> Callable[[Shape, np.random.Generator, Regime], tuple[Array, ...]]:
    count = itertools.count()

    def inputs(shape: Shape, rng: np.random.Generator, regime: Regime) -> tuple[Array, ...]:
        size = shape["m"], shape["n"]
        return np.full(size, next(count), np.float32), np.full(size, np.nan, np.float32)

    return inputs


ADD = load_kernel("add")
BROKEN: dict[str, Kernel] = {
    "deterministic inputs": replace(ADD, inputs=counted_inputs()),
    "inputs without NaN": replace(ADD, inputs=counted_inputs()),
    "depends on every input": replace(ADD, reference=lambda a, b: a),
    "varies over every axis": replace(ADD, reference=lambda a, b: a * 0 + b[:1]),
    "memory": replace(ADD, train=({"m": 10_000, "n": 10_000},)),
    "shapes": replace(ADD, holdout=ADD.train),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_promises_are_found(rule: str) -> None:
    found = [f.rule for check in suite_lint.KERNEL_RULES for f in check(BROKEN[rule])]
    assert rule in found


@pytest.mark.parametrize("name", ["add", "argmax", "conv2d", "gather", "layernorm"])
def test_sound_kernels_break_no_promise(name: str) -> None:
    kernel = load_kernel(name)
    assert [f for check in suite_lint.KERNEL_RULES for f in check(kernel)] == []


def test_a_wrong_reference_is_found(evaluator: LocalEvaluator) -> None:
    wrong = replace(ADD, name="wrong", reference=lambda a, b: a + b * 1.001)
    found = list(suite_lint.agrees_with_the_reference(wrong, [wrong.tiny], evaluator))
    assert [f.rule for f in found] == ["agrees with the reference"]
    assert "fails its own gate" in found[0].message
    found, _ = measured(wrong, evaluator)
    assert "fails its own gate" in found[0].message


def test_the_same_ir_under_another_name_is_found() -> None:
    kernels = [ADD, load_kernel("relu"), replace(ADD, name="sum")]
    expected = [Finding("sum", "no duplicates", "the same IR as add")]
    assert list(suite_lint.no_duplicates(kernels)) == expected


def test_too_many_controls_are_found() -> None:
    assert list(suite_lint.few_controls([ADD] * 6)) == []
    assert [f.rule for f in suite_lint.few_controls([ADD] * 7)] == ["few controls"]


class Scripted:
    """Answers with the given naive time and speedup, or does not pass."""

    def __init__(self, naive_us: float, low: float, noisy: int = 0) -> None:
        self.naive_us, self.low, self.noisy = naive_us, low, noisy
        self.calls = 0

    def evaluate(self, program: Program, level: Level) -> Evaluation:
        self.calls += 1
        if self.calls <= self.noisy:
            return Evaluation(Status.NOISY, program.ir_key, message="spread")
        speedup = self.low * 1.1 if program.steps else 1.0
        naive = TimingStats(self.naive_us, self.naive_us, self.naive_us, self.naive_us, 9)
        us = self.naive_us / speedup
        candidate = TimingStats(us, us, us, us, 9)
        interval = (self.low, self.low * 1.2) if program.steps else (1.0, 1.0)
        number = Measurement(candidate, naive, speedup, interval)
        return Evaluation(Status.PASSED, program.ir_key, "code", number, GateReport((), 0.0, True))


@pytest.mark.parametrize(
    ("naive_us", "low", "noisy", "rules"),
    [
        (100.0, 2.0, 0, []),
        (100.0, 2.0, 2, []),
        (100.0, 2.0, 9, ["naive time"]),
        (100.0, 1.1, 0, ["headroom"]),
        (10.0, 2.0, 0, ["naive time"]),
        (60_000.0, 2.0, 0, ["naive time"]),
    ],
)
def test_naive_time_and_headroom_are_judged(
    naive_us: float, low: float, noisy: int, rules: list[str]
) -> None:
    scripted: Any = Scripted(naive_us, low, noisy)
    found, figures = measured(load_kernel("scale_shift"), scripted)
    assert [f.rule for f in found] == rules
    if not rules:
        assert figures.speedup_ci == (2.0, 2.4)
        assert figures.naive_us == naive_us


def test_a_kernel_without_known_schedule_must_be_a_control() -> None:
    scripted: Any = Scripted(100.0, 2.0)
    assert measured(ADD, scripted)[0] == []
    found, _ = measured(replace(ADD, tags=frozenset()), scripted)
    assert [f.rule for f in found] == ["headroom"]


@pytest.mark.slow
def test_the_whole_suite_keeps_its_promises_at_tiny_shapes() -> None:
    report = lint(quick=True)
    assert report.ok, report.findings
