"""What is derived from a kernel's IR, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tirgym.errors import InvalidValueError, UsageError
from tirgym.kernels_suite.kernel import Kernel, Regime, Shape, Tensor, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    bytes_of,
    flops_of,
    make_inputs,
    reference_of,
    scale_of,
    tensors,
    terms_of,
)
from tirgym.kernels_suite.registry import load_workload


def build(shape: Shape) -> Any:
    """dist[i, j] = sum_k (x[i, k] - y[j, k])^2."""
    from tvm import te

    x, y = (te.placeholder((shape["n"], 4), "float32", name) for name in "xy")
    k = te.reduce_axis((0, 4), "k")
    dist = te.compute(
        (shape["n"], shape["n"]),
        lambda i, j: te.sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), axis=k),
        "dist",
    )
    return te.create_prim_func([x, y, dist])


OWN = Kernel(
    "own", "mine", build, lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), train=({"n": 6},)
)


def test_ten_lines_are_enough_and_the_rest_is_derived() -> None:
    workload = Workload.of(OWN)
    inputs, outputs = tensors(workload)
    assert inputs == (Tensor("x", (6, 4), "float32"), Tensor("y", (6, 4), "float32"))
    assert outputs == (Tensor("dist", (6, 6), "float32"),)
    assert flops_of(workload) == 6 * 6 * 4 * 4
    assert bytes_of(workload) == 4 * (24 + 24 + 36)
    assert terms_of(workload) == 4
    drawn = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    (reference,) = reference_of(workload, drawn)
    assert reference.dtype == np.float64
    exact = drawn[0][1].astype(np.float64) - drawn[1][2].astype(np.float64)
    assert reference[1, 2] == np.sum(exact**2)
    assert scale_of(workload, drawn) is None


@pytest.mark.parametrize(
    ("uri", "flops", "terms"),
    [
        ("tirgym://core-v0/matmul?m=5&n=6&k=7", 2 * 5 * 6 * 7, 7),
        ("tirgym://core-v0/add?m=5&n=6", 30, 1),
        ("tirgym://core-v0/atax?m=5&n=6", 4 * 5 * 6, 11),
        ("tirgym://core-v0/softmax?m=5&n=6", 4 * 5 * 6, 6 + 1 + 6 + 1),
    ],
)
def test_work_is_counted_from_the_ir(uri: str, flops: int, terms: int) -> None:
    workload = load_workload(uri)
    assert flops_of(workload) == flops
    assert terms_of(workload) == terms


@pytest.mark.parametrize(
    ("wide", "output", "accumulator"),
    [
        ("float32", "float16", "float32"),
        ("float16", "float16", "float16"),
        ("float32", "float32", ""),
    ],
)
def test_the_dtype_of_the_sums_is_read_from_the_ir(
    wide: str, output: str, accumulator: str
) -> None:
    def build(shape: Shape) -> Any:
        from tvm import te

        a = te.placeholder((shape["n"], 4), "float16", "a")
        r = te.reduce_axis((0, 4), "r")
        total = te.compute((shape["n"],), lambda i: te.sum(a[i, r].astype(wide), axis=r), "total")
        out = te.compute((shape["n"],), lambda i: total[i].astype(output), "out")
        return te.create_prim_func([a, total if wide == output else out])

    name = f"sums_{wide}_{output}"
    kernel = Kernel(name, "mine", build, lambda a: a.sum(1), train=({"n": 6},))
    assert accumulator_of(Workload.of(kernel)) == accumulator
    stated = replace(kernel, accumulator="float64", name=f"stated_{name}")
    assert accumulator_of(Workload.of(stated)) == "float64"


def test_what_a_kernel_states_goes_before_what_is_derived() -> None:
    stated = replace(OWN, flops=lambda s: 1, bytes=lambda s: 2, terms=lambda s: 3, name="stated")
    workload = Workload.of(stated)
    assert (flops_of(workload), bytes_of(workload), terms_of(workload)) == (1, 2, 3)


def test_exact_outputs_keep_their_dtype() -> None:
    workload = load_workload("argmax", {"m": 3, "n": 5})
    drawn = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    index, top = reference_of(workload, drawn)
    assert (str(index.dtype), str(top.dtype)) == ("int32", "float32")


def test_argmax_takes_any_index_of_the_maximum_and_no_other() -> None:
    compare = load_workload("argmax").kernel.compare
    assert compare is not None
    x = np.array([[1, 7, 7, 3]], np.float32)
    expected = (np.array([1], np.int32), np.array([7], np.float32))
    for index, right in ((1, True), (2, True), (0, False), (-1, False), (4, False)):
        got = (np.array([index], np.int32), np.array([7], np.float32))
        assert (compare((x,), got, expected) is None) == right
    wrong = (np.array([1], np.int32), np.array([3], np.float32))
    assert compare((x,), wrong, expected) is not None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_outputs": 3}, "num_outputs"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"build": lambda shape: None}, "PrimFunc"),
    ],
)
def test_kernels_that_do_not_fit_their_ir_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        tensors(Workload.of(replace(OWN, name="unfit", **change)))


@pytest.mark.parametrize(
    "reference", [lambda x, y: x, lambda x, y: (x @ y.T, x @ y.T)], ids=["shape", "number"]
)
def test_references_of_another_shape_are_refused(reference: Any) -> None:
    workload = Workload.of(replace(OWN, reference=reference))
    drawn = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    with pytest.raises(InvalidValueError, match="one for each output"):
        reference_of(workload, drawn)


def test_inputs_of_another_dtype_are_refused() -> None:
    wrong = replace(OWN, inputs=lambda shape, rng, regime: (np.zeros((6, 4)), np.zeros((6, 4))))
    with pytest.raises(InvalidValueError, match="inputs of kernel own"):
        make_inputs(Workload.of(wrong), np.random.default_rng(0), Regime.NORMAL)


def test_without_reference_there_is_no_verdict() -> None:
    workload = Workload.of(replace(OWN, reference=None))
    with pytest.raises(UsageError, match="has no reference"):
        reference_of(workload, ())


def test_images_smaller_than_their_filter_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="at least one element in out"):
        tensors(load_workload("conv2d", {"h": 2}))


def test_a_schedule_that_outlives_its_program_leaves_the_cached_build_alone() -> None:
    """TVM changes loops in place where it sees no second reference."""
    from tirgym.harness.target import Target
    from tirgym.harness.tensorir.program import TensorIRProgram

    workload, target = load_workload("matmul"), Target("llvm", "x86-64")
    before = TensorIRProgram.start(workload, target).ir_key
    schedule = TensorIRProgram.start(workload, target).schedule
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.split(schedule.get_loops(block)[0], [None, 2])
    assert TensorIRProgram.start(workload, target).ir_key == before
