"""Traces lose the steps that do nothing, and keep the program."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from toy import Turn, toy_start

from tirgym.errors import IllegalTransformError
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.shorten import shorten
from tirgym.harness.transforms import parse_transform
from tirgym.harness.transforms.base import Transform
from tirgym.kernels_suite.registry import load_workload


def test_steps_that_matter_stay() -> None:
    program = toy_start().apply(Turn(0, 1)).apply(Turn(1, 2))
    assert shorten(program, toy_start()) is program


def test_swaps_that_undo_each_other_go() -> None:
    llvm = backend("llvm")
    start = llvm.start(load_workload("matmul"), llvm.target())
    texts = [
        "Reorder(loop=0)",
        "Reorder(loop=0)",
        "Split(loop=1, factor=8)",
        "Unroll(loop=2)",
    ]
    program = start
    for text in texts:
        program = program.apply(parse_transform(text))
    short = shorten(program, start)
    assert [str(step) for step in short.steps] == ["Split(loop=1, factor=8)", "Unroll(loop=2)"]
    assert short.ir_key == program.ir_key


def test_it_finds_what_leaving_out_every_choice_of_steps_finds() -> None:
    llvm = backend("llvm")
    start = llvm.start(load_workload("matmul"), llvm.target())
    swap, split, unroll = "Reorder(loop=0)", "Split(loop=2, factor=8)", "Unroll(loop=3)"
    for texts in (
        [swap, split, swap, unroll],
        [swap, split, unroll, swap],
        [split, swap, unroll, swap],
        [swap, swap, swap, split],
        [swap, split, unroll],
    ):
        program = start
        for text in texts:
            program = program.apply(parse_transform(text))
        choices = (kept for n in range(5) for kept in combinations(program.steps, n))
        shortest = next(kept for kept in choices if replayed(start, kept) == program.ir_key)
        assert shorten(program, start).steps == shortest


def replayed(start: Program, steps: Iterable[Transform]) -> str:
    """The IR key after `steps`, "" if one of them is illegal."""
    program = start
    try:
        for step in steps:
            program = program.apply(step)
    except IllegalTransformError:
        return ""
    return program.ir_key


def test_steps_before_the_start_stay() -> None:
    llvm = backend("llvm")
    naive = llvm.start(load_workload("matmul"), llvm.target())
    start = naive.apply(parse_transform("Reorder(loop=0)"))
    program = start.apply(parse_transform("Reorder(loop=0)"))
    assert len(shorten(program, start).steps) == 2
    assert shorten(program, naive).steps == ()
