"""Static profile: exact counts where they are known, instruction mix of real code, the roofline."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tirgym.errors import EvaluationError, InvalidValueError
from tirgym.harness import calibration
from tirgym.harness.calibration import Peaks, estimated_peaks, measure_peaks, peaks
from tirgym.harness.instruction_mix import instruction_mix
from tirgym.harness.static_profile import roofline, static_profile
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

TARGET = Target("llvm", "haswell", 1)
PEAKS = Peaks(100.0, 400.0, 200.0, 50.0, 10.0, "measured")


def program(name: str, *steps: str, **shape: int) -> TensorIRProgram:
    made = TensorIRProgram.start(Workload.of(load_kernel(name), shape or None), TARGET)
    for step in steps:
        made = made.apply(parse_transform(step))
    return made


TILED = (
    "Split(loop=1, factor=8)",
    "Reorder(loop=2)",
    "Vectorize(loop=3)",
    "DecomposeReduction(loop=2)",
)
"""i j0 k j1 with j1 on 8 lanes"""


def test_counts_of_matmul_are_exact() -> None:
    profile = static_profile(program("matmul", m=16, n=24, k=10), assembly=False)
    assert profile.flops == profile.useful_flops == 2 * 16 * 24 * 10
    assert profile.compulsory_bytes == 4 * (16 * 10 + 10 * 24 + 16 * 24)
    assert profile.intermediate_bytes == 0
    assert profile.arithmetic_intensity == profile.flops / profile.compulsory_bytes
    assert (profile.loops, profile.blocks, profile.vector_lanes) == (3, 1, 0)
    assert profile.l2_bytes == profile.dram_bytes == 0
    assert profile.mix is None


def test_a_schedule_shows_in_the_profile() -> None:
    profile = static_profile(program("matmul", *TILED, m=64, n=96, k=200), assembly=False)
    assert (profile.vector_lanes, profile.vector_bits) == (8, 256)
    assert profile.vectorized_share == 1.0
    assert profile.register_vectors >= 1
    assert profile.blocks == 2


def test_traffic_appears_once_the_data_outgrows_the_first_cache() -> None:
    profile = static_profile(program("add", m=500, n=600), assembly=False)
    assert profile.l2_bytes >= 0.9 * profile.compulsory_bytes
    assert profile.l1_bytes >= profile.compulsory_bytes


def test_the_mix_tells_scalar_from_vector_code() -> None:
    naive = static_profile(program("row_sum", m=50, n=601)).mix
    vector = static_profile(program("matmul", *TILED, m=16, n=24, k=10)).mix
    assert naive is not None
    assert vector is not None
    assert vector.vector_float > 0
    assert vector.widest_bits == 256
    assert vector.fused > 0
    assert vector.vector_fraction > naive.vector_fraction
    assert 0 < vector.total < 2000


ASSEMBLY = """
main_compute_:
\tsubq\t$16, %rsp
\tvmovups\t(%rdi,%rax,4), %ymm0
\tvmovups\t32(%rsp), %ymm1
\tvfmadd231ps\t(%rsi), %ymm0, %ymm1
\tvmulss\t%xmm0, %xmm1, %xmm2
\tvdivps\t%zmm0, %zmm1, %zmm2
\tvmovups\t%ymm1, 32(%rsp)
\tvmovups\t%ymm1, (%rdx)
\tvgatherqps\t(%rsi,%zmm0,4), %ymm1 {%k1}
\tcallq\texpf@PLT
\tjne\t.LBB0_1
__tvm_ffi_main:
\tvaddss\t%xmm0, %xmm1, %xmm2
"""


def test_every_kind_of_instruction_is_counted_once() -> None:
    mix = instruction_mix(ASSEMBLY)
    assert mix is not None
    assert dataclasses.asdict(mix) == {
        "total": 11,
        "vector_float": 2,
        "scalar_float": 1,
        "fused": 1,
        "divisions": 1,
        "loads": 3,
        "stores": 2,
        "gathers": 1,
        "spill_loads": 1,
        "spill_stores": 1,
        "calls": 1,
        "branches": 1,
        "widest_bits": 512,
    }


def test_assembly_of_another_architecture_is_not_guessed() -> None:
    assert instruction_mix("main_compute_:\n\tfmla\tv0.4s, v1.4s, v2.4s\n") is None


def test_roofline_position() -> None:
    made = program("matmul", m=250, n=264, k=240)
    profile = static_profile(made, assembly=False)
    position = roofline(made, profile, 1_000.0, PEAKS)
    assert position.bound == "compute"
    assert position.attainable_gflops == pytest.approx(100.0)
    assert position.achieved_gflops == pytest.approx(profile.flops / 1e6)
    assert position.fraction == pytest.approx(position.achieved_gflops / 100.0)
    copy = program("transpose", m=300, n=200)
    moved = roofline(copy, static_profile(copy, assembly=False), 100.0, PEAKS)
    assert moved.bound == "memory"
    assert moved.level in ("L2", "L3")
    assert 0 < moved.fraction < 1
    with pytest.raises(InvalidValueError, match="positive"):
        roofline(made, profile, 0.0, PEAKS)


def test_peaks_are_measured() -> None:
    measured = measure_peaks(Target("llvm", "x86-64", 1), scale=0.02)
    assert measured.source == "measured"
    assert 0.1 < measured.gflops < 1e4
    assert measured.l1_gbs > measured.dram_gbs > 0


def test_peaks_are_kept_and_damaged_files_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))
    calls = []

    def fake(target: Target) -> Peaks:
        calls.append(target)
        return PEAKS

    monkeypatch.setattr(calibration, "_measure_elsewhere", fake)
    assert peaks(TARGET) == peaks(TARGET) == PEAKS
    assert len(calls) == 1
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["gflops"] == 100.0
    path.write_text("{")
    assert peaks(TARGET) == PEAKS
    assert len(calls) == 2


def test_a_failed_measurement_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EvaluationError, match="could not be measured"):
        peaks(TARGET)


def test_estimates_grow_with_threads() -> None:
    one, two = (estimated_peaks(Target("llvm", "haswell", n)) for n in (1, 2))
    assert one.source == "estimated"
    assert two.gflops >= one.gflops
