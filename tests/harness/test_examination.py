"""`Examination`: timing against anchors, and the gate on what the timed loop left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import SetTimer, workbench

from tirgym.harness.anchoring import nearest
from tirgym.harness.backend import Build
from tirgym.harness.evaluation import Level, Measurement
from tirgym.harness.examination import Examination
from tirgym.harness.outcome import Anchor
from tirgym.harness.status import Status
from tirgym.harness.timing import Call
from tirgym.harness.workbench import Workbench


def play(bench: Workbench, function: Callable[..., Any], key: str = "code") -> Any:
    bench.remember(Build(key, lambda: function))
    examination = Examination(bench, key, Level.TRAINING, 0, lambda phase: None)
    assert examination.gate().status is Status.PASSED
    return examination.time(0.0)


def test_what_the_timed_loop_left_is_judged(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    good = bench.naive.function
    calls: list[int] = []

    def tires(*arguments: Any) -> None:
        good(*arguments)
        calls.append(1)
        if len(calls) > 12:
            bench.bench.outputs[0].array[1, 1] = 0.5

    found = play(bench, tires)
    assert found.status is Status.WRONG_RESULT
    assert found.message.startswith("after timing: normal: B[1, 1]")
    assert found.measurement is None
    calls.clear()

    def wavers(*arguments: Any) -> None:
        good(*arguments)
        calls.append(1)
        if len(calls) > 12:
            place = bench.bench.outputs[0].array
            place[1, 1] = np.nextafter(place[1, 1], np.float32(9))

    found = play(bench, wavers)
    assert found.status is Status.FLAKY
    assert play(bench, good).status is Status.PASSED


def test_fast_programs_become_anchors_and_slow_naive_is_spared(tmp_path: Path) -> None:
    timer = SetTimer({})
    bench = workbench(timer, tmp_path)
    good = bench.naive.function
    timer.seconds[id(good)] = 1e-2
    bench.naive_s = 1e-2

    def program(seconds: float) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            good(*arguments)

        timer.seconds[id(run)] = seconds
        return run

    first = program(1e-4)
    outcome = play(bench, first)
    assert outcome.measurement.speedup == pytest.approx(100.0)
    assert outcome.measurement.anchor_ratio == 1.0
    assert outcome.anchor is not None
    assert outcome.anchor.ratio == pytest.approx(100.0)
    anchor = replace(outcome.anchor, module_json="first", half_width=0.04)
    bench.anchors.append(anchor)
    bench.loaded["first"] = Call(first, bench.baseline.arguments())
    bench.naive_s = 1e-2
    second = program(0.8e-4)
    outcome = play(bench, second)
    assert outcome.anchor is None, "not much faster than the anchor"
    found: Measurement = outcome.measurement
    assert found.anchor_ratio == pytest.approx(100.0)
    assert found.baseline.lower_quartile_us == pytest.approx(100.0)
    assert found.speedup == pytest.approx(125.0)
    low, high = found.speedup_ci
    assert (low, high) == pytest.approx((120.0, 130.0)), "the anchor's uncertainty is part of it"


def test_slow_programs_are_timed_against_a_short_anchor_that_is_known_well(
    tmp_path: Path,
) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    bench.naive_s = 2e-2
    blurred = Anchor("a", 20.0, 0.2, 1e-3)
    sharp = Anchor("b", 50.0, 0.02, 4e-4)
    assert nearest([], 2e-2, 1e-2) is None
    assert nearest([blurred], 2e-2, 1e-2) is None
    assert nearest([blurred, sharp], 2e-2, 1e-2) is sharp
    assert nearest([blurred, sharp], 2e-2, 9e-4) is blurred
    assert nearest([blurred, sharp], 2e-3, 1e-2) is None
    bench.anchors = [blurred, sharp]
    outcome = play(bench, bench.naive.function, bench.naive_key)
    assert outcome.measurement.anchor_ratio == outcome.measurement.speedup == 1.0
