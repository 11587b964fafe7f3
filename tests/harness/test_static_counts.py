"""Counts against a run of the loops in Python; traffic against a simulated cache."""

from __future__ import annotations

import statistics
from collections import Counter, OrderedDict

import numpy as np
import pytest
from brute_force import lines_touched, tally
from schedules import apply_all, begin
from tvm import tirx

from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_counts import nest_counts
from tirgym.harness.static_domain import Clause, clauses, times_true
from tirgym.harness.static_footprint import fitting_lines, lines_by_buffer
from tirgym.harness.static_lowering import lowered_counts
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import random_program
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import list_kernels

CHEAP = [kernel.name for kernel in list_kernels("core-v0") if kernel.name != "gather"]
"""Kernels whose indices do not depend on data, which a run without data cannot follow."""


@pytest.mark.parametrize("kernel", CHEAP)
def test_unscheduled_kernels_are_counted_as_they_run(kernel: str) -> None:
    assert_counted(begin(kernel))


SCHEDULES: dict[str, tuple[str, dict[str, int], str]] = {
    "fused": ("matmul", {}, "Fuse(loop=0)"),
    "all fused": ("add", {"n": 24}, "Fuse(loop=0); Split(loop=0, factor=8); Vectorize(loop=1)"),
    "fused reduction": ("row_sum", {}, "Fuse(loop=0)"),
    "unrolled": ("matmul", {"n": 12}, "Split(loop=1, factor=4); Unroll(loop=2)"),
    "pragma": (
        "matmul", {"k": 16},
        "CacheWrite(block=0); Split(loop=2, factor=4); UnrollPragma(loop=0, max_step=16)",
    ),
    "packed": (
        "matmul", {"n": 12}, "CacheRead(block=0, read=1); TransformLayout(block=0, axis=1, factor=2)",
    ),
    "aligned": ("softmax", {}, "StorageAlign(block=1, factor=64, offset=16)"),
    "padded": ("matmul", {"m": 15, "n": 24, "k": 30}, "PadEinsum(block=0, factor=8)"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_are_counted_as_they_run(case: str) -> None:
    kernel, shape, steps = SCHEDULES[case]
    assert_counted(apply_all(begin(kernel, **shape), steps))


@pytest.mark.parametrize("kernel", ["softmax", "matmul_bias_gelu", "conv2d_padded", "blur"])
def test_random_schedules_are_counted_as_they_run(kernel: str) -> None:
    vocabulary = default_vocabulary()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert_counted(random_program(begin(kernel, 2), rng, 8, vocabulary))


def assert_counted(program: TensorIRProgram) -> None:
    ran, counts, lowered = tally(program.mod), nest_counts(program.nest), lowered_counts(program)
    assert counts.exact
    for name in (
        "executions", "flops", "calls", "vector_executions", "parallel_executions", "predicates",
        "first_steps", "branches", "selects",
    ):  # fmt: skip
        assert getattr(counts, name) == ran.totals[name], name
    assert counts.loads == {name: n for name, n in ran.loads.items() if n}
    assert counts.stores == dict(ran.stores)
    if counts.moving_bytes:
        share = counts.strided_bytes / counts.moving_bytes
        assert share == pytest.approx(ran.strided_share, abs=1e-9)
    assert lowered.iterations == ran.totals["iterations"]
    assert lowered.statements == ran.totals["statements"]
    allocated: Counter[str] = Counter()
    for each in lowered.allocations:
        allocated[each.name] += each.nbytes
    assert allocated == ran.temporaries


def lru_misses(stream: list[tuple[str, int]], capacity: int) -> int:
    """Lines that a fully associative cache with the oldest thrown out loads in a second call."""
    cache: OrderedDict[tuple[str, int], None] = OrderedDict()
    misses = 0
    for _ in range(2):
        misses = 0
        for line in stream:
            if line in cache:
                cache.move_to_end(line)
                continue
            misses += 1
            cache[line] = None
            if len(cache) > capacity:
                cache.popitem(last=False)
    return misses


MATMUL = {"m": 16, "n": 48, "k": 16}
CACHED: dict[str, tuple[str, dict[str, int], str]] = {
    "naive": ("matmul", MATMUL, ""),
    "interchanged": ("matmul", MATMUL, "Reorder(loop=0)"),
    "tiled": ("matmul", MATMUL, "Split(loop=1, factor=16); Reorder(loop=0)"),
    "softmax": ("softmax", {"m": 16, "n": 64}, ""),
    "transpose": ("transpose", {"m": 32, "n": 48}, ""),
    "stencil": ("stencil2d", {"m": 24, "n": 48}, ""),
    "streamed": ("add", {"m": 16, "n": 64}, ""),
}


def test_estimated_traffic_is_near_that_of_a_simulated_cache() -> None:
    """Within 2.5 times everywhere, within 10 % mostly."""
    ratios = []
    for kernel, shape, steps in CACHED.values():
        program = apply_all(begin(kernel, **shape), steps)
        stream = lines_touched(program.mod)
        blocks = [cost.touched for cost in StaticCostModel().analysis(program)[1]]
        for capacity in (16, 40):
            estimated = sum(lines_by_buffer(program.nest, blocks, capacity).values())
            ratios.append(estimated / lru_misses(stream, capacity))
    assert all(1 / 2.5 < ratio < 2.5 for ratio in ratios), ratios
    assert 0.9 < statistics.median(ratios) < 1.1
    assert sum(0.9 < ratio < 1.1 for ratio in ratios) >= 0.6 * len(ratios)


def test_traffic_of_buffers_adds_up_to_the_model_s() -> None:
    program = begin("softmax", m=2000, n=3000)
    parts, costs = StaticCostModel().analysis(program)
    blocks = [cost.touched for cost in costs]
    capacity = 48 * 1024 / 64
    by_buffer = lines_by_buffer(program.nest, blocks, capacity)
    assert sum(by_buffer.values()) == pytest.approx(parts.l1_miss_lines)
    assert len(by_buffer) == 5


def test_the_loops_that_fit_are_found() -> None:
    program = begin("matmul", m=16, n=48, k=16)
    touched = StaticCostModel().analysis(program)[1][0].touched
    assert fitting_lines(touched, 1e9) == touched.totals[0][-1]
    assert fitting_lines(touched, 20.0) < 20.0
    assert fitting_lines(touched, 0.5) == touched.totals[0][0]


def test_conditions_are_counted_by_groups_of_variables() -> None:
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")
    extents = {hash(i): 7, hash(j): 5, hash(k): 3}
    condition = tirx.And(i * 5 + j < 23, tirx.floormod(k, 2) == 0)
    expected = sum(
        a * 5 + b < 23 and c % 2 == 0 for a in range(7) for b in range(5) for c in range(3)
    )
    found = times_true(clauses(condition), extents)
    assert (found.times, found.exact) == (expected, True)
    assert times_true([Clause(i + j, 3)], extents).times == 4 * 3
    assert times_true([], extents).times == 7 * 5 * 3


def test_what_cannot_be_counted_is_an_upper_bound() -> None:
    i, far = tirx.Var("i", "int32"), tirx.Var("far", "int32")
    extents = {hash(i): 7}
    assert times_true(clauses(far < 3), extents) == (7, False)
    assert times_true(clauses(tirx.truncdiv(i, 2) < 1), extents) == (7, False)
