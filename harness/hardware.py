"""The machine and the target in numbers: fingerprint, caches, vector width, roofline floor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from tirgym.harness.target import Target

__all__ = [
    "POCL",
    "CpuFacts",
    "auto_vector_bits",
    "compiler_versions",
    "cpu_facts",
    "cpu_model",
    "cpu_of",
    "fingerprint",
    "host_cpu",
    "missing_features",
    "roofline_floor_us",
    "runs_on_cpu",
    "vector_unit",
]

CACHE_DIR = Path("/sys/devices/system/cpu/cpu0/cache")
CPUINFO = Path("/proc/cpuinfo")
DEFAULT_CACHES = (32 << 10, 1 << 20, 8 << 20)
"""L1 data, L2 and L3 bytes where the system does not say; a plain desktop core of the 2020s."""

CEILING_GHZ = 6.5
"""No CPU on the market clocks higher without exotic cooling (Intel Core i9-14900KS: 6.2 GHz for
one core, 2024); with the margins below this is an upper bound for every machine."""
LOADS_AND_STORES_PER_CYCLE = 4
"""Two or three vector loads plus one or two vector stores (Intel Golden Cove, AMD Zen 5: Intel 64
and IA-32 Optimization Reference Manual, section 2.1; Agner Fog, The microarchitecture)."""
FMA_UNITS = {128: 4, 256: 2, 512: 2}
"""By vector bits; four narrow ones as on ARM cores (Apple Firestorm, Neoverse V1)."""
L2_BYTES_PER_CYCLE = 64
"""One cache line a cycle between L1 and L2, for all x86 and ARM server cores of the 2020s."""
FLOPS_SCALE = {
    "float64": 0.5,
    "float32": 1.0,
    "float16": 2.0,
    "bfloat16": 4.0,
    "int8": 8.0,
    "uint8": 8.0,
    "int16": 4.0,
}
"""Arithmetic per cycle against float32, at the fastest vector instruction of the type."""


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """Static facts of one target, as far as they can be known without running anything."""

    vector_bits: int
    fma: bool
    vector_registers: int
    l1_bytes: int
    """data cache of one core"""
    l2_bytes: int
    l3_bytes: int
    """shared by all cores"""
    line_bytes: int
    cores: int
    caches_from: str
    """"sysfs" or "default" (DEFAULT_CACHES)"""

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector register."""
        return self.vector_bits // 8


def _cpuinfo(*fields: str) -> dict[str, str]:
    """The first value of each of `fields` in /proc/cpuinfo; empty elsewhere than on Linux."""
    found: dict[str, str] = {}
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in fields:
                found.setdefault(name.strip(), value.strip())
    return found


def cpu_model() -> str:
    """Name of this machine's CPU."""
    name = _cpuinfo("model name").get("model name")
    return name or platform.processor() or platform.machine()


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None:
        return 0
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)]


@lru_cache(maxsize=1)
def _caches() -> tuple[tuple[int, int, int], str]:
    """Bytes of L1 data, L2 and L3 cache of core 0, and where they come from."""
    found: dict[int, int] = {}
    for entry in sorted(CACHE_DIR.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = _parse_size((entry / "size").read_text())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size:
            found[level] = max(size, found.get(level, 0))
    if 1 not in found:
        return DEFAULT_CACHES, "default"
    l2 = found.get(2, found[1])
    return (found[1], l2, found.get(3, l2)), "sysfs"


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """16 hex digits for this kind of machine; equal after a reboot, for the same model elsewhere too.

    Hashes CPU model, family and stepping, instruction sets, cores, cache sizes, and main memory
    rounded to a power of two. Clock and load do not enter.
    """
    info = _cpuinfo("model name", "cpu family", "model", "stepping", "flags", "Features")
    flags = info.pop("flags", info.pop("Features", ""))
    parts = [
        platform.machine(),
        cpu_model(),
        *(f"{name}={info[name]}" for name in sorted(info)),
        " ".join(sorted(flags.split())),
        str(os.cpu_count()),
        *map(str, _caches()[0]),
        str((psutil.virtual_memory().total >> 30).bit_length()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def compiler_versions(backend: str = "llvm") -> dict[str, str]:
    """Versions of everything that decides the machine code: TVM, its FFI, LLVM; or Triton."""
    if backend == "triton":
        return {"triton": version("triton")}
    import tvm

    versions = {"llvm": str(tvm.target.codegen.llvm_version_major())}
    for package in ("apache-tvm", "apache-tvm-ffi"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return dict(sorted(versions.items()))


@lru_cache(maxsize=64)
def _features(arch: str) -> frozenset[str]:
    """LLVM features of an mcpu."""
    import tvm

    target = tvm.target.Target({"kind": "llvm", "mcpu": arch})
    return frozenset(str(f) for f in tvm.target.codegen.llvm_get_cpu_features(target))


FALLBACK_CPUS = ("znver3", "skylake", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")
"""From the most to the least special, for a CPU of which its machine hides a part."""
_CHECKED = re.compile("adx|amx|avx|bmi|f16c|fma|gfni|lzcnt|movbe|pclmul|popcnt|sha$|v?aes|ss?se")
"""LLVM features that add instructions to generated code."""
_CALLED = {"bmi": "bmi1", "lzcnt": "abm", "pclmul": "pclmulqdq", "sha": "shani", "sse3": "pni"}
"""LLVM feature → flag of /proc/cpuinfo, both without punctuation, where they differ."""


def _plain(name: str) -> str:
    return re.sub("[._-]", "", name)


@lru_cache(maxsize=64)
def missing_features(arch: str) -> tuple[str, ...]:
    """LLVM features of an x86 mcpu that this machine's CPU does not have; it cannot run such code.

    A hypervisor may hide instructions of the CPU whose name it shows. Empty where the system does not
    list what the CPU has (elsewhere than on Linux and x86).
    """
    flags = {_plain(flag) for flag in _cpuinfo("flags").get("flags", "").split()}
    if not flags:
        return ()
    checked = {f: _CALLED.get(_plain(f), _plain(f)) for f in _features(arch) if _CHECKED.match(f)}
    return tuple(sorted(feature for feature, flag in checked.items() if flag not in flags))


@lru_cache(maxsize=1)
def host_cpu() -> str:
    """The LLVM mcpu of this machine: the CPU's name, or the nearest one whose code it can run."""
    import tvm

    name = str(tvm.target.codegen.llvm_get_system_cpu())
    return next((arch for arch in (name, *FALLBACK_CPUS) if not missing_features(arch)), name)


@lru_cache(maxsize=64)
def vector_unit(arch: str) -> tuple[int, bool, int]:
    """Vector bits, FMA and vector registers of an mcpu.

    TVM's own `llvm_get_vector_width` answers 512 for every x86 mcpu, so the features decide.
    """
    features = _features(arch)
    if "avx512f" in features:
        return 512, True, 32
    if "avx" in features:
        return 256, "fma" in features, 16
    if "neon" in features or "asimd" in features or "fp-armv8" in features:
        return 128, True, 32
    return 128, "fma" in features, 16


def auto_vector_bits(arch: str) -> int:
    """Vector bits that LLVM's own vectorizers use for an mcpu: on many AVX-512 cores 256."""
    bits = vector_unit(arch)[0]
    return min(bits, 256) if "prefer-256-bit" in _features(arch) else bits


POCL = "pocl-"
"""How architectures of backend opencl begin that are the CPU; the rest is its LLVM name."""


def runs_on_cpu(target: Target) -> bool:
    """Whether programs of `target` run on this machine's CPU, whose peaks then bound their time."""
    return target.backend == "llvm" or target.arch.startswith(POCL)


def cpu_of(target: Target) -> str:
    """The mcpu whose facts stand for `target`; for a device of its own the plainest one, so that
    predictions are defined there too. They know nothing of that device."""
    return target.arch.removeprefix(POCL) if runs_on_cpu(target) else FALLBACK_CPUS[-1]


@lru_cache(maxsize=64)
def cpu_facts(target: Target) -> CpuFacts:
    """Facts of `target`: vector unit from its mcpu, caches and cores from this machine."""
    bits, fma, registers = vector_unit(cpu_of(target))
    (l1, l2, l3), origin = _caches()
    return CpuFacts(bits, fma, registers, l1, l2, l3, 64, os.cpu_count() or 1, origin)


def roofline_floor_us(flops: float, nbytes: float, target: Target, dtype: str = "float32") -> float:
    """A time in µs below which no correct run of the work can be on any core of this kind.

    `flops` and `nbytes` are what no correct program can avoid: arithmetic left after every legal
    simplification, each input read once, each output written once. The floor follows the roofline
    model (Williams, Waterman, Patterson, 2009) with ceilings from specifications at 6.5 GHz, never
    measured ones, so that a calibration on a busy machine cannot make an honest kernel SUSPECT:
    two full-width FMA units, four vector accesses a cycle for what fits L1, one cache line a
    cycle and core beyond it. Arithmetic counts half, since compilers may find simplifications.
    """
    facts = cpu_facts(target)
    threads = max(1, min(target.num_threads, facts.cores))
    per_us = CEILING_GHZ * 1e3 * threads
    lanes = facts.vector_bits / 32
    peak = per_us * FMA_UNITS[facts.vector_bits] * 2 * lanes * FLOPS_SCALE.get(dtype, 8.0)
    near = min(nbytes, float(facts.l1_bytes * threads))
    far = nbytes - near
    memory = near / (per_us * LOADS_AND_STORES_PER_CYCLE * facts.vector_bytes)
    memory += far / (per_us * L2_BYTES_PER_CYCLE)
    return max(0.5 * flops / peak, memory)
