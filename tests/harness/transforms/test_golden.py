"""Each transform: golden IR, replay of its JSON trace, purity, and the same results as before.

`python tests/harness/transforms/test_golden.py` writes the golden files anew; read the diff.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
import tvm_ffi

sys.path.insert(0, str(Path(__file__).parents[2]))

from schedules import ARCH, apply_all, begin, schedule_step

from tirgym.harness.backends.llvm import tvm_target
from tirgym.harness.hardware import missing_features
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import Handles
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.trace import Trace
from tirgym.harness.transforms import TRANSFORMS, load_transform, parse_transform

GOLDEN = Path(__file__).parent / "golden"


class Case(NamedTuple):
    """A kernel, transforms that prepare it, and the transform under test."""

    kernel: str
    before: str
    step: str
    shape: Mapping[str, int] = MappingProxyType({})
    num_threads: int = 1
    arch: str = ARCH
    backend: str = "llvm"


MATMUL = {"m": 16, "n": 24, "k": 32}
SOFTMAX = {"m": 8, "n": 16}
CASES = {
    "Split": Case("chain", "", "Split(loop=1, factor=8)"),
    "Reorder": Case("matmul", "", "Reorder(loop=1)", MATMUL),
    "Fuse": Case("chain", "", "Fuse(loop=0)"),
    "Vectorize": Case("chain", "Split(loop=1, factor=8)", "Vectorize(loop=2)"),
    "Parallel": Case("matmul", "", "Parallel(loop=0)", MATMUL, 2),
    "Unroll": Case("chain", "", "Unroll(loop=0)"),
    "DecomposeReduction": Case("matmul", "", "DecomposeReduction(loop=2)", MATMUL),
    "RFactor": Case("row_sum", "Split(loop=1, factor=8)", "RFactor(loop=2)", {"m": 4, "n": 32}),
    "CacheRead": Case("matmul", "", "CacheRead(block=0, read=1)", MATMUL),
    "CacheWrite": Case("matmul", "", "CacheWrite(block=0)", MATMUL),
    "ComputeInline": Case("chain", "", "ComputeInline(block=0)"),
    "ReverseComputeInline": Case("chain", "", "ReverseComputeInline(block=1)"),
    "ComputeAt": Case("chain", "", "ComputeAt(block=0, loop=2)"),
    "ReverseComputeAt": Case("chain", "", "ReverseComputeAt(block=1, loop=0)"),
    "UnrollPragma": Case("chain", "", "UnrollPragma(loop=0, max_step=16)"),
    "SetScope": Case("chain", "", "SetScope(block=0, scope='local')"),
    "StorageAlign": Case("chain", "", "StorageAlign(block=0, factor=64, offset=16)"),
    "TransformLayout": Case("chain", "", "TransformLayout(block=0, axis=1, factor=8)"),
    "PadEinsum": Case("matmul", "", "PadEinsum(block=0, factor=8)", {"m": 15, "n": 24, "k": 30}),
    "PadAxis": Case(
        "matmul", "", "PadAxis(block=0, axis=1, factor=16)", {"m": 15, "n": 24, "k": 30}
    ),
    "Tensorize": Case(
        "byte_dots",
        "Split(loop=1, factor=16); Split(loop=3, factor=4); Reorder(loop=2); "
        "DecomposeReduction(loop=2)",
        "Tensorize(loop=4, intrinsic='dot_16x4_vnni')",
    ),
    "VectorMath": Case("softmax", "", "VectorMath(block=1)", SOFTMAX),
    "Bind": Case("chain", "", "Bind(loop=0, thread='blockIdx.x')"),
    "SoftwarePipeline": Case(
        "matmul",
        "Split(loop=2, factor=8); CacheRead(block=0, read=0); ComputeAt(block=0, loop=4); "
        "SetScope(block=0, scope='shared'); CacheRead(block=1, read=1); ComputeAt(block=0, loop=4); "
        "SetScope(block=1, scope='shared')",
        "SoftwarePipeline(loop=2, stages=3)",
        MATMUL,
        1,
        "sm_90",
        "cuda",
    ),
    "Configure": Case("chain", "", "Configure(option='llvm.opt_level', value=2)"),
    "StorePrecision": Case("chain", "", "StorePrecision(block=0, dtype='float16')"),
}


def _before(case: Case) -> TensorIRProgram:
    return apply_all(_begin(case), case.before)


def _begin(case: Case) -> TensorIRProgram:
    return begin(case.kernel, case.num_threads, case.arch, case.backend, **case.shape)


def _after(name: str) -> Any:
    """The IR module after the step; `Bind` is legal on no backend of this case, so it is forced."""
    case = CASES[name]
    before, step = _before(case), schedule_step(case.step)
    if name != "Bind":
        return before.apply(step).mod
    schedule = before.schedule
    step.apply_to(schedule, Handles(schedule, before.nest))
    return schedule.mod


def _text(name: str) -> str:
    case = CASES[name]
    return (
        f"# {case.kernel}: {case.before or 'unscheduled'}\n# {case.step}\n{_after(name).script()}\n"
    )


def test_every_transform_has_a_case() -> None:
    """Those of Triton programs have theirs in tests/harness/triton."""
    of_schedules = {name for name in TRANSFORMS if load_transform(name).dialect == "tensorir"}
    assert set(CASES) == of_schedules


@pytest.mark.parametrize("name", CASES)
def test_golden_ir(name: str) -> None:
    assert _text(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(CASES) - {"Bind"}))
def test_json_trace_replays_to_an_equal_program(name: str) -> None:
    case = CASES[name]
    before = _before(case)
    original = before.mod.script()
    after = before.apply(parse_transform(case.step))
    assert before.mod.script() == original
    assert after.steps[-1] == parse_transform(case.step)
    texts = tuple(str(step) for step in after.steps)
    trace = Trace.from_json(Trace(after.workload.uri, after.target, texts).to_json())
    replayed = _begin(case)
    for text in trace.transforms:
        replayed = replayed.apply(parse_transform(text))
    assert tvm_ffi.structural_equal(replayed.mod, after.mod)
    assert replayed.ir_key == after.ir_key != before.ir_key


def _run(program: TensorIRProgram, arch: str) -> Any:
    """What a build for `arch` writes, for fixed inputs."""
    target = tvm_target(Target("llvm", arch, 1))
    call = tvm.compile(program.mod, target=target)["main"]
    rng = np.random.default_rng(0)
    arrays = []
    for buffer in program.mod["main"].params:
        shape = tuple(int(extent) for extent in buffer.shape)
        arrays.append(rng.integers(0, 100, shape).astype(str(buffer.dtype)))
    arrays[-1][...] = 85
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    call(*tensors)
    return tensors[-1].numpy()


@cache
def _expected(kernel: str, shape: tuple[tuple[str, int], ...]) -> Any:
    return _run(begin(kernel, **dict(shape)), "x86-64")


def _has_byte_dots() -> bool:
    return "avx512vnni" not in missing_features(ARCH)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"Bind", "Parallel", "SoftwarePipeline"}))
def test_results_stay(name: str) -> None:
    """`Parallel` would start the thread pool in the test process; the gate tests run it, and those of
    `SoftwarePipeline` run pipelines."""
    case = CASES[name]
    if name == "Tensorize" and not _has_byte_dots():
        pytest.skip("this CPU has no byte dot product")
    after = _before(case).apply(parse_transform(case.step))
    arch = ARCH if name == "Tensorize" else "x86-64"
    expected = _expected(case.kernel, tuple(case.shape.items()))
    np.testing.assert_allclose(_run(after, arch), expected, rtol=1e-3)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for written in CASES:
        (GOLDEN / f"{written}.txt").write_text(_text(written), encoding="utf-8")
