"""Recording: varied programs, the same ones again, and going on where it stopped."""

from __future__ import annotations

from itertools import islice

import pytest
from fakes import FakeEvaluator
from learned import KERNELS, TARGET, start

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions import design_space
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.recording import Recorded, proposals, record

MATMUL = KERNELS["matmul"]
ADD = load_workload("tirgym://core-v0/add?m=8&n=16&dtype=float32")


def keys(seed: int, number: int = 12) -> list[str]:
    return [program.ir_key for program in islice(proposals(start(MATMUL), seed), number)]


def test_proposals_are_varied_and_a_function_of_the_seed() -> None:
    first = keys(0)
    assert first == keys(0)
    assert first != keys(1)
    assert len(set(first)) > 8
    unscheduled = start(MATMUL)
    assert first[:2] == [unscheduled.ir_key, design_space(unscheduled).finish().program.ir_key]


def test_each_program_is_asked_about_once() -> None:
    evaluator, told = FakeEvaluator(), list[Recorded]()
    found = record([ADD], TARGET, evaluator, 6, on_verdict=told.append)
    asked = [key for key, _ in evaluator.calls]
    assert len(asked) == len(set(asked)) == found.programs == 6
    assert found.verdicts == {"passed": 6}
    assert [at.number for at in told] == [1, 2, 3, 4, 5, 6]


def test_more_programs_begin_with_those_of_before() -> None:
    few, many = FakeEvaluator(), FakeEvaluator()
    record([ADD], TARGET, few, 4)
    record([ADD], TARGET, many, 8)
    assert many.calls[:4] == few.calls


@pytest.mark.parametrize("programs", [0, -1, True])
def test_a_number_of_programs_below_one_is_refused(programs: int) -> None:
    with pytest.raises(InvalidValueError, match="programs"):
        record([ADD], TARGET, FakeEvaluator(), programs)
