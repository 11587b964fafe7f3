"""TVM's programs, prepared, then checked as on a GPU machine: CUDA C on the stand-in, in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_stand_in import needs_compiler
from numpy_device import QuickPool

from tirgym.benchmarks.device_check import prepare
from tirgym.benchmarks.device_check.aims import aims
from tirgym.benchmarks.device_check.plan import Plan
from tirgym.benchmarks.device_check.prepared_set import SHIPPED, PreparedSet
from tirgym.benchmarks.device_check.record import Record
from tirgym.benchmarks.device_check.report import report
from tirgym.benchmarks.device_check.run import run_check
from tirgym.errors import TargetMismatchError
from tirgym.harness.cuda.prepared import MAX_BYTES, PreparedKernel, PreparedProgram
from tirgym.harness.triton.device.process import DeviceProcess
from tirgym.kernels_suite.kernel import Shape

pytest.importorskip("torch", reason="memory and events are torch's")
pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

SMALL: dict[str, tuple[Shape, Shape]] = {
    "softmax": ({"m": 4, "n": 96}, {"m": 4, "n": 32}),
    "transpose": ({"m": 64, "n": 96}, {"m": 32, "n": 32}),
}


def prepared_in(folder: Path, kernels: str, *more: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "SIZES", SMALL)
        patch.setattr(prepare, "LEAST_THREADS", 1)
        arguments = ["--out", str(folder), "--kernels", kernels, "--random", "1", "--source-only"]
        assert prepare.main([*arguments, *more]) == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepared_in(folder, "softmax,transpose")
    return folder


def edited(program: PreparedProgram, name: str, old: str, new: str) -> PreparedProgram:
    """`program` with another text in the place of the last `old` of its source."""
    head, found, tail = program.code.source.rpartition(old)
    assert found
    code = replace(program.code, source=f"{head}{new}{tail}")
    return replace(program, name=name, code=code)


def with_trouble(kernel: PreparedKernel) -> PreparedKernel:
    """Besides what is there: a wrong program, one that does not compile, one that writes past the end and
    one that hangs."""
    plain = kernel.programs[0]
    return replace(
        kernel,
        programs=(
            *kernel.programs,
            edited(plain, "wrong", "out_ptr[", "out_ptr[0 * "),
            edited(plain, "broken", "out_ptr[", "no_ptr["),
            edited(plain, "hung", "out_ptr[", "for (volatile int on = 1; on;) {} out_ptr["),
        ),
    )


def checked(folder: Path, out: Path, names: Sequence[str]) -> Record:
    found = PreparedSet.of(folder)
    plan = Plan(
        kernels=(),
        searched=(),
        ranked=(),
        prepared=tuple(names),
        prepared_key=found.key,
        copy_bytes=1 << 22,
        trial_timeout_s=8.0,
    )
    return run_check(
        plan,
        out,
        secret=b"s" * 16,
        pool=QuickPool(),  # type: ignore[arg-type]
        device=DeviceProcess("cuda_stand_in:open_device", secret=b"s" * 16),
        prepared=found.files,
    )


def test_what_is_prepared_has_a_trace_a_price_and_launches(files: Path) -> None:
    made = PreparedKernel.load(files / "softmax.prepared.json")
    names = [program.name for program in made.programs]
    assert names[:2] == ["unscheduled", "dlight GeneralReduction"]
    assert names[2].startswith("random")
    assert made.programs[2].transforms
    assert "__syncthreads" in made.programs[1].code.source
    assert all(p.predicted_us and not p.cubin for p in made.programs)
    assert made.checked_at == "tirgym://core-v0/softmax?m=4&n=32&dtype=float32"
    assert [t.name for t in made.problem.tensors] == ["x", "out"]


def test_equal_seeds_give_equal_bytes(files: Path, tmp_path: Path) -> None:
    prepared_in(tmp_path, "transpose")
    name = "transpose.prepared.json"
    assert (tmp_path / name).read_bytes() == (files / name).read_bytes()


def test_bad_usage_of_prepare_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main(["--out", str(tmp_path), "--kernels", "sofmax"]) == 2
    assert prepare.main(["--out", str(tmp_path), "--arch", "sm_10"]) == 2
    said = capsys.readouterr()
    first, second = (line for line in said.err.splitlines() if line.startswith("prepare: unknown"))
    assert "softmax" in first
    assert "sm_90" in second


@needs_compiler
def test_prepared_programs_are_gated_timed_and_their_trouble_stays_theirs(
    files: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "files", tmp_path / "out"
    with_trouble(PreparedKernel.load(files / "softmax.prepared.json")).save(folder)
    cut = folder / "transpose.prepared.json"
    cut.write_bytes((files / cut.name).read_bytes()[:-100])
    record = checked(folder, out, ("softmax", "transpose"))

    row = record.rows["prepared", "softmax"]
    found = {trial["program"]: trial for trial in row["trials"]}
    statuses = {name: trial["status"] for name, trial in found.items()}
    assert statuses["unscheduled"] == statuses["dlight GeneralReduction"] == "passed", found
    assert statuses["wrong"] == "wrong_result"
    assert (statuses["broken"], statuses["hung"]) == ("compile_error", "timeout")
    assert "no_ptr" in found["broken"]["message"]
    assert found["wrong"]["latency_us"] is None
    assert row["status"] == "passed"
    assert "wrong: wrong_result; broken: compile_error; hung: timeout" in row["message"]
    assert row["best"]["speedup"] > 1.0
    assert len(row["best_verdict"]["regimes"]) == 8
    assert row["best"]["timer"].startswith("cuda_events, L2 flushed")
    assert row["default"]["program"] == "dlight GeneralReduction"
    assert row["vendor"]["us"] == pytest.approx(600.0)
    assert row["vendor"]["deviation"] == ""
    assert row["clock_mhz"] == [1500, 1500]
    assert row["code"].startswith("CUDA C")

    damaged = record.rows["prepared", "transpose"]
    assert damaged["status"] == "damaged"
    assert "transpose.prepared.json" in damaged["message"]
    assert record.summary["processes_lost"] == 1
    text = report(record)
    assert "TVM's programs, made elsewhere" in text
    (aim,) = [aim for aim in aims(record.rows) if "prepared program" in aim.aim]
    assert aim.verdict == "missed"

    kept = json.loads(record.path.read_text())
    again = checked(folder, out, ("softmax", "transpose"))
    assert again.rows["prepared", "softmax"] == kept["rows"][1]
    cut.write_bytes(b"")
    with pytest.raises(TargetMismatchError, match="another plan"):
        checked(folder, out, ("softmax", "transpose"))


_WITHOUT_TVM = """
import sys
for name in ("tvm", "tvm_ffi", "gymnasium", "pydantic"):
    sys.modules[name] = None
import numpy as np
from tirgym.benchmarks.device_check import prepared_rows
from tirgym.benchmarks.device_check.prepared_set import PreparedSet
from tirgym.harness.cuda.prepared import PreparedKernel
from tirgym.kernels_suite.kernel import Regime
from tirgym.kernels_suite.problem import (
    bytes_of, flops_of, make_inputs, reference_of, scale_of, tensors, terms_of
)
for name, path in PreparedSet.of().files.items():
    workload = PreparedKernel.load(path).problem.stated()
    assert min(bytes_of(workload), terms_of(workload)) > 0 and flops_of(workload) >= 0
    if name in ("softmax", "attention"):
        inputs = make_inputs(workload, np.random.default_rng(0), Regime.TIES)
        (found,) = reference_of(workload, inputs)
        assert found.shape == tensors(workload)[1][0].shape
        scale_of(workload, inputs)
"""


def test_what_ships_is_judged_without_tvm() -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TVM],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_ships_is_whole_small_and_fits_its_kernels() -> None:
    found = PreparedSet.of()
    total = 0
    for name, path in found.files.items():
        made = PreparedKernel.load(path)
        workload = made.problem.stated()
        assert workload.kernel.name == name
        assert made.programs[0].name == "unscheduled"
        assert len(made.programs) >= 3
        total += path.stat().st_size
    assert {"matmul", "softmax", "layernorm", "attention"} <= set(found.files)
    assert total < 1 << 20 < MAX_BYTES
    assert SHIPPED.name == "prepared"
