"""The compiler's own choice: right, cheap to make, the same every time, no bomb."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hash_seeds import Alike

from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.default_schedule import WORK_LIMIT, _work, default_program
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import kernel_names, load_kernel

TARGET = Target("llvm", "x86-64", 1)
RULES = {
    "softmax": "dlight Reduction",
    "layernorm": "dlight Reduction",
    "matvec": "dlight GEMV",
    "matmul": "MetaSchedule sketch 0",
    "add": "MetaSchedule sketch 0",
    "swiglu": "MetaSchedule sketch 0 without write cache",
}


def outputs(program: TensorIRProgram) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [
        tvm.runtime.tensor(rng.uniform(0.5, 1, [int(s) for s in p.shape]).astype(str(p.dtype)))
        for p in program.mod["main"].params
    ]
    tvm.compile(program.mod, target=tvm_target(program.target))["main"](*arrays)
    return [array.numpy() for array in arrays]


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_rule_that_applies_makes_a_right_program(name: str) -> None:
    kernel = load_kernel(name)
    workload = Workload.of(kernel)
    made = default_program(workload, TARGET)
    assert made is not None
    program, rule = made
    assert rule == RULES[name]
    start = TensorIRProgram.start(workload, TARGET)
    assert program.ir_key != start.ir_key
    for got, expected in zip(outputs(program), outputs(start), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", kernel_names())
def test_every_kernel_has_a_default_that_repeats_little_work(name: str) -> None:
    kernel = load_kernel(name)
    workload = Workload.of(kernel, kernel.tiny_shape)
    made = default_program(workload, TARGET)
    assert made is not None
    start = TensorIRProgram.start(workload, TARGET)
    limit = WORK_LIMIT if made[1].startswith("dlight") else 8
    assert _work(made[0].mod) <= limit * _work(start.mod)


def test_the_choice_is_equal_across_processes_and_imports_no_intrinsics(alike: Alike) -> None:
    code = (
        "import sys\n"
        "from tirgym.harness.default_schedule import default_program\n"
        "from tirgym.harness.target import Target\n"
        "from tirgym.kernels_suite.kernel import Workload\n"
        "from tirgym.kernels_suite.registry import load_kernel\n"
        "made = default_program(Workload.of(load_kernel('conv2d')), Target('llvm', 'x86-64', 1))\n"
        "print(made[0].ir_key, made[1], 'tvm.s_tir.tensor_intrin.cuda' in sys.modules)"
    )
    assert alike(code).endswith("MetaSchedule sketch 0 False\n")
