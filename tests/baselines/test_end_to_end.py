"""One small run through the real compiler, worker, gate and timer."""

from __future__ import annotations

import os
from pathlib import Path

from tirgym.baselines.optimize import optimize
from tirgym.harness.replay import replay
from tirgym.harness.session import CompileHarness
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

SMALL = {"width": 4, "samples": 6, "depth": 4, "batch": 3}


def test_a_small_matmul_gets_a_verified_speedup_that_replays(tmp_path: Path) -> None:
    workload = Workload.of(load_kernel("matmul"), {"m": 64, "n": 64, "k": 64})
    out = tmp_path / "trace.json"
    result = optimize(
        workload, "beam", 6, agent_options=SMALL, store=tmp_path / "store.sqlite", out=out
    )
    assert result.status == "passed"
    assert 1 <= result.trials <= 6
    assert (result.speedup or 0.0) >= 1.0
    trace = Trace.load(out)
    assert trace == result.trace
    assert replay(trace).ir_key == result.program.ir_key
    assert trace.result is not None
    assert trace.result.status == "passed"
    assert trace.vocabulary
    assert trace.versions


def test_the_harness_measures_and_goes_back_through_the_real_worker(tmp_path: Path) -> None:
    workload = Workload.of(load_kernel("matmul"), load_kernel("matmul").tiny_shape)
    with CompileHarness(store=tmp_path / "store.sqlite") as harness:
        harness.load_ir(workload)
        before = harness.snapshot()
        harness.apply_transform("Split(loop=1, factor=4)")
        evaluation = harness.compile_and_benchmark()
        assert evaluation.passed
        assert "asm" in harness.backend.levels
        assert "ret" in harness.get_ir_level("asm")
        harness.rollback(before)
        assert harness.program is harness.start
        assert [e.action for e in harness.history] == [
            "load",
            "snapshot",
            "transform",
            "evaluate",
            "rollback",
        ]
    assert os.path.exists(tmp_path / "store.sqlite")
