"""Schedules that the compiler accepts and that compute something else, shrunk to their last step.

`miscompiles.json` holds what random schedules found; `found_in` is the class of the hole as listed in
`tirgym.harness.tensorir.rules`. Each must be refused by the rules, and the gate must not need them.
With an `arch`, the schedule is right and LLVM's code for that processor is wrong: the gate alone stands
between it and the user. Other processors cannot run that code, which is refused there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from schedules import schedule_step

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.registry import load_workload

FOUND: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("miscompiles.json").read_text(encoding="utf-8")
)
every = pytest.mark.parametrize("found", FOUND, ids=[f["name"] for f in FOUND])
SCHEDULES = [f for f in FOUND if "arch" not in f]
CODE = [f for f in FOUND if "arch" in f]


def start_of(found: dict[str, Any], target: Target) -> TensorIRProgram:
    """The unscheduled program on `target`, or on the processor that was found with it."""
    if "arch" in found:
        try:
            target = backend("llvm").target(found["arch"])
        except InvalidValueError:
            pytest.skip(f"LLVM makes no code for {found['arch']} here")
        reason = backend("llvm").why_cannot_run(target)
        if reason is not None:
            pytest.skip(reason)
    return TensorIRProgram.start(load_workload(found["workload"]), target)


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalEvaluator]:
    """An evaluator for any target."""
    with LocalEvaluator(store=":memory:") as made:
        yield made


def without_rules(start: TensorIRProgram, texts: list[str]) -> TensorIRProgram:
    """`start` after transforms that only the compiler was asked about."""
    program = start
    for text in texts:
        schedule = program.schedule
        schedule_step(text).apply_to(schedule, Handles(schedule, program.nest))
        program = TensorIRProgram(start.workload, start.target, (), new_schedule(schedule.mod))
    return program


@every
def test_the_gate_rejects_it_without_any_rule(
    found: dict[str, Any], judge: LocalEvaluator, host_target: Target
) -> None:
    start = start_of(found, host_target)
    check = judge.check(without_rules(start, found["transforms"]))
    assert check.status in (Status.WRONG_RESULT, Status.FLAKY, Status.CRASH), check.message


@pytest.mark.parametrize("found", SCHEDULES, ids=[f["name"] for f in SCHEDULES])
def test_the_rules_refuse_it(found: dict[str, Any], host_target: Target) -> None:
    program = TensorIRProgram.start(load_workload(found["workload"]), host_target)
    error = None
    for text in found["transforms"]:
        error = program.why_illegal(parse_transform(text))
        if error is not None:
            break
        program = program.apply(parse_transform(text))
    assert error is not None
    assert error.rule != "compiler"


@pytest.mark.parametrize("found", CODE, ids=[f["name"] for f in CODE])
def test_the_same_schedule_for_any_processor_is_right(
    found: dict[str, Any], judge: LocalEvaluator, host_target: Target
) -> None:
    program = start_of(found, host_target)
    for text in found["transforms"]:
        program = program.apply(parse_transform(text))
    report = judge.second_witness(program)
    if report.candidate.startswith(Status.CRASH):
        pytest.skip(f"this processor does not run code for {found['arch']}")
    assert report.candidate.startswith(Status.WRONG_RESULT)
    assert dict(report.witnesses)["generic (x86-64)"] == ""
