"""The kernels of triton-v0: ordinary kernels with a Triton source each."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tvm

from tirgym.errors import InvalidValueError, MissingExtraError, UnknownNameError
from tirgym.harness.judge import Expected, judge
from tirgym.kernels_suite.kernel import Kernel, Regime, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    build_of,
    make_inputs,
    reference_of,
    scale_of,
    tensors,
    terms_of,
)
from tirgym.kernels_suite.registry import SUITES, list_kernels, load_kernel, load_workload
from tirgym.kernels_suite.triton import sources
from tirgym.kernels_suite.triton.source import MetaParameter

KERNELS = {kernel.name: kernel for kernel in list_kernels("triton-v0")}


def test_every_kernel_of_the_suite_has_a_source() -> None:
    assert set(sources.SOURCES) == set(SUITES["triton-v0"].kernels) == set(KERNELS)
    assert len(KERNELS) >= 13


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_kernel_states_is_what_its_program_says(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.parameters is not None
    assert kernel.terms is not None
    derived = replace(kernel, parameters=None, terms=None, accumulator="")
    for shape in (*kernel.train, *kernel.holdout, kernel.tiny_shape):
        stated, built = Workload.of(kernel, shape), Workload.of(derived, shape)
        assert tensors(stated) == tensors(built)
        assert terms_of(stated) == terms_of(built)
    assert accumulator_of(Workload.of(kernel)) == accumulator_of(Workload.of(derived))


def test_the_reference_of_int8_products_is_exact() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (3, 4096), np.int8)
    b = rng.integers(-128, 128, (4096, 5), np.int8)
    a[0], b[:, 0] = -128, -128
    workload = load_workload("triton-v0/int8_gemm", {"m": 3, "n": 5, "k": 4096})
    (found,) = reference_of(workload, (a, b))
    assert found.dtype == np.int32
    assert np.array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def _judge_here(kernel: Kernel, regime: Regime) -> None:
    """TVM's program at the tiny shape passes the gate's judge against the reference."""
    workload = Workload.of(kernel, kernel.tiny_shape)
    module = tvm.IRModule({"main": build_of(workload).with_attr("global_symbol", "main")})
    inputs = make_inputs(workload, np.random.default_rng(0), regime)
    _, outputs = tensors(workload)
    made = [tvm.runtime.tensor(np.zeros(t.shape, t.dtype)) for t in outputs]
    tvm.compile(module, target="llvm")["main"](*map(tvm.runtime.tensor, inputs), *made)
    scales = scale_of(workload, inputs) or (None,) * len(made)
    for tensor, got, reference, scale in zip(
        outputs, made, reference_of(workload, inputs), scales, strict=True
    ):
        own, terms = got.numpy(), terms_of(workload)
        expected = Expected.of(tensor.name, reference, own, terms, scale, accumulator_of(workload))
        assert not judge(got.numpy(), expected).failure


NEW = ("matmul", "matmul_bias_gelu", "batch_matmul", "attention", "mlp", "rope", "cross_entropy")
"""Those that are no kernel of core-v0 at other sizes."""


@pytest.mark.parametrize("name", NEW)
def test_the_program_means_what_its_reference_says(name: str) -> None:
    _judge_here(KERNELS[name], Regime.NORMAL)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("regime", [r for r in Regime if r is not Regime.EXTREME])
def test_it_does_so_in_every_regime(name: str, regime: Regime) -> None:
    _judge_here(KERNELS[name], regime)


def test_core_kernels_are_not_mistaken_for_those_of_the_suite() -> None:
    assert load_kernel("softmax").suite == "core-v0"
    with pytest.raises(InvalidValueError, match=r"triton-v0/\{add, gelu"):
        sources.triton_source(load_kernel("softmax"))


def test_without_triton_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tirgym\[triton\]'"):
        sources.triton_source(KERNELS["softmax"])


def test_a_default_outside_its_values_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="default of BLOCK"):
        MetaParameter("BLOCK", (16, 32), 64)


def test_a_launch_follows_from_shape_and_configuration() -> None:
    pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")
    source = sources.triton_source(KERNELS["matmul"])
    workload = load_workload("triton-v0/matmul", {"m": 300, "n": 512, "k": 1})
    launch = source.launch(workload, {"BLOCK_M": 64, "num_warps": 8})
    assert launch.grid == (5 * 4, 1, 1)
    assert launch.num_warps == 8
    told = {a.name: (a.type, a.value, a.divisible) for a in launch.arguments}
    assert list(told) == list(source.function.arg_names)
    assert told["a_ptr"] == ("*fp16", "a", True)
    assert told["m"] == ("i32", 300, False)
    assert told["n"] == ("i32", 512, True)
    assert told["k"] == ("constexpr", 1, False)
    assert told["BLOCK_M"] == ("constexpr", 64, False)
    with pytest.raises(UnknownNameError, match="did you mean 'BLOCK_M'"):
        source.config({"BLOCK_MM": 64})
    with pytest.raises(InvalidValueError, match="BLOCK_M of matmul: 48"):
        source.config({"BLOCK_M": 48})


_INTERPRET = """
import sys, numpy as np, torch
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of, tensors
from tirgym.kernels_suite.registry import list_kernels
from tirgym.kernels_suite.triton.sources import triton_source
for kernel in list_kernels("triton-v0"):
    for shape in (kernel.tiny_shape, *kernel.holdout[1:]):
        workload, source = Workload.of(kernel, shape), triton_source(kernel)
        small = {p.name: max(32, min(p.values)) for p in source.parameters if p.name == "BLOCK_K"}
        launch = source.launch(workload, small)
        inputs = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
        ins, outs = tensors(workload)
        held = {t.name: torch.from_numpy(a.copy()) for t, a in zip(ins, inputs)}
        held |= {t.name: torch.full(t.shape, 77, dtype=getattr(torch, t.dtype)) for t in outs}
        arguments = [held[a.value] if a.is_pointer else a.value for a in launch.arguments]
        with np.errstate(all="ignore"):
            source.function[launch.grid](*arguments)
        for tensor, expected in zip(outs, reference_of(workload, inputs)):
            error = np.abs(held[tensor.name].numpy().astype(np.float64) - expected).max()
            limit = {"float16": 2e-3, "float32": 1e-5}.get(tensor.dtype, 0) * np.abs(expected).max()
            assert error <= limit, (str(workload), error, limit)
            print(workload, error)
"""


@pytest.mark.slow
def test_triton_interprets_every_source_to_its_reference() -> None:
    for module in ("triton", "torch"):
        pytest.importorskip(module, reason=f"Triton's interpreter needs {module}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _INTERPRET],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shapes = sum(len(kernel.holdout) for kernel in KERNELS.values())
    assert done.stdout.count("\n") == shapes
    assert not math.isnan(float(done.stdout.split()[-1]))
