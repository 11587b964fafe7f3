"""`Resources`: registers, spills and memory of a compiled kernel, read from what the compilers say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tirgym.errors import CompileFailedError
from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.occupancy import Occupancy, amd_occupancy, nvidia_occupancy
from tirgym.harness.triton.request import Compiled

__all__ = ["Resources", "resources_of"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What one thread and one block take."""

    registers: int
    """32-bit vector registers of a thread; AMD: VGPR, accumulation registers among them"""
    accumulation_registers: int
    """AGPR, 0 for NVIDIA"""
    scalar_registers: int
    """SGPR of a wavefront, 0 for NVIDIA"""
    spill_stores: int
    """bytes that a thread spills (NVIDIA), registers (AMD)"""
    spill_loads: int
    stack_bytes: int
    shared_bytes: int
    """of one block"""
    tmem_columns: int
    """of tensor memory that one block takes; 0 where there is none"""
    occupancy: Occupancy


def resources_of(compiled: Compiled, gpu: Gpu) -> Resources:
    """From the log of ptxas -v or the metadata in the AMDGCN text; raises CompileFailedError where
    they lack what is looked for."""
    if gpu.vendor == "nvidia":
        return _nvidia(compiled, gpu)
    return _amd(compiled, gpu)


def _number(pattern: str, text: str, level: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise CompileFailedError(level, f"the compiler's output has no {pattern!r}", text[-2000:])
    return int(found[1])


def _nvidia(compiled: Compiled, gpu: Gpu) -> Resources:
    log = compiled.assembler_log
    registers = _number(r"Used (\d+) registers", log, "cubin")
    shared = compiled.shared_bytes
    return Resources(
        registers=registers,
        accumulation_registers=0,
        scalar_registers=0,
        spill_stores=_number(r"(\d+) bytes spill stores", log, "cubin"),
        spill_loads=_number(r"(\d+) bytes spill loads", log, "cubin"),
        stack_bytes=_number(r"(\d+) bytes stack frame", log, "cubin"),
        shared_bytes=shared,
        tmem_columns=compiled.tmem_columns,
        occupancy=nvidia_occupancy(
            gpu, registers, shared, compiled.num_warps, compiled.tmem_columns
        ),
    )


def _amd(compiled: Compiled, gpu: Gpu) -> Resources:
    text, shared = compiled.texts["amdgcn"], compiled.shared_bytes
    spilled = _number(r"\.vgpr_spill_count:\s*(\d+)", text, "amdgcn")
    waves = _number(r"; Occupancy:\s*(\d+)", text, "amdgcn")
    agpr = re.search(r"\.agpr_count:\s*(\d+)", text)
    return Resources(
        registers=_number(r"\.vgpr_count:\s*(\d+)", text, "amdgcn"),
        accumulation_registers=int(agpr[1]) if agpr else 0,
        scalar_registers=_number(r"\.sgpr_count:\s*(\d+)", text, "amdgcn"),
        spill_stores=spilled,
        spill_loads=spilled,
        stack_bytes=_number(r"\.private_segment_fixed_size:\s*(\d+)", text, "amdgcn"),
        shared_bytes=shared,
        tmem_columns=0,
        occupancy=amd_occupancy(gpu, waves, shared, compiled.num_warps),
    )
