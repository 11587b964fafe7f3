"""Trick: stop the clock, or make the numbers up, in the process of the agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from handmade import host, right, start, written_as

from tirgym.harness import gate, judge, timing
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status

PATCHES: dict[str, tuple[Any, str, Any]] = {
    "clock": (time, "perf_counter_ns", lambda: 0),
    "timer": (timing.WallTimer, "time", lambda self, call, calls: 1e-9),
    "interleaving": (timing, "interleave", None),
    "gate": (gate, "run_gate", None),
    "judge": (judge, "judge", lambda got, expected: judge.Verdict()),
    "comparison": (np, "array_equal", lambda *_, **__: True),
}


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(*PATCHES[name])


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_what_is_patched_here_changes_nothing_in_the_worker(
    name: str, patched: Callable[[str], None]
) -> None:
    """Workers are forked from a process that the agent's process never touches."""
    wrong = written_as(lambda a, i, j: right(a, i, j) * 1.5)
    patched(name)
    with LocalEvaluator(host(), ":memory:", static_checks=False) as evaluator:
        honest = evaluator.evaluate(start(), Level.TRAINING)
        assert evaluator.evaluate(wrong, Level.TRAINING).status is Status.WRONG_RESULT
    assert honest.speedup == 1.0
    assert believable(honest)


def believable(evaluation: Evaluation) -> bool:
    """2,000 multiply-adds take between 0.05 µs and 1 ms."""
    measured = evaluation.measurement
    return measured is not None and 0.05 < measured.candidate.lower_quartile_us < 1000.0
