"""What counts as a contraction, and how its operands move with the loops."""

from __future__ import annotations

import pytest

from tirgym.harness.decisions.contractions import (
    along,
    is_contraction,
    operands,
    row_axes,
    spatial_axes,
)
from tirgym.harness.decisions.nests import find
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

TARGET = Target("llvm", "skylake-avx512", 1)


def block_of(kernel: str, name: str) -> tuple[TensorIRProgram, Block]:
    program = TensorIRProgram.start(load_workload(kernel), TARGET)
    block = find(program, name)
    assert block is not None
    return program, block


@pytest.mark.parametrize(
    ("kernel", "name", "expected"),
    [
        ("matmul", "c", True),
        ("conv2d", "out", True),
        ("syrk", "product", True),  # both operands lie in one buffer
        ("matvec", "y", False),  # each element of the matrix is read once
        ("depthwise_conv2d", "out", False),
        ("row_sum", "total", False),
    ],
)
def test_each_of_several_operands_is_read_again(kernel: str, name: str, expected: bool) -> None:
    program = TensorIRProgram.start(load_workload(kernel), TARGET)
    block = find(program, name) or program.nest.blocks[0]
    assert is_contraction(program, block) is expected


def test_accesses_are_free_contiguous_or_across() -> None:
    program, block = block_of("conv2d", "out")
    handle = {axis.name: axis.handle for axis in spatial_axes(program, block)}
    (_, image), (_, weight) = operands(block)
    assert [along(image, handle[n]) for n in "fij"] == [
        (True, False, -1),
        (False, False, 1),
        (False, True, -1),
    ]
    assert along(weight, handle["f"]) == (False, False, 0)
    assert along(weight, handle["j"]).free


def test_a_step_of_two_is_no_vector() -> None:
    program, block = block_of("conv2d_strided", "out")
    image = operands(block)[0][1]
    assert along(image, spatial_axes(program, block)[2].handle) == (False, False, -1)


def test_two_loads_from_one_buffer_are_two_operands() -> None:
    program, block = block_of("syrk", "product")
    i, j = spatial_axes(program, block)
    loads = [access for _, access in operands(block)]
    assert sorted(along(load, i.handle).free for load in loads) == [False, True]
    assert sorted(along(load, j.handle).swap for load in loads) == [-1, 0]


def test_rows_use_the_vector_that_was_loaded_again() -> None:
    program, block = block_of("batch_matmul", "c")
    axes = spatial_axes(program, block)
    assert [axis.name for axis in row_axes(block, axes, axes[2])] == ["i"]  # not the batch
    program, block = block_of("conv2d", "out")
    axes = spatial_axes(program, block)
    assert [axis.name for axis in row_axes(block, axes, axes[0])] == ["j", "i"]
