"""Backend `opencl`: TVM's OpenCL C, built and run through pyopencl, gated and timed by events."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import gymnasium
import pytest
from device_programs import (
    MIRRORED,
    evaluators,
    needs_opencl,
    opencl_target,
    shared_matmul,
    with_statement,
)

from tirgym.errors import BackendUnavailableError, InvalidValueError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.desk import Limits
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.opencl import devices
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def measured() -> Iterator[LocalEvaluator]:
    yield from evaluators()


def test_without_pyopencl_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    reason = devices.why_no_device()
    assert reason == "backend opencl needs pyopencl; pip install 'tirgym[opencl]'"


def test_without_a_device_one_line_says_what_brings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    cases: tuple[dict[str, Any], ...] = ({"devices": []}, {"problem": "PLATFORM_NOT_FOUND_KHR"})
    for found in cases:
        monkeypatch.setattr(devices, "_probed", lambda found=found: found)
        reason = devices.why_no_device()
        assert reason is not None
        assert "pip install 'tirgym[opencl]'" in reason
        assert "\n" not in reason
        devices.devices.cache_clear()
        with pytest.raises(BackendUnavailableError):
            devices.devices()
        devices.devices.cache_clear()


@pytest.mark.parametrize(
    ("platform", "name", "version", "arch"),
    [
        (
            "Portable Computing Language",
            "pthread-X",
            "HSTR: pthread-x86_64-gnu-znver3",
            "pocl-znver3",
        ),
        ("NVIDIA CUDA", "NVIDIA A100-SXM4-80GB", "OpenCL 3.0 CUDA", "nvidia-a100-sxm4-80gb"),
    ],
)
def test_architectures_are_named_after_devices(
    platform: str, name: str, version: str, arch: str
) -> None:
    assert devices.arch_of(platform, name, version) == arch


@needs_opencl
def test_targets_are_the_devices_of_this_machine() -> None:
    target = opencl_target()
    assert target.backend == "opencl"
    limits, facts = device_limits(target), backend("opencl").describe(target)
    assert limits is not None
    assert facts["max_threads"] == limits.max_threads > 1
    assert "pyopencl" in facts["versions"]
    with pytest.raises(InvalidValueError, match=target.arch):
        backend("opencl").target("no-such-device")
    with pytest.raises(InvalidValueError, match="num_threads"):
        backend("opencl").target(num_threads=100_000)


@needs_opencl
def test_a_schedule_with_blocks_threads_and_barriers_is_measured(measured: LocalEvaluator) -> None:
    """Tiles in shared memory: gated on the device, timed by its own clock against the completed
    unscheduled program."""
    found = measured.evaluate(shared_matmul(opencl_target()), Level.FULL)
    assert found.status is Status.PASSED, found.message
    assert found.measurement is not None
    assert found.measurement.timer == "opencl_events"
    assert found.measurement.speedup > 0.0


@needs_opencl
def test_every_statement_becomes_a_kernel_and_buffers_lie_between(measured: LocalEvaluator) -> None:
    kernel = load_kernel("softmax")
    program = backend("opencl").start(Workload.of(kernel, {"m": 12, "n": 40}), opencl_target())
    found = measured.evaluate(program, Level.FULL)
    assert found.status is Status.PASSED, found.message
    assert found.speedup == 1.0
    text = backend("opencl").ir_level(program, "opencl")
    assert text.count("// launch ") == 4
    assert "// workspace of" in text


@needs_opencl
def test_levels() -> None:
    compiler, program = backend("opencl"), shared_matmul(opencl_target())
    assert "T.thread_binding" in compiler.ir_level(program, "tir")
    assert "T.launch_thread" in compiler.ir_level(program, "lowered")
    source = compiler.ir_level(program, "opencl")
    for word in ("__kernel", "__local", "barrier(", "get_local_id", "block (16, 16, 1)"):
        assert word in source


@needs_opencl
def test_a_kernel_that_hangs_costs_its_worker_alone() -> None:
    limits = Limits(gate_s=5.0, slowdown=1.0)
    start = backend("opencl").start(MIRRORED, opencl_target())
    endless = "for again in range(2000000000): C[0, 0] = C[0, 0] * T.float32(0.5) + T.float32(1)"
    for made in evaluators(limits=limits, static_checks=False):
        found = made.check(with_statement(cast(TensorIRProgram, start), endless))
        assert found.status is Status.TIMEOUT, found.message
        assert made.check(start).status is Status.PASSED


@needs_opencl
def test_search_and_verification_from_the_command_line(cli: Cli, tmp_path: Any) -> None:
    trace = tmp_path / "trace.json"
    options = ("--backend", "opencl", "--space", "primitive", "--trials", "3", "--shape", "tiny")
    found = cli("optimize", "matmul", "--agent", "random", *options, "--out", str(trace), "--json")
    assert found.code == 0, found.err
    record = found.json()
    assert record["backend"] == "opencl"
    assert record["status"] == "passed"
    assert json.loads(trace.read_text())["target"]["backend"] == "opencl"
    verified = cli("verify", str(trace), "--json")
    assert verified.json()["passed"], verified.err


@needs_opencl
def test_the_environment_pays_what_the_device_measures(measured: LocalEvaluator) -> None:
    env = gymnasium.make(
        "tirgym/Schedule-v0",
        kernel="matmul",
        shape="tiny",
        backend="opencl",
        max_steps=3,
        evaluator=measured,
    )
    _, info = env.reset(seed=0)
    over = False
    while not over:
        action = env.action_space.sample(info["action_mask"])
        _, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        assert math.isfinite(float(reward))


@needs_opencl
def test_programs_are_for_devices_that_are_here() -> None:
    with pytest.raises(TargetMismatchError, match="no OpenCL device another-device"):
        device_limits(Target("opencl", "another-device"))
