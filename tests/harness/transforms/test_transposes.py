"""Transposes in vector registers: exact, on any rows that squares divide, once or several times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from schedules import apply_all, begin

from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.decisions import RandomAgent, design_space
from tirgym.harness.hardware import host_cpu
from tirgym.harness.static_checks import errors_only, static_checks
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram

AVX512 = "skylake-avx512"
HOST = host_cpu()
SQUARES = "Split(loop=0, factor={0}); Split(loop=2, factor={0}); Reorder(loop=1)"


def transposed(size: int, **shape: int) -> TensorIRProgram:
    """`transpose` in squares of `size`."""
    step = f"Tensorize(loop=2, intrinsic='transpose_{size}x{size}')"
    return apply_all(begin("transpose", 1, AVX512, **shape), f"{SQUARES.format(size)}; {step}")


def run(program: TensorIRProgram, x: Any, arch: str, shape: tuple[int, ...] | None = None) -> Any:
    out = tvm.runtime.tensor(np.full(shape or x.shape[::-1], np.nan, x.dtype))
    tvm.compile(program.mod, target=tvm_target(Target("llvm", arch, 1)))["main"](
        tvm.runtime.tensor(x), out
    )
    return out.numpy()


@pytest.mark.parametrize("arch", sorted({HOST, "x86-64"}))
@pytest.mark.parametrize(("size", "m", "n"), [(8, 16, 16), (8, 24, 40), (16, 48, 32), (16, 80, 48)])
def test_every_element_arrives(size: int, m: int, n: int, arch: str) -> None:
    """LLVM makes shorter vectors where the target has no such long ones; bits stay as they are."""
    program = transposed(size, m=m, n=n)
    assert not errors_only(static_checks(program))
    x = np.random.default_rng(0).integers(0, 1 << 32, (m, n), np.uint32).view(np.float32)
    assert np.array_equal(run(program, x, arch).view(np.uint32), x.T.view(np.uint32))


@pytest.mark.parametrize(
    "steps",
    [
        "Split(loop=1, factor=2); Reorder(loop=0)",
        "Fuse(loop=0); UnrollPragma(loop=0, max_step=16)",
        "CacheRead(block=0, read=0); CacheWrite(block=1)",
        "CacheRead(block=0, read=0); ComputeAt(block=0, loop=3)",
        "CacheWrite(block=0); ComputeAt(block=0, loop=2)",
    ],
)
def test_other_transforms_work_around_it(steps: str) -> None:
    program = apply_all(transposed(8, m=32, n=64), steps)
    assert not errors_only(static_checks(program))
    x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    assert np.array_equal(run(program, x, "x86-64"), x.T)


def test_two_blocks_may_be_transposed() -> None:
    """The compiler's verifier wants the names of registers defined once in a program."""
    tensorize = "Tensorize(loop={}, intrinsic='transpose_8x8')"
    first = f"{SQUARES.format(8)}; {tensorize.format(2)}"
    second = "Split(loop=2, factor=8); Split(loop=4, factor=8); Reorder(loop=3)"
    program = apply_all(begin("back_and_forth"), f"{first}; {second}; {tensorize.format(4)}")
    assert [view.intrinsic for view in program.facts.views] == [True, True]
    assert not errors_only(static_checks(program))
    x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    assert np.array_equal(run(program, x, "x86-64", x.shape), x)


def test_operands_that_are_turned_are_turned_in_squares() -> None:
    """Their blocks have the iterator of columns first, and in attention one more for the heads."""
    for kernel, shape, key in (
        ("matmul_nt", {"m": 32, "n": 64, "k": 48}, "b_global.transpose"),
        ("attention", {"heads": 2, "n": 64, "d": 32}, "k_global.transpose"),
    ):
        start = begin(kernel, 1, AVX512, **shape)
        walk = design_space(start).finish()
        assert next(a.value for a in walk.answers if a.key == key) == 16
        program = walk.program
        assert isinstance(program, TensorIRProgram)
        assert not errors_only(static_checks(program))
        rng = np.random.default_rng(0)
        arrays = [
            rng.standard_normal([int(n) for n in p.shape]).astype(np.float32)
            for p in program.mod["main"].params
        ]
        made = []
        for each in (start, program):
            tensors = [tvm.runtime.tensor(array) for array in arrays]
            target = tvm_target(Target("llvm", "x86-64", 1))
            tvm.compile(each.mod, target=target)["main"](*tensors)
            made.append(tensors[-1].numpy())
        np.testing.assert_allclose(made[1], made[0], rtol=1e-4, atol=1e-5)


def test_targets_without_the_vectors_refuse() -> None:
    for arch, sizes in (("x86-64", ()), ("haswell", (8,)), (AVX512, (16, 8))):
        program = begin("transpose", 1, arch, m=32, n=32)
        walk = design_space(program)
        options = walk.question.options if walk.question is not None else ()
        asked = walk.question is not None and walk.question.key == "out.transpose"
        assert tuple(o.value for o in options[1:] if asked) == sizes


def test_asked_only_of_copies_across() -> None:
    """Copies along rows and sums are left alone."""
    for kernel in ("relu", "pad", "concat", "row_sum"):
        walk = design_space(begin(kernel, 1, AVX512)).finish()
        assert not [a for a in walk.answers if a.key.endswith(".transpose")]


def test_the_static_choice_is_squares_and_the_cost_agrees() -> None:
    walk = design_space(begin("transpose", 1, AVX512, m=800, n=880))
    squares, elements = walk.finish(), walk.finish({"out.transpose": 0})
    assert [str(s) for s in squares.program.steps][3].startswith("Tensorize(")
    cost = StaticCostModel()
    assert cost.predict_us(squares.program) < cost.predict_us(elements.program)


def test_walks_through_squares_are_exact() -> None:
    x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    for seed in range(4):
        walk = design_space(begin("transpose", 1, AVX512, m=32, n=64))
        program = walk.answer(1 + seed % 2).follow(RandomAgent(seed)).program
        assert isinstance(program, TensorIRProgram)
        assert np.array_equal(run(program, x, "x86-64"), x.T)
