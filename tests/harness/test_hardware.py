"""Hardware facts: stable, from features, and a floor that honest kernels never reach."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tirgym.errors import TargetMismatchError
from tirgym.harness import hardware
from tirgym.harness.backend import backend
from tirgym.harness.hardware import (
    auto_vector_bits,
    compiler_versions,
    cpu_facts,
    fingerprint,
    host_cpu,
    missing_features,
    roofline_floor_us,
    vector_unit,
)
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.target import Target
from tirgym.kernels_suite.registry import load_workload

HERE = Target("llvm", "skylake-avx512", 1)


def test_fingerprint_is_equal_across_processes_and_hash_seeds() -> None:
    code = "from tirgym.harness.hardware import fingerprint; print(fingerprint())"
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == fingerprint()


def test_fingerprint_depends_on_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    fingerprint.cache_clear()
    monkeypatch.setattr("os.cpu_count", lambda: 4096)
    try:
        assert fingerprint() != before
    finally:
        fingerprint.cache_clear()


def test_importing_hardware_imports_no_tvm() -> None:
    code = "import sys, tirgym.harness.hardware as h; h.fingerprint(); print('tvm' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("arch", "bits", "fma"),
    [
        ("skylake-avx512", 512, True),
        ("znver4", 512, True),
        ("haswell", 256, True),
        ("sandybridge", 256, False),
        ("core2", 128, False),
    ],
)
def test_vector_width_follows_the_features(arch: str, bits: int, fma: bool) -> None:
    facts = cpu_facts(Target("llvm", arch))
    assert (facts.vector_bits, facts.fma) == (bits, fma)
    assert facts.vector_bytes * 8 == bits


def test_caches_grow_outwards() -> None:
    facts = cpu_facts(HERE)
    assert 0 < facts.l1_bytes <= facts.l2_bytes <= facts.l3_bytes
    assert facts.caches_from in ("sysfs", "default")


@pytest.mark.parametrize(("text", "size"), [("48K", 49152), ("2M", 2 << 20), ("64", 64), ("x", 0)])
def test_cache_sizes_parse(text: str, size: int) -> None:
    assert hardware._parse_size(text) == size


def test_versions_name_the_compilers() -> None:
    versions = compiler_versions()
    assert versions["apache-tvm"].startswith("0.27")
    assert int(versions["llvm"]) > 10
    assert list(versions) == sorted(versions)


def test_floor_grows_with_work_and_falls_with_threads() -> None:
    two = Target("llvm", HERE.arch, 2)
    assert roofline_floor_us(2e9, 0, HERE) == pytest.approx(2 * roofline_floor_us(1e9, 0, HERE))
    assert roofline_floor_us(0, 2e9, HERE) > roofline_floor_us(0, 1e9, HERE) > 0
    assert roofline_floor_us(0, 0, HERE) == 0
    if cpu_facts(two).cores > 1:
        assert roofline_floor_us(1e9, 1e6, two) < roofline_floor_us(1e9, 1e6, HERE)


def test_floor_is_below_the_best_of_numpy() -> None:
    import timeit

    a, b = (np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32) for _ in "ab")
    best = min(timeit.repeat(lambda: a @ b, number=3, repeat=9)) / 3 * 1e6
    cores = Target("llvm", HERE.arch, cpu_facts(HERE).cores)
    assert 0 < roofline_floor_us(2 * 256**3, 3 * a.nbytes, cores) < best
    small = np.ones(2048, np.float32)
    target = np.empty_like(small)
    best = min(timeit.repeat(lambda: np.copyto(target, small), number=1000, repeat=9)) * 1e3
    assert 0 < roofline_floor_us(0, 2 * small.nbytes, HERE) < best


@pytest.mark.parametrize(
    ("arch", "explicit", "auto"),
    [
        ("znver5", 512, 512),
        ("icelake-server", 512, 256),
        ("haswell", 256, 256),
        ("x86-64", 128, 128),
    ],
)
def test_vectors_of_the_schedule_and_of_llvm(arch: str, explicit: int, auto: int) -> None:
    """LLVM's vectorizers keep to 256 bits on most AVX-512 cores of Intel."""
    assert vector_unit(arch)[0] == explicit
    assert auto_vector_bits(arch) == auto


def cpu_with(flags: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose CPU calls itself znver4 and has these flags."""
    import tvm

    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(hardware, "CPUINFO", file)
    monkeypatch.setattr(tvm.target.codegen, "llvm_get_system_cpu", lambda: "znver4")


@pytest.fixture
def fresh_facts() -> Iterator[None]:
    for cached in (missing_features, host_cpu, fingerprint):
        cached.cache_clear()
    yield
    for cached in (missing_features, host_cpu, fingerprint):
        cached.cache_clear()


V2 = "fpu cx16 lahf_lm popcnt sse sse2 pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
ZEN3 = f"{V3} adx aes pclmulqdq sha_ni sse4a vaes vpclmulqdq"
ZEN4 = (
    f"{ZEN3} gfni avx512f avx512bw avx512cd avx512dq avx512ifma avx512vbmi avx512_vbmi2 avx512vl "
    "avx512_vnni avx512_bitalg avx512_bf16 avx512_vpopcntdq"
)


@pytest.mark.usefixtures("fresh_facts")
@pytest.mark.parametrize(
    ("flags", "arch"),
    [(ZEN4, "znver4"), (ZEN3, "znver3"), (V3, "x86-64-v3"), (V2, "x86-64-v2"), ("", "znver4")],
)
def test_a_cpu_that_hides_instructions_gets_code_that_it_can_run(
    flags: str, arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu_with(flags, monkeypatch, tmp_path)
    assert host_cpu() == arch
    assert backend("llvm").target().arch == arch


@pytest.mark.usefixtures("fresh_facts")
def test_code_that_the_cpu_cannot_run_is_refused_before_it_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu_with(ZEN3, monkeypatch, tmp_path)
    workload = load_workload("tirgym://core-v0/add?m=8&n=8&dtype=float32")
    target = Target("llvm", "znver4")
    with (
        LocalEvaluator(target, ":memory:") as evaluator,
        pytest.raises(TargetMismatchError, match=r"this CPU has no avx512bf16, .*it runs znver3"),
    ):
        evaluator.baseline(workload)


def test_this_machine_runs_what_it_compiles_for() -> None:
    assert missing_features(host_cpu()) == ()
