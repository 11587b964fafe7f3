"""What holds for every kernel of the suites, one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.s_tir.analysis import verify_well_formed

from tirgym.harness.judge import Expected, judge, judge_with
from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Shape, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    build_of,
    make_inputs,
    reference_of,
    scale_of,
    tensors,
    terms_of,
)
from tirgym.kernels_suite.registry import list_kernels

KERNELS = {kernel.name: kernel for kernel in list_kernels("core-v0")}
MEMORY_LIMIT = 256 << 20


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return KERNELS[request.param]


@cache
def compiled(workload: Workload) -> tvm.runtime.Function:
    """The unscheduled program, compiled for a plain CPU."""
    func = build_of(workload).with_attr("global_symbol", "main")
    return tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"]


def run(workload: Workload, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Outputs of the unscheduled program, poisoned before the call."""
    outputs = [
        tvm.runtime.tensor(np.full(t.shape, math.nan if t.dtype[0] == "f" else 77, t.dtype))
        for t in tensors(workload)[1]
    ]
    compiled(workload)(*map(tvm.runtime.tensor, inputs), *outputs)
    return tuple(output.numpy() for output in outputs)


def pattern(array: Array) -> Array:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    codes: Array = np.isnan(array) + 2 * np.isposinf(array) + 3 * np.isneginf(array)
    return codes


def check_regimes(kernel: Kernel, shape: Shape, seeds: int) -> None:
    """The unscheduled program passes the gate, with the pattern of inf and NaN of the reference."""
    workload = Workload.of(kernel, shape)
    names = [t.name for t in tensors(workload)[1]]
    for regime in Regime:
        for seed in range(seeds):
            inputs = make_inputs(workload, np.random.default_rng(seed), regime)
            got = run(workload, inputs)
            references = reference_of(workload, inputs)
            scales = scale_of(workload, inputs) or (None,) * len(got)
            expected = tuple(
                Expected.of(
                    name, reference, output, terms_of(workload), scale, accumulator_of(workload)
                )
                for name, reference, output, scale in zip(
                    names, references, got, scales, strict=True
                )
            )
            if kernel.compare is not None:
                verdicts = judge_with(kernel.compare, inputs, got, expected)
            else:
                verdicts = [judge(g, e) for g, e in zip(got, expected, strict=True)]
            assert not any(v.failure for v in verdicts), (str(workload), regime, seed, verdicts)
            for output, reference in zip(got, references, strict=True):
                if output.dtype.kind == "f":
                    assert np.array_equal(pattern(output), pattern(reference)), (regime, seed)
                    assert regime is Regime.EXTREME or np.isfinite(output).all(), (regime, seed)


def test_unscheduled_program_passes_the_gate_at_the_tiny_shape(kernel: Kernel) -> None:
    check_regimes(kernel, kernel.tiny_shape, seeds=2)


@pytest.mark.slow
def test_unscheduled_program_passes_the_gate_at_every_shape(kernel: Kernel) -> None:
    for shape in kernel.holdout:
        check_regimes(kernel, shape, seeds=8)
    for shape in kernel.train:
        check_regimes(kernel, shape, seeds=1)


def test_build_is_deterministic_and_well_formed(kernel: Kernel) -> None:
    shape = Workload.of(kernel).shape
    first, second = kernel.build(shape), kernel.build(shape)
    assert tvm_ffi.structural_hash(first) == tvm_ffi.structural_hash(second)
    assert verify_well_formed(first)


def test_inputs_are_a_function_of_the_seed_and_differ_between_seeds(kernel: Kernel) -> None:
    workload = Workload.of(kernel, kernel.tiny_shape)
    for regime in Regime:
        first, again, other = (
            make_inputs(workload, np.random.default_rng(seed), regime) for seed in (1, 1, 2)
        )
        for a, b in zip(first, again, strict=True):
            assert a.tobytes() == b.tobytes(), regime
            assert a.flags.c_contiguous, regime
            assert a.dtype.kind != "f" or not np.isnan(a).any(), regime
        assert any(a.tobytes() != b.tobytes() for a, b in zip(first, other, strict=True)), regime


def test_shapes_stay_within_memory(kernel: Kernel) -> None:
    for shape in (kernel.tiny_shape, *kernel.train, *kernel.holdout):
        workload = Workload.of(kernel, shape)
        buffers = build_of(workload).body.block.alloc_buffers
        held = sum(t.nbytes for group in tensors(workload) for t in group)
        for buffer in buffers:
            held += math.prod(int(e) for e in buffer.shape) * np.dtype(str(buffer.dtype)).itemsize
        assert held < MEMORY_LIMIT, str(workload)


def test_train_shapes_avoid_powers_of_two_first_and_holdout_covers_the_odd(kernel: Kernel) -> None:
    sizes = [size for size in Workload.of(kernel).shape.values() if size > 32]
    assert not any(size & (size - 1) == 0 for size in sizes)
    assert len(kernel.holdout) >= 3
    assert any(1 in shape.values() or min(shape.values()) == 3 for shape in kernel.holdout)
    train = [dict(shape) for shape in kernel.train]
    assert not any(dict(shape) in train for shape in kernel.holdout)


def test_no_two_kernels_have_the_same_ir() -> None:
    size = {"h": 12, "w": 16, "k": 3}
    names: dict[int, list[str]] = defaultdict(list)
    for kernel in KERNELS.values():
        shape = {dim: size.get(dim, 8) for dim in kernel.dims}
        names[tvm_ffi.structural_hash(kernel.build(shape))].append(kernel.name)
    assert [same for same in names.values() if len(same) > 1] == []


def test_every_output_depends_on_every_input(kernel: Kernel) -> None:
    workload = Workload.of(kernel, kernel.tiny_shape)
    draw = [make_inputs(workload, np.random.default_rng(s), Regime.NORMAL) for s in (1, 2)]
    before = reference_of(workload, draw[0])
    for position in range(len(draw[0])):
        changed = list(draw[0])
        changed[position] = draw[1][position]
        after = reference_of(workload, tuple(changed))
        assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True)), position
