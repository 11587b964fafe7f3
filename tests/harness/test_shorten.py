"""Traces lose the steps that do nothing, and keep the program."""

from __future__ import annotations

from toy import Turn, toy_start

from tirgym.harness.backend import backend
from tirgym.harness.shorten import shorten
from tirgym.harness.transforms import parse_transform
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


def test_steps_before_the_start_stay() -> None:
    llvm = backend("llvm")
    naive = llvm.start(load_workload("matmul"), llvm.target())
    start = naive.apply(parse_transform("Reorder(loop=0)"))
    program = start.apply(parse_transform("Reorder(loop=0)"))
    assert len(shorten(program, start).steps) == 2
    assert shorten(program, naive).steps == ()
