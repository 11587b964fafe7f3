"""Hardware facts: stable, from features, and a floor that honest kernels never reach."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tirgym.harness import hardware
from tirgym.harness.hardware import (
    auto_vector_bits,
    compiler_versions,
    cpu_facts,
    fingerprint,
    roofline_floor_us,
    vector_unit,
)
from tirgym.harness.target import Target

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
