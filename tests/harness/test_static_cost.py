"""The static cost model: deterministic, positive, and right about schedules whose order is known."""

from __future__ import annotations

import math

import pytest
from hash_seeds import Alike
from tvm import te
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from tirgym.errors import InvalidValueError
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Kernel, Shape, Workload

TARGET = Target("llvm", "skylake-avx512", 1)


def matmul(shape: Shape) -> PrimFunc:
    m, n, k = shape["m"], shape["n"], shape["k"]
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


MATMUL = Kernel("matmul", "matmul", matmul, None, ({"m": 250, "n": 264, "k": 240},))


def program(schedule: Schedule | None = None) -> TensorIRProgram:
    start = TensorIRProgram.start(Workload.of(MATMUL), TARGET)
    return start if schedule is None else TensorIRProgram(start.workload, TARGET, (), schedule)


def tiled(
    i: int, j: int, k: int, order: str, decompose: str = "", unroll: str = ""
) -> TensorIRProgram:
    """Matmul with `i`×`j`×`k` tiles, loops in `order`, the inner j loop vectorized."""
    schedule = program().schedule
    block = schedule.get_sblock("C")
    loops = {}
    for name, loop, factor in zip("ijk", schedule.get_loops(block), (i, j, k), strict=True):
        loops[name + "0"], loops[name + "1"] = schedule.split(loop, [None, factor])
    schedule.reorder(*(loops[name] for name in order.split()))
    schedule.vectorize(loops["j1"])
    for name in unroll.split():
        schedule.unroll(loops[name])
    if decompose:
        schedule.decompose_reduction(block, loops[decompose])
    return program(schedule)


BY_MEASURED_TIME = [
    ("register tile 10x8", tiled(10, 8, 8, "i0 j0 k0 k1 i1 j1", "k0")),  # 311 µs
    ("short reduction inside", tiled(2, 8, 8, "i0 k0 j0 k1 i1 j1")),  # 337 µs
    ("two chains", tiled(2, 8, 8, "i0 j0 k0 k1 i1 j1", "k0")),  # 927 µs
    ("wide vectors", tiled(2, 264, 8, "i0 k0 j0 k1 i1 j1")),  # 9,066 µs
    ("naive", program()),  # 10,783 µs
]
"""One thread of an AVX-512 machine; neighbours differ by more than any machine would change."""


def test_known_matmul_schedules_are_ranked_as_measured() -> None:
    model = StaticCostModel()
    predicted = [model.predict_us(p) for _, p in BY_MEASURED_TIME]
    order = sorted(range(len(predicted)), key=predicted.__getitem__)
    assert order[:2] in ([0, 1], [1, 0])
    assert order[2] == 2
    assert predicted[-1] > 8 * predicted[0]


def test_prediction_is_within_four_times_of_the_measured_naive_time() -> None:
    assert 10_783 / 4 < StaticCostModel().predict_us(program()) < 10_783 * 4


def test_prediction_is_pure_whatever_was_predicted_before() -> None:
    fresh = [StaticCostModel().predict_us(p) for _, p in BY_MEASURED_TIME]
    shared = StaticCostModel()
    again = [shared.predict_us(p) for _, p in reversed(BY_MEASURED_TIME)]
    assert fresh == again[::-1]
    assert all(math.isfinite(us) and us > 0 for us in fresh)


def test_prediction_is_equal_across_processes_and_hash_seeds(alike: Alike) -> None:
    code = (
        f"import importlib.util as u; s = u.spec_from_file_location('t', {__file__!r});"
        "m = u.module_from_spec(s); s.loader.exec_module(m);"
        "print([m.StaticCostModel().predict_us(p).hex() for _, p in m.BY_MEASURED_TIME])"
    )
    here = [StaticCostModel().predict_us(p).hex() for _, p in BY_MEASURED_TIME]
    assert alike(code) == f"{here}\n"


def test_parallel_loops_help_only_with_threads() -> None:
    schedule = program().schedule
    schedule.parallel(schedule.get_loops(schedule.get_sblock("C"))[0])
    one = StaticCostModel().predict_us(program(schedule))
    two = TensorIRProgram(Workload.of(MATMUL), Target("llvm", TARGET.arch, 2), (), schedule)
    assert StaticCostModel().predict_us(two) < 0.7 * one


def test_another_dialect_is_refused() -> None:
    class Other:
        dialect = "triton"

    with pytest.raises(InvalidValueError, match="tensorir"):
        StaticCostModel().predict_us(Other())  # type: ignore[arg-type]
