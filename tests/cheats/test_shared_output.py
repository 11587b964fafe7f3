"""Trick: take the answer from memory where somebody else has written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from handmade import SetTimer, host, program_of, workbench

from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.workbench import Workbench
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]


def test_candidate_and_unscheduled_program_share_no_output(tmp_path: Path) -> None:
    made = workbench(SetTimer({}), tmp_path)
    for ours in made.bench.outputs:
        for theirs in made.baseline.outputs:
            assert not np.shares_memory(ours.array, theirs.array)


def verdict(made: Workbench, thief: Callable[..., None]) -> Status:
    sets, _ = made.sets(Level.FULL, 0)
    outcome, _ = made.gate(thief, sets)
    return outcome.status


def test_a_kernel_that_copies_the_unscheduled_programs_output(tmp_path: Path) -> None:
    """Even one that knows where it lies finds answers to other inputs there."""
    made = workbench(SetTimer({}), tmp_path)
    ours, theirs = made.bench.outputs[0].array, made.baseline.outputs[0].array

    def thief(*_: Any) -> None:
        ours[...] = theirs

    assert verdict(made, thief) is Status.WRONG_RESULT


def test_a_kernel_that_keeps_its_own_first_answer_elsewhere(tmp_path: Path) -> None:
    made = workbench(SetTimer({}), tmp_path)
    x, y = made.bench.inputs[0].array, made.bench.outputs[0].array
    kept: list[Any] = []

    def hoarder(*_: Any) -> None:
        if not kept:
            kept.append(x * np.float32(2) + np.float32(1))
        y[...] = kept[0]

    assert verdict(made, hoarder) is Status.WRONG_RESULT


def test_an_output_that_is_never_written_for_one_of_two_programs_in_a_row(
    evaluator: LocalEvaluator, unpaid: Unpaid
) -> None:
    """The buffers of the program before are the buffers of the next; its answers are wiped."""
    workload = load_workload("tirgym://core-v0/gelu?m=16&n=24&dtype=float32")
    start = TensorIRProgram.start(workload, host())
    assert evaluator.evaluate(start, fresh=True).passed
    lazy = mutate("stale_output", start.mod)
    unpaid(program_of(lazy, workload))
