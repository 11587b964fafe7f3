"""Counting a program in a process of its own; software events, which every Linux can count."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from tirgym.errors import EvaluationError, InvalidValueError, ProcessDiedError
from tirgym.harness import counted_run
from tirgym.harness.backend import backend
from tirgym.harness.counted_run import count_program
from tirgym.harness.counters import Counters, why_unavailable
from tirgym.harness.own_process import KERNEL_VARIABLES, call_apart
from tirgym.harness.program import Program
from tirgym.kernels_suite.registry import load_workload

TASK_CLOCK = {"task_clock_ns": (1, 1)}
"""PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK (man 2 perf_event_open)."""


def matmul(size: int) -> Program:
    """A square product."""
    llvm = backend("llvm")
    return llvm.start(load_workload("matmul", dict.fromkeys("mnk", size)), llvm.target())


def test_more_work_counts_more() -> None:
    small, large = (count_program(matmul(size), TASK_CLOCK) for size in (16, 96))
    if isinstance(small, str) or isinstance(large, str):
        pytest.skip(f"perf_event_open is closed here: {small}")
    assert isinstance(small, Counters)
    assert large.per_call["task_clock_ns"] > 10 * small.per_call["task_clock_ns"]


def test_without_counters_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_run, "why_unavailable", lambda: "the kernel hides them")
    assert count_program(matmul(4)) == "the kernel hides them"


def test_hardware_counters_where_there_are_some() -> None:
    if why_unavailable() is not None:
        pytest.skip(str(why_unavailable()))
    found = count_program(matmul(32))
    assert isinstance(found, Counters)
    assert found.per_call["instructions"] > 32**3 / 16


def test_call_apart_sets_threads_and_reports_failures() -> None:
    assert call_apart(os.getenv, "OPENBLAS_NUM_THREADS", num_threads=3) == "3"
    with pytest.raises(EvaluationError, match="ZeroDivisionError"):
        call_apart(divmod, 1, 0, num_threads=1)
    local = FunctionType((lambda: 1).__code__, {"__name__": "__main__"}, "local")
    with pytest.raises(InvalidValueError, match="another process can import"):
        call_apart(local, num_threads=1)
    with pytest.raises(TimeoutError, match="sleep"):
        call_apart(__import__("time").sleep, 30, num_threads=1, timeout_s=0.5)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (divmod, (1, 0), "divmod failed in a process of its own: .*ZeroDivisionError"),
        (open, ("/no/such/file",), "FileNotFoundError"),
        (eval, ("(_ for _ in ()).throw(TimeoutError('peaks'))",), "TimeoutError: peaks"),
        (eval, ("(_ for _ in ()).throw(MemoryError())",), "MemoryError"),
        (eval, ("__import__('no_such_module')",), "ModuleNotFoundError"),
        (eval, ("lambda: 1",), "pickle"),
    ],
)
def test_a_call_that_raises_says_so_and_its_process_did_not_die(
    function: Callable[..., Any], arguments: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(EvaluationError, match=words) as caught:
        call_apart(function, *arguments, num_threads=1)
    assert type(caught.value) is EvaluationError


@pytest.mark.parametrize(
    ("function", "arguments", "code"),
    [
        (os.abort, (), -signal.SIGABRT),
        (signal.raise_signal, (signal.SIGSEGV,), -signal.SIGSEGV),
        (signal.raise_signal, (signal.SIGKILL,), -signal.SIGKILL),
        (os._exit, (1,), 1),
        (os._exit, (0,), 0),
        (sys.exit, (3,), 3),
    ],
)
def test_a_process_that_ends_without_an_answer_died(
    function: Callable[..., Any], arguments: tuple[Any, ...], code: int
) -> None:
    with pytest.raises(ProcessDiedError, match=f"ended with {code}:"):
        call_apart(function, *arguments, num_threads=1)


def test_a_process_that_cannot_be_started_is_the_machine_s_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EvaluationError, match="no process could be started for getcwd") as caught:
        call_apart(os.getcwd, num_threads=1)
    assert type(caught.value) is EvaluationError


def test_call_apart_leaves_behind_what_holds_libraries_to_other_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*KERNEL_VARIABLES, "TIRGYM_TEST_STAYS"):
        monkeypatch.setenv(name, "1")
    names = call_apart(eval, "set(__import__('os').environ)", num_threads=1)
    assert "TIRGYM_TEST_STAYS" in names
    assert names.isdisjoint(KERNEL_VARIABLES)
