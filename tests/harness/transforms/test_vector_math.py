"""`VectorMath` passes the whole gate wherever the suite has calls; where it is legal; what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from schedules import apply_all, begin

from tirgym.harness.backend import backend
from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.static_checks import errors_only, static_checks
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir import elementary, rule_bodies, vector_calls
from tirgym.harness.tensorir.float_expressions import number
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import PLANS, WallTimer
from tirgym.harness.transforms import parse_transform
from tirgym.harness.transforms.split import Split
from tirgym.harness.transforms.vector_math import VectorMath
from tirgym.harness.transforms.vectorize import Vectorize
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.registry import list_kernels

KERNELS = ("attention", "log_softmax", "matmul_bias_gelu", "mlp", "softmax", "swiglu")
"""Kernels of the suite that call the C library."""


def _calling(program: TensorIRProgram) -> list[int]:
    """Blocks whose calls can be written as arithmetic."""
    blocks = range(len(program.nest.blocks))
    return [b for b in blocks if program.why_illegal(VectorMath(b)) is None]


def _vectorized(program: TensorIRProgram, block: int) -> TensorIRProgram:
    """The innermost loop of `block` on vectors, if it has an even extent."""
    loop = program.nest.blocks[block].chain[-1]
    extent = program.nest.loops[loop].extent
    lanes = min(16, extent & -extent)
    if lanes < 2:
        return program
    if lanes < extent:
        program, loop = program.apply(Split(loop, lanes)), loop + 1
    return program.apply(Vectorize(loop))


def _variants(workload: Workload) -> Iterator[TensorIRProgram]:
    """As it is, and vectorized."""
    host = backend("llvm").target().arch
    program = TensorIRProgram.start(workload, Target("llvm", host, 1))
    blocks = _calling(program)
    for block in blocks:
        program = program.apply(VectorMath(block))
    yield program
    for block in blocks:
        program = _vectorized(program, block)
    yield program


def _judge(workload: Workload, folder: Path) -> None:
    llvm = backend("llvm")
    for seed, program in enumerate(_variants(workload)):
        assert not errors_only(static_checks(program))
        start = TensorIRProgram.start(workload, program.target)
        rules = Rules(b"test", seed, PLANS, WallTimer(), str(folder / "lock"), 1e9, 1e9)
        bench = Workbench(workload, llvm.module_json(start), program.target, rules)
        function = bench.build(llvm.module_json(program)).load()
        outcome, _ = bench.gate(function, [bench.draw(r, "test") for r in Regime])
        assert outcome.status is Status.PASSED, (workload.uri, outcome.message)


def test_the_kernels_are_those_that_call() -> None:
    found = [k.name for k in list_kernels("core-v0") if _calling(begin(k.name))]
    assert sorted(found) == list(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_passes_every_regime_on_the_tiny_shape(kernel: str, tmp_path: Path) -> None:
    _judge(begin(kernel).workload, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_passes_every_regime_on_all_shapes(kernel: str, tmp_path: Path) -> None:
    definition = begin(kernel).workload.kernel
    for shape in (*definition.train, *definition.holdout):
        _judge(Workload.of(definition, shape), tmp_path)


def test_the_gate_sees_a_form_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one part in a thousand at 0, less below."""
    exact = elementary.exp

    def bent(x: Any) -> Any:
        return exact(x) + exact(x + x) * number(0.001)

    monkeypatch.setattr(vector_calls, "FORMS", {**elementary.FORMS, "tirx.exp": bent})
    with pytest.raises(AssertionError, match="relative error"):
        _judge(begin("softmax").workload, tmp_path)


def test_legal_once_for_each_call() -> None:
    program = begin("softmax", m=8, n=16)
    assert _calling(program) == [1]
    after = program.apply(VectorMath(1))
    assert _calling(after) == []
    assert _calling(begin("chain")) == []


def test_the_program_before_stays_and_the_same_step_gives_the_same_ir() -> None:
    program = begin("log_softmax", m=8, n=16)
    text = program.text()
    one, other = program.apply(VectorMath(2)), program.apply(VectorMath(2))
    assert program.text() == text != one.text()
    assert one.text() == other.text()
    assert one.ir_key == other.ir_key
    both = one.apply(VectorMath(4))
    assert tvm_ffi.structural_equal(both.mod, program.apply(VectorMath(4)).apply(VectorMath(2)).mod)


@pytest.mark.parametrize(
    "steps",
    [
        "ComputeAt(block=2, loop=6); VectorMath(block=1); ComputeAt(block=1, loop=4)",
        "VectorMath(block=1); ComputeAt(block=2, loop=7); CacheWrite(block=1)",
        "ComputeInline(block=1); VectorMath(block=1); VectorMath(block=2)",
        "ComputeInline(block=1); VectorMath(block=1); Split(loop=3, factor=8); RFactor(loop=4)",
        "VectorMath(block=1); Split(loop=3, factor=4); Unroll(loop=4)",
        "VectorMath(block=1); TransformLayout(block=1, axis=1, factor=8); CacheRead(block=1, read=0)",
    ],
)
def test_other_transforms_work_on_the_result(steps: str) -> None:
    """Results equal those of the unscheduled program to rounding."""
    start = begin("softmax", m=8, n=16)
    x = tvm.runtime.tensor(np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32))
    made = []
    for program in (start, apply_all(start, steps)):
        assert not errors_only(static_checks(program))
        out = tvm.runtime.tensor(np.full((8, 16), np.nan, np.float32))
        tvm.compile(program.mod, target=tvm_target(Target("llvm", "x86-64", 1)))["main"](x, out)
        made.append(out.numpy())
    np.testing.assert_allclose(made[1], made[0], rtol=1e-6)


def test_inlining_does_not_copy_named_values() -> None:
    """The other order is legal: each copy gets names of its own."""
    program = begin("softmax", m=8, n=16).apply(VectorMath(1))
    error = program.why_illegal(parse_transform("ComputeInline(block=1)"))
    assert error is not None
    assert error.rule == "names once"
    once = begin("log_softmax", m=8, n=16).apply(VectorMath(2))
    assert once.why_illegal(parse_transform("ComputeInline(block=2)")) is None


def test_body_size(monkeypatch: pytest.MonkeyPatch) -> None:
    program = begin("softmax", m=8, n=16)
    monkeypatch.setattr(rule_bodies, "MAX_EXPRESSION", 50)
    error = program.why_illegal(VectorMath(1))
    assert error is not None
    assert error.rule == "body size"
