"""Schedules that the compiler accepts and that compute something else, shrunk to their last step.

`miscompiles.json` holds what random schedules found; `found_in` is the class of the hole as listed in
`tirgym.harness.tensorir.rules`. Each must be refused by the rules, and the gate must not need them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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


def without_rules(start: TensorIRProgram, texts: list[str]) -> TensorIRProgram:
    """`start` after transforms that only the compiler was asked about."""
    program = start
    for text in texts:
        schedule = program.schedule
        parse_transform(text).apply_to(schedule, Handles(schedule, program.nest))
        program = TensorIRProgram(start.workload, start.target, (), new_schedule(schedule.mod))
    return program


@every
def test_the_gate_rejects_it_without_any_rule(
    found: dict[str, Any], evaluator: LocalEvaluator, host_target: Target
) -> None:
    start = TensorIRProgram.start(load_workload(found["workload"]), host_target)
    check = evaluator.check(without_rules(start, found["transforms"]))
    assert check.status in (Status.WRONG_RESULT, Status.FLAKY, Status.CRASH), check.message


@every
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
