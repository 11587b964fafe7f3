"""Trick: race with two threads against a baseline that has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from boards import ADD, TARGET, measured, record
from handmade import host, quick, start

from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.submission import check_submission
from tirgym.benchmarks.leaderboard.verifying import verify_board
from tirgym.errors import IllegalTransformError, UsageError
from tirgym.harness.backend import backend
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.registry import load_workload

TWO = replace(TARGET, num_threads=2)


def test_an_evaluator_of_one_thread_refuses_a_program_for_two() -> None:
    program = TensorIRProgram(start().workload, host(num_threads=2), (), start().schedule)
    with quick() as evaluator, pytest.raises(UsageError, match="thread"):
        evaluator.evaluate(program)


def test_parallel_loops_are_illegal_with_one_thread() -> None:
    program = backend("llvm").start(load_workload(ADD), host())
    with pytest.raises(IllegalTransformError, match="thread"):
        program.apply(parse_transform("Parallel(loop=0)"))


def test_records_with_other_threads_stand_on_no_board_of_one(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    for made in (record(), record(seed=1, target=TWO)):
        append_line(folder.records_path, made.to_json())
    found = verify_board(folder, 1, measure=measured())
    assert {v.seed for v in found.verified if v.speedup} == {0}
    assert any("2 threads" in problem for problem in found.problems)


def test_a_submission_for_two_threads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("fast")
    Trace(load_workload("add").uri, TWO, ()).save(tmp_path / "fast.json")
    row = check_submission(tmp_path, TARGET, 1, measure=measured()).rows[0]
    assert (row.ok, row.verified) == (False, None)
    assert "as the baseline has it" in row.reason
