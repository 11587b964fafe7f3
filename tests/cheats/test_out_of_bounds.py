"""Trick: write or read where no array is, such as a result kept between calls beyond the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from handmade import ROWS, WIDTH, program_of, start

from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status

Unpaid = Callable[..., Any]


def with_line(line: str) -> Any:
    """The right program with one more statement after each store."""
    text = start().mod.script()
    store = next(t for t in text.splitlines() if t.strip().startswith("B[") and "] = " in t)
    indent = store[: len(store) - len(store.lstrip())]
    return program_of(tvm.script.from_source(text.replace(store, f"{store}\n{indent}{line}")))


@pytest.mark.parametrize(
    ("line", "where"),  # the nearest byte that is not as it was
    [
        (f"B[{ROWS - 1}, {WIDTH}] = T.float32(7)", "B: written 2 bytes after its end"),
        ("B[0, -1] = T.float32(7)", "B: written 1 bytes before its start"),
        ("A[0, -1] = T.float32(7)", "A: written 1 bytes before its start"),
    ],
)
def test_right_result_and_one_write_outside(line: str, where: str, unpaid: Unpaid) -> None:
    assert where in unpaid(with_line(line)).message


def test_a_write_far_outside_ends_the_worker_at_most(
    evaluator: LocalEvaluator, unpaid: Unpaid
) -> None:
    """Past every guard band: a crash, or damage that is found; the next program is not harmed."""
    unpaid(with_line("B[100000000, 0] = T.float32(7)"), Status.CRASH, Status.WRONG_RESULT)
    assert evaluator.evaluate(start(), fresh=True).passed


def test_nan_written_over_a_guard_of_nan(unpaid: Unpaid) -> None:
    """The value stored past the end comes from past the end of the input, where guards hold NaN."""
    found = unpaid(program_of(mutate("loop_long", start().mod)))
    assert "after its end" in found.message


def test_a_result_that_hangs_on_what_lies_behind_the_input(unpaid: Unpaid) -> None:
    unpaid(program_of(mutate("edge_read", start().mod)))
