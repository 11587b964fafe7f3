"""`Occupancy`: how many blocks of a kernel fit on one compute unit, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.harness.triton.gpus import Gpu

__all__ = ["Occupancy", "amd_occupancy", "nvidia_occupancy"]

_RESERVED_BYTES = 1024
"""shared memory that the system keeps of each block (compute capability 8.0 and later)"""
_SHARED_STEP = 128
_REGISTER_STEP = 256
"""registers are given out in this many, a warp at a time"""
_PARTITIONS = 4
"""parts of the register file, one for each scheduler"""
_MAX_REGISTERS = 255


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks of one compute unit."""

    blocks: int
    """0 where the kernel cannot be launched"""
    warps: int
    fraction: float
    """resident warps of those that the unit could hold"""
    limited_by: str
    """"warps", "registers", "shared memory", "tensor memory" or "blocks" """


def nvidia_occupancy(
    gpu: Gpu, registers: int, shared_bytes: int, num_warps: int, tmem_columns: int = 0
) -> Occupancy:
    """By the rules of `cuda_occupancy.h` for compute capability 8.0 to 10.0, with the largest carve-out
    of shared memory; it does not know tensor memory, which a block waits for until others give it
    back. `registers` is of one thread, `shared_bytes` and `tmem_columns` of one block."""
    if shared_bytes > gpu.shared_block_bytes or registers > _MAX_REGISTERS:
        return Occupancy(0, 0, 0.0, "registers" if registers > _MAX_REGISTERS else "shared memory")
    of_warp = _up(max(1, registers) * gpu.warp_size, _REGISTER_STEP)
    warps = (gpu.registers // _PARTITIONS // of_warp) * _PARTITIONS
    return _least(
        gpu,
        num_warps,
        {
            "warps": gpu.max_warps // num_warps,
            "registers": warps // num_warps,
            "shared memory": gpu.shared_bytes // _up(shared_bytes + _RESERVED_BYTES, _SHARED_STEP),
            **({"tensor memory": gpu.tmem_columns // tmem_columns} if tmem_columns else {}),
            "blocks": gpu.max_blocks,
        },
    )


def amd_occupancy(gpu: Gpu, waves: int, shared_bytes: int, num_warps: int) -> Occupancy:
    """`waves` is the compiler's own figure: wavefronts of one SIMD that its registers leave room for."""
    return _least(
        gpu,
        num_warps,
        {
            "warps": gpu.max_warps // num_warps,
            "registers": waves * gpu.issue_per_unit // num_warps,
            "shared memory": gpu.shared_bytes // max(1, shared_bytes),
            "blocks": gpu.max_blocks,
        },
    )


def _least(gpu: Gpu, num_warps: int, limits: dict[str, int]) -> Occupancy:
    name = min(limits, key=lambda limit: limits[limit])
    blocks = limits[name]
    return Occupancy(blocks, blocks * num_warps, blocks * num_warps / gpu.max_warps, name)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
