"""`TritonProfile`: everything that is known about a compiled kernel before it ever runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from tirgym.harness.triton.amdgcn import amd_instructions
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.cost import Code, Predicted, matrix_tflops, predicted
from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.memory_facts import GlobalAccess, MemoryFacts, SharedAccess
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import Compiled
from tirgym.harness.triton.resources import Resources, resources_of
from tirgym.harness.triton.sass import HotLoop, hot_loop, instructions_of, mix_of, sass_of
from tirgym.harness.triton.work import Work, work_of
from tirgym.kernels_suite.problem import bytes_of

__all__ = ["GpuRoofline", "TritonProfile", "profile_without_layouts", "triton_profile"]

_MEMORY_FACTS = "tirgym.harness.triton.memory_facts:memory_facts"


@dataclass(frozen=True, slots=True)
class GpuRoofline:
    """The least time that the GPU's published peaks allow."""

    floor_us: float
    compute_us: float
    """arithmetic at its peaks: matrix units by type, and vector units"""
    memory_us: float
    """compulsory bytes at the bandwidth of memory"""
    intensity: float
    """operations for each compulsory byte"""
    bound: str
    """"compute" or "memory" """


@dataclass(frozen=True, slots=True)
class TritonProfile:
    """Static facts of one program; nothing was run."""

    product: str
    programs: int
    num_warps: int
    resources: Resources
    instructions: int
    """of the machine code, each once"""
    mix: Mapping[str, int]
    """opcode → count, most frequent first"""
    hot_loop: HotLoop | None
    """None for kernels without a loop; AMD's machine code has no stall counts"""
    work: Work
    compulsory_bytes: int
    """each input read once and each output written once"""
    roofline: GpuRoofline
    predicted: Predicted
    accesses: tuple[GlobalAccess, ...] = ()
    shared: tuple[SharedAccess, ...] = ()

    @property
    def flops(self) -> int:
        """Operations of matrix and vector units."""
        return sum(self.work.matrix_flops.values()) + self.work.vector_flops


def triton_profile(program: TritonProgram, pool: CompilePool | None = None) -> TritonProfile:
    """The profile of `program`, compiled and examined in processes of their own.

    Raises CompileFailedError with what the compiler says.
    """
    with nullcontext(pool) if pool else CompilePool(1) as processes:
        processes.compile(program.request)
        (facts,) = processes.call_many(_MEMORY_FACTS, [program.request])
    if not isinstance(facts, MemoryFacts):
        raise facts
    plain = profile_without_layouts(program)
    return replace(plain, accesses=facts.accesses, shared=facts.shared)


def profile_without_layouts(program: TritonProgram) -> TritonProfile:
    """The profile without single accesses, compiled in this process or taken from the cache."""
    request, gpu = program.request, program.request.gpu
    compiled = compile_here(request)
    resources = resources_of(compiled, gpu)
    work = work_of(compiled.texts["ttir"], request.launch)
    nbytes = bytes_of(program.workload)
    mix, loop, code = _code(compiled, gpu, work)
    return TritonProfile(
        product=gpu.product,
        programs=request.launch.programs,
        num_warps=compiled.num_warps,
        resources=resources,
        instructions=sum(mix.values()),
        mix=mix,
        hot_loop=loop,
        work=work,
        compulsory_bytes=nbytes,
        roofline=_roofline(gpu, work, nbytes),
        predicted=predicted(gpu, request.launch, resources, work, code, nbytes),
    )


def _code(compiled: Compiled, gpu: Gpu, work: Work) -> tuple[dict[str, int], HotLoop | None, Code]:
    if gpu.vendor == "amd":
        instructions, labels = amd_instructions(compiled.texts["amdgcn"])
    else:
        instructions, labels = instructions_of(sass_of(compiled.binary))
    loop = hot_loop(instructions, labels)
    real = [i for i in instructions if i.base not in ("NOP", "s_nop")]
    mix = mix_of(real)
    count, stalls = len(real), sum(i.stall for i in real)
    if loop is not None:
        count += loop.instructions * (work.trips - 1)
        stalls += loop.stall_cycles * (work.trips - 1)
    return mix, loop, Code(count, stalls)


def _roofline(gpu: Gpu, work: Work, nbytes: int) -> GpuRoofline:
    matrix = sum(
        flops / (matrix_tflops(gpu, element) * 1e6) for element, flops in work.matrix_flops.items()
    )
    vector = work.vector_flops / (gpu.fp32_tflops * 1e6)
    compute, memory = max(matrix, vector), nbytes / (gpu.dram_gbs * 1e3)
    flops = sum(work.matrix_flops.values()) + work.vector_flops
    floor = max(compute, memory)
    return GpuRoofline(
        floor_us=floor,
        compute_us=compute,
        memory_us=memory,
        intensity=flops / nbytes if nbytes else math.inf,
        bound="compute" if compute >= memory else "memory",
    )
