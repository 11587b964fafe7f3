"""`LocalEvaluator` on several workloads, on kernels of scripts and files, and on bad ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from handmade import KERNEL, host, quick, start
from tvm import te, tirx

from tirgym.errors import EvaluationError, UsageError
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


def test_several_workloads_and_kernels_of_the_suite(evaluator: LocalEvaluator) -> None:
    uris = ("add?m=17&n=31", "softmax?m=9&n=33", "argmax?m=7&n=50")
    for uri in uris:
        workload = load_workload(f"tirgym://core-v0/{uri}")
        found = evaluator.check(TensorIRProgram.start(workload, host()))
        assert found.status is Status.PASSED, found.message


def test_more_workloads_than_a_worker_keeps(evaluator: LocalEvaluator) -> None:
    workloads = [
        load_workload(f"tirgym://core-v0/add?m={m}&n=8&dtype=float32") for m in range(3, 12)
    ]
    for workload in (*workloads, workloads[0]):
        program = TensorIRProgram.start(workload, host())
        assert evaluator.check(program, Level.TRAINING).status is Status.PASSED


def test_a_kernel_without_reference_is_refused(evaluator: LocalEvaluator) -> None:
    workload = Workload.of(replace(KERNEL, reference=None))
    with pytest.raises(UsageError, match="reference"):
        evaluator.evaluate(TensorIRProgram.start(workload, host()))


def test_a_reference_that_disagrees_with_the_build_is_named(evaluator: LocalEvaluator) -> None:
    workload = Workload.of(replace(KERNEL, name="at_odds", reference=lambda a: a * 2.0))
    with pytest.raises(EvaluationError, match="fails its own gate: normal: B"):
        evaluator.evaluate(TensorIRProgram.start(workload, host()))
    assert evaluator.check(start(), Level.TRAINING).status is Status.PASSED


def test_verdicts_of_a_local_kernel_end_when_its_reference_is_edited(tmp_path: Path) -> None:
    def other(a: Any) -> Any:
        return a + a + 1.0

    edited_kernel = Workload.of(replace(KERNEL, reference=other))
    with quick(tmp_path / "store") as evaluator:
        assert evaluator.evaluate(start()).passed
        found = evaluator.evaluate(TensorIRProgram.start(edited_kernel, host()))
        assert found.measurement is not None
        assert not found.measurement.reused


def test_speedups_of_a_local_kernel_end_when_its_build_is_edited(tmp_path: Path) -> None:
    """They are relative to the unscheduled program, which is another one then."""

    def staged(shape: Any) -> Any:
        a = te.placeholder((shape["m"], shape["n"]), name="A")
        b = te.compute(a.shape, lambda i, j: a[i, j] * tirx.const(2.0, "float32"), name="T")
        c = te.compute(a.shape, lambda i, j: b[i, j] + tirx.const(1, "float32"), name="B")
        return te.create_prim_func([a, c])

    slow = TensorIRProgram.start(Workload.of(replace(KERNEL, build=staged)), host())
    with quick(tmp_path / "store") as evaluator:
        inlined = evaluator.evaluate(slow.apply(parse_transform("ComputeInline(block=0)")))
        found = evaluator.evaluate(start())
        assert inlined.code_key == found.code_key
        assert found.measurement is not None
        assert not found.measurement.reused
        assert found.speedup == 1.0


SCRIPT = """
    import numpy as np
    from tvm import te
    from tirgym.harness.backend import backend
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.kernels_suite.kernel import Kernel, Workload

    FACTOR = 3.0

    def build(shape):
        a = te.placeholder((shape["n"],), name="a")
        return te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] * 3.0, name="b")])

    def triple(a):
        return scaled(a)

    def scaled(a):
        return a * FACTOR

    KERNEL = Kernel("triple", "mine", build, triple, ({"n": 4000},))

    if __name__ == "__main__":
        target = backend("llvm").target()
        with LocalEvaluator(target, store=":memory:") as evaluator:
            start = backend("llvm").start(Workload.of(KERNEL), target)
            print(evaluator.check(start).status)
"""


def test_kernels_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["passed"], done.stderr


def test_kernels_of_a_file_loaded_by_path(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    script = tmp_path / "my own kernels.py"
    script.write_text(textwrap.dedent(SCRIPT))
    workload = load_workload(f"{script}:KERNEL")
    assert evaluator.check(TensorIRProgram.start(workload, host())).status is Status.PASSED


TVMSCRIPT = """
    from tvm.script import tirx as T
    from tirgym.kernels_suite.kernel import Kernel

    def build(shape):
        n = shape["n"]

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
            for i in range(n):
                with T.sblock("B"):
                    v = T.axis.spatial(n, i)
                    B[v] = A[v] * T.float32(2)

        return main

    KERNEL = Kernel("twice", "mine", build, lambda a: a * 2, ({"n": 4000},))
"""


def test_kernels_in_tvmscript(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    """Their build reads its source code, which workers do not have."""
    script = tmp_path / "scripted.py"
    script.write_text(textwrap.dedent(TVMSCRIPT))
    workload = load_workload(f"{script}:KERNEL")
    assert evaluator.check(TensorIRProgram.start(workload, host())).status is Status.PASSED
