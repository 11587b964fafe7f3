"""Small sizes under which the code of a large workload is checked."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

from triton_envs import started

from tirgym.harness.triton.pass_rules import ARGUMENTS
from tirgym.harness.triton.small_shape import small_workload, specialisation
from tirgym.harness.triton.transforms.set_pass_argument import SetPassArgument
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.registry import list_kernels

KERNELS = list_kernels("triton-v0")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_small_sizes_run_the_same_code(kernel: Kernel) -> None:
    for shape in (kernel.train[0], *kernel.holdout[:1], kernel.tiny_shape):
        program = started(Workload.of(kernel, shape).uri)
        recipe = program.recipe
        small = small_workload(recipe)
        assert specialisation(recipe, small.shape) == specialisation(recipe, shape)
        assert all(small.shape[name] <= size for name, size in shape.items())
        large, little = program.request.launch, recipe.source.launch(small)
        for one, other in zip(large.arguments, little.arguments, strict=True):
            assert (one.name, one.type, one.divisible) == (other.name, other.type, other.divisible)
        assert large.constants == little.constants
        if large.programs > 1:
            assert little.programs > 1
        if math.prod(shape.values()) > 2**24:
            assert math.prod(small.shape.values()) < 2**23


def test_loops_fill_and_drain_their_pipelines() -> None:
    for stages in (2, 5):
        program = started("tirgym://triton-v0/matmul?m=4096&n=4096&k=4096&dtype=float16")
        small = small_workload(program.with_config({"num_stages": stages}).recipe).shape
        assert small["k"] >= 32 * (stages + 1)
        assert (small["m"], small["n"]) == (144, 144)


def test_loops_fill_pipelines_that_are_deeper_than_num_stages() -> None:
    program = started("tirgym://triton-v0/matmul?m=4096&n=4096&k=4096&dtype=float16")
    shallow = small_workload(program.recipe).shape
    calls = {call.name: call.arguments for call in program.recipe.calls("ttgir")}
    deep = [
        SetPassArgument("ttgir", name, 0, place, max(values))
        for (name, place), values in ARGUMENTS.items()
        if name in calls and calls[name][place] == program.recipe.values["num_stages"]
    ]
    assert deep
    for transform in deep:
        small = small_workload(program.apply(transform).recipe).shape
        assert small["k"] >= 32 * (transform.value + 1)
        assert small == {**shallow, "k": small["k"]}
