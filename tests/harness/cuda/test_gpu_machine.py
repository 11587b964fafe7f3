"""Backend `cuda` from the command line and in worker processes, on a machine whose GPU is a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cuda_stand_in import needs_compiler
from gpu_machine import python_on_gpu, tirgym_on_gpu

pytestmark = needs_compiler

_TROUBLE = """
import json
from device_programs import MIRRORED, with_statement
from tirgym.harness.backend import backend
from tirgym.harness.desk import Limits
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.timing import TimingPlan

ENDLESS = "for again in range(2000000000): C[0, 0] = C[0, 0] * T.float32(0.5) + T.float32(1)"
target = backend("cuda").target()
start = backend("cuda").start(MIRRORED, target)
quick = dict.fromkeys(Level, TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0))
limits = Limits(gate_s=5.0, slowdown=1.0)
with LocalEvaluator(target, ":memory:", limits=limits, plans=quick, static_checks=False) as made:
    found = [made.check(with_statement(start, ENDLESS)), made.check(start)]
    print(json.dumps([[e.status.value, e.message] for e in found]))
"""

_RETURNED = """
import json
from tirgym.harness.backend import backend
from tirgym.harness.vendor import measure_vendor
from tirgym.kernels_suite.registry import load_kernel, load_workload

workload = load_workload("layernorm", load_kernel("layernorm").tiny_shape)
found = measure_vendor(workload, backend("cuda").target(), "torch")
print(json.dumps([found.status.value, found.message, found.stats and found.stats.lower_quartile_us]))
"""


def test_a_kernel_that_hangs_costs_its_worker_alone(tmp_path: Path) -> None:
    done = python_on_gpu("-c", _TROUBLE, home=tmp_path)
    assert done.returncode == 0, done.stderr
    (hung, message), right = json.loads(done.stdout)
    assert (hung, right) == ("timeout", ["passed", ""]), message


def test_a_search_and_its_verification_name_timer_and_clock(tmp_path: Path) -> None:
    trace = str(tmp_path / "trace.json")
    options = ("--backend", "cuda", "--agent", "random", "--space", "primitive", "--trials", "3")
    found = tirgym_on_gpu(
        "optimize", "matmul", "-s", "tiny", *options, "--out", trace, home=tmp_path
    )
    assert (found["backend"], found["status"]) == ("cuda", "passed")
    verified = tirgym_on_gpu("verify", trace, home=tmp_path)
    assert verified["passed"]
    measured = verified["verified"]
    assert measured["timer"] == "cuda_events_2_buffers_cold"
    assert (measured["cache"], measured["clock_mhz"]) == ("cold", [1500, 1500])


def test_torch_is_the_vendor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    given = ("baseline", "matmul", "-s", "tiny", "--backend", "cuda")
    rows = tirgym_on_gpu(*given, home=tmp_path)["baselines"]
    vendor = {row["name"]: row for row in rows}["vendor"]
    assert vendor["what"].startswith("torch ")
    assert vendor["status"] == "passed", vendor["message"]
    assert vendor["stats"]["lower_quartile_us"] == pytest.approx(600.0)


def test_what_torch_returns_instead_of_writing_it_in_place(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = python_on_gpu("-c", _RETURNED, home=tmp_path)
    assert done.returncode == 0, done.stderr
    status, message, time_us = json.loads(done.stdout)
    assert status == "passed", message
    assert time_us == pytest.approx(600.0)
