"""`Gpu`: what is published about the GPUs that Triton kernels are compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tirgym.errors import UnknownNameError

__all__ = ["GPUS", "NVIDIA_LEVELS", "Gpu", "gpu"]

NVIDIA_LEVELS = ("python", "ttir", "ttgir", "llir", "ptx", "sass")
AMD_LEVELS = ("python", "ttir", "ttgir", "llir", "amdgcn")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One product of an architecture: what compiles for it, what limits occupancy, published peaks.

    A compute unit is a streaming multiprocessor (NVIDIA) or a compute unit (AMD); a warp is a
    wavefront there.
    """

    arch: str
    """"sm_90", "gfx942" """
    product: str
    vendor: str
    """"nvidia" or "amd" """
    warp_size: int
    compute_units: int
    clock_ghz: float
    """boost clock, at which the published peaks hold"""
    issue_per_unit: int
    """instructions that one compute unit issues a cycle: its schedulers"""
    issue_cycles: int
    """cycles that one instruction of a warp keeps its scheduler: 4 for 64 lanes on 16-wide units"""
    max_warps: int
    """resident warps of a compute unit"""
    max_blocks: int
    """resident blocks of a compute unit"""
    registers: int
    """32-bit registers of a compute unit"""
    shared_bytes: int
    """shared memory of a compute unit"""
    shared_block_bytes: int
    """shared memory that one block may have"""
    l2_bytes: int
    l2_bytes_per_cycle: int
    """read bandwidth of the whole L2 cache"""
    dram_gbs: float
    fp32_tflops: float
    """vector units, a multiply-add counts two"""
    tf32_tflops: float
    """matrix units, dense; 0 where there is no such format"""
    fp16_tflops: float
    """matrix units with float32 sums, dense"""
    int8_tops: float
    """matrix units, dense"""
    published: str
    """where the figures stand"""
    tmem_columns: int = 0
    """columns of a compute unit's tensor memory; 0 where it has none"""

    @property
    def levels(self) -> tuple[str, ...]:
        """IR levels, from the source to machine code."""
        return NVIDIA_LEVELS if self.vendor == "nvidia" else AMD_LEVELS

    @property
    def binary(self) -> str:
        """Triton's name of the binary: "cubin" or "hsaco"."""
        return "cubin" if self.vendor == "nvidia" else "hsaco"

    @property
    def capability(self) -> int:
        """NVIDIA compute capability times ten: 90. Raises ValueError for AMD."""
        return int(self.arch.removeprefix("sm_"))

    def triton_target(self) -> Any:
        """Triton's GPUTarget."""
        from triton.backends.compiler import GPUTarget

        if self.vendor == "nvidia":
            return GPUTarget("cuda", self.capability, self.warp_size)
        return GPUTarget("hip", self.arch, self.warp_size)


_KB, _MB = 1024, 1 << 20

A100 = Gpu(
    arch="sm_80", product="A100 SXM 80 GB", vendor="nvidia", warp_size=32,
    compute_units=108, clock_ghz=1.41, issue_per_unit=4, issue_cycles=1,
    max_warps=64, max_blocks=32, registers=65536,
    shared_bytes=164 * _KB, shared_block_bytes=163 * _KB, l2_bytes=40 * _MB,
    l2_bytes_per_cycle=5120,
    dram_gbs=2039.0, fp32_tflops=19.5, tf32_tflops=156.0, fp16_tflops=312.0, int8_tops=624.0,
    published="NVIDIA A100 Tensor Core GPU data sheet (2021); L2: A100 architecture whitepaper; "
    "CUDA C++ Programming Guide, technical specifications per compute capability",
)  # fmt: skip
H100 = Gpu(
    arch="sm_90", product="H100 SXM", vendor="nvidia", warp_size=32,
    compute_units=132, clock_ghz=1.98, issue_per_unit=4, issue_cycles=1,
    max_warps=64, max_blocks=32, registers=65536,
    shared_bytes=228 * _KB, shared_block_bytes=227 * _KB, l2_bytes=50 * _MB,
    l2_bytes_per_cycle=5120,
    dram_gbs=3350.0, fp32_tflops=67.0, tf32_tflops=494.5, fp16_tflops=989.5, int8_tops=1979.0,
    published="NVIDIA H100 Tensor Core GPU data sheet (2023, dense); L2 a cycle: A100's; "
    "CUDA C++ Programming Guide, technical specifications per compute capability",
)  # fmt: skip
B200 = Gpu(
    arch="sm_100", product="B200", vendor="nvidia", warp_size=32,
    compute_units=148, clock_ghz=1.965, issue_per_unit=4, issue_cycles=1,
    max_warps=64, max_blocks=32, registers=65536,
    shared_bytes=228 * _KB, shared_block_bytes=227 * _KB, l2_bytes=126 * _MB,
    l2_bytes_per_cycle=5120,
    dram_gbs=8000.0, fp32_tflops=75.0, tf32_tflops=1125.0, fp16_tflops=2250.0, int8_tops=4500.0,
    tmem_columns=512,
    published="NVIDIA HGX B200 data sheet (2024, dense); L2 a cycle: A100's, not published; "
    "CUDA C++ Programming Guide, technical specifications per compute capability; "
    "tensor memory: PTX ISA, tcgen05",
)  # fmt: skip
MI300X = Gpu(
    arch="gfx942", product="Instinct MI300X", vendor="amd", warp_size=64,
    compute_units=304, clock_ghz=2.1, issue_per_unit=4, issue_cycles=4,
    max_warps=32, max_blocks=32, registers=131072,
    shared_bytes=64 * _KB, shared_block_bytes=64 * _KB, l2_bytes=4 * _MB,
    l2_bytes_per_cycle=16384,
    dram_gbs=5300.0, fp32_tflops=163.4, tf32_tflops=653.7, fp16_tflops=1307.4, int8_tops=2614.9,
    published="AMD Instinct MI300X data sheet (2023); L2: CDNA 3 whitepaper, 2 KB a cycle and die; "
    "AMD Instinct MI300 instruction set architecture guide",
)  # fmt: skip
RX_7900_XTX = Gpu(
    arch="gfx1100", product="Radeon RX 7900 XTX", vendor="amd", warp_size=32,
    compute_units=96, clock_ghz=2.5, issue_per_unit=2, issue_cycles=1,
    max_warps=32, max_blocks=32, registers=98304,
    shared_bytes=64 * _KB, shared_block_bytes=64 * _KB, l2_bytes=6 * _MB,
    l2_bytes_per_cycle=3072,
    dram_gbs=960.0, fp32_tflops=61.4, tf32_tflops=0.0, fp16_tflops=122.8, int8_tops=122.8,
    published="AMD Radeon RX 7900 XTX product page (2022); L2 assumed: 32 bytes a cycle and unit; "
    "RDNA 3 instruction set architecture guide",
)  # fmt: skip

GPUS: Mapping[str, Gpu] = {g.arch: g for g in (A100, H100, B200, MI300X, RX_7900_XTX)}
"""Architecture → the product that its figures are taken from."""


def gpu(arch: str) -> Gpu:
    """The GPU of `arch`; raises UnknownNameError."""
    if arch not in GPUS:
        raise UnknownNameError("arch of backend triton", arch, GPUS)
    return GPUS[arch]
