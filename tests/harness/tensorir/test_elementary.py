"""Forms of elementary functions against float64 NumPy, over dense and special arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from schedules import begin
from tvm import te, tirx

from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.hardware import host_cpu
from tirgym.harness.static_checks import errors_only, static_checks
from tirgym.harness.target import Target
from tirgym.harness.tensorir.block_view import body_parts, expression_size
from tirgym.harness.tensorir.elementary import FORMS
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.vector_calls import body, size_with_vector_math, with_vector_math
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Kernel, Workload

Floats = NDArray[np.float32]
Exact = NDArray[np.float64]
ROWS, LANES = 1 << 13, 16
HOST = host_cpu()
ULP = 2.0

_erf = np.vectorize(math.erf, otypes=[np.float64])
EXACT: dict[str, Callable[..., Exact]] = {
    "tirx.exp": np.exp,
    "tirx.exp2": np.exp2,
    "tirx.log": np.log,
    "prim.log2": np.log2,
    "tirx.tanh": np.tanh,
    "tirx.sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tirx.erf": _erf,
    "tirx.pow": np.power,
}
CALLS: dict[str, Callable[..., Any]] = {
    "tirx.exp": tirx.exp,
    "tirx.exp2": tirx.exp2,
    "tirx.log": tirx.log,
    "prim.log2": tirx.log2,
    "tirx.tanh": tirx.tanh,
    "tirx.sigmoid": tirx.sigmoid,
    "tirx.erf": tirx.erf,
    "tirx.pow": tirx.pow,
}
MAX = float(np.finfo(np.float32).max)
SPECIAL = (
    *(0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 0.625, 475.0 / 512.0, math.inf, math.nan, MAX),
    *(
        1e-45,
        1e-39,
        2.0**-126,
        2.0**-149,
        2.0**23,
        2.0**23 + 1,
        2.0**24,
        2.0**24 + 2,
        2.0**22 + 0.5,
    ),
    *(
        88.72283,
        88.72284,
        87.33654,
        103.97207,
        103.97208,
        127.99999,
        128.0,
        126.0,
        149.0,
        150.0,
        151.0,
    ),
    *(0.99999994, 1.0000001, 9.0, 10.0, 3.9, 4.0, 104.0, 89.0),
)
"""Arguments with exact results, next to overflow, underflow, and the borders of the forms."""


def _kernel(name: str) -> Kernel:
    """out[i, j] = f(x[i, j]) or f(x[i, j], y[i, j])."""

    def build(_: Any) -> Any:
        arguments = [
            te.placeholder((ROWS, LANES), "float32", n) for n in "xy"[: 1 + (name == "tirx.pow")]
        ]
        out = te.compute(
            (ROWS, LANES), lambda i, j: CALLS[name](*(a(i, j) for a in arguments)), "out"
        )
        return te.create_prim_func([*arguments, out])

    return Kernel(name.rpartition(".")[2], "test", build, None, ({"n": 1},))


@cache
def _compiled(name: str, arch: str) -> Callable[..., Any]:
    target = Target("llvm", arch, 1)
    program = TensorIRProgram.start(Workload.of(_kernel(name)), target)
    for step in ("VectorMath(block=0)", "Vectorize(loop=1)"):
        program = program.apply(parse_transform(step))
    return tvm.compile(program.mod, target=tvm_target(target))["main"]  # type: ignore[no-any-return]


def _run(name: str, arch: str, *arguments: Floats) -> Floats:
    out = tvm.runtime.tensor(np.full((ROWS, LANES), np.nan, np.float32))
    given = [tvm.runtime.tensor(np.resize(a, ROWS * LANES).reshape(ROWS, LANES)) for a in arguments]
    _compiled(name, arch)(*given, out)
    made: Floats = out.numpy().ravel()
    return made


def _errors(got: Floats, exact: Exact) -> Exact:
    """Distance in units in the last place; 0 for the same infinity or NaN, else infinite.

    Next to overflow the largest number is one unit from infinity.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(got)
        unit = np.spacing(np.abs(np.where(finite, rounded, 1.0)).astype(np.float32))
        error = np.abs(np.where(finite, got, 0.0) - np.where(finite, exact, 0.0)) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        edge = np.minimum(np.abs(got), np.abs(rounded)) == np.float32(MAX)
    found: Exact = np.where(finite, error, np.where(same, 0.0, np.where(edge, 1.0, np.inf)))
    return found


def _any_bits(rng: np.random.Generator, size: int) -> Floats:
    return rng.integers(0, 1 << 32, size, np.uint32).view(np.float32)


def _arguments(name: str) -> tuple[Floats, ...]:
    """All special values, or all pairs of them, then floats from all over, half of them moderate."""
    rng = np.random.default_rng(len(name))
    special = np.array([*SPECIAL, *(-x for x in SPECIAL)], np.float32)
    size = ROWS * LANES // 2
    moderate = rng.uniform(-20.0, 20.0, size).astype(np.float32)
    if name != "tirx.pow":
        return (np.concatenate([special, _any_bits(rng, size - len(special)), moderate]),)
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    rest = size - pairs.shape[1]
    near_one = (1.0 + rng.uniform(-1e-3, 1e-3, size // 2)).astype(np.float32)
    steep = rng.uniform(-8e4, 8e4, size // 2).astype(np.float32)
    base, exponent = np.abs(moderate[: size // 2]), moderate[size // 2 :]
    return (
        np.concatenate([pairs[0], _any_bits(rng, rest), base, near_one]),
        np.concatenate([pairs[1], _any_bits(rng, rest), exponent, steep]),
    )


def test_every_form_is_tested() -> None:
    assert set(FORMS) == set(EXACT) == set(CALLS)


@pytest.mark.parametrize("arch", sorted({HOST, "x86-64"}))
@pytest.mark.parametrize("name", FORMS)
def test_results_are_exact_to_two_units(name: str, arch: str) -> None:
    """With and without fused multiply-adds, which x86-64 lacks."""
    arguments = _arguments(name)
    got = _run(name, arch, *arguments)
    with np.errstate(all="ignore"):
        exact = EXACT[name](*(a.astype(np.float64) for a in arguments))
    error = _errors(got, exact)
    worst = int(error.argmax())
    at = tuple(float(a[worst]) for a in arguments)
    assert error[worst] <= ULP, (name, at, float(got[worst]), float(exact[worst]))


def test_the_measure_sees_errors() -> None:
    """Three units, a missing infinity, a missing NaN."""
    exact = np.array([1.0, math.inf, math.nan, 2.0**-149])
    assert (_errors(exact.astype(np.float32), exact) == 0.0).all()
    wrong = np.array([1.0 + 3 * 2.0**-23, 1.0, 1.0, 3 * 2.0**-149], np.float32)
    assert _errors(wrong, exact).tolist() == [3.0, math.inf, math.inf, 2.0]


@pytest.mark.parametrize("arch", sorted({HOST, "x86-64"}))
def test_exponentials_end_in_exact_zeros_and_infinities(arch: str) -> None:
    x = np.array([-math.inf, -1e30, -104.0, 88.73, 1e30, math.inf, math.nan, 0.0, -0.0], np.float32)
    got = _run("tirx.exp", arch, x)[: len(x)]
    assert got[:3].tolist() == [0.0, 0.0, 0.0]
    assert not np.signbit(got[:3]).any()
    assert got[3:6].tolist() == [math.inf] * 3
    assert np.isnan(got[6])
    assert got[7:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_free_of_calls_and_casts_to_integers(name: str) -> None:
    """Casting NaN to an integer is undefined; a call is what the forms are there to avoid."""
    program = TensorIRProgram.start(Workload.of(_kernel(name)), begin("chain").target)
    program = program.apply(parse_transform("VectorMath(block=0)"))
    assert not errors_only(static_checks(program))
    block = program.nest.blocks[0].facts.node
    allowed = {"shift_left", "shift_right", "bitwise_and", "bitwise_or", "reinterpret"}
    for part in body_parts(block.body):
        if isinstance(part, tvm.ir.Call):
            assert part.op.name.rpartition(".")[2] in allowed
        if isinstance(part, tirx.Cast):
            assert str(part.ty).startswith("float")


@pytest.mark.parametrize("kernel", ["softmax", "gelu", "matmul_bias_gelu", "silu", "matmul"])
def test_the_size_of_a_form_is_known_before_it_is_made(kernel: str) -> None:
    for block in begin(kernel).nest.blocks:
        node = block.facts.node
        assert size_with_vector_math(node) == expression_size(with_vector_math(node))
        assert (size_with_vector_math(node) > expression_size(node)) == (body(node).written > 0)
