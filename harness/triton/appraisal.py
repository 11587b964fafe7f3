"""`appraise`: a request compiled, with the time that the static cost model predicts for it."""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.harness.target import Target
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.device.device import Binary
from tirgym.harness.triton.profile import profile_without_layouts
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import Compiled, CompileRequest
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Appraisal", "appraise", "binary_of"]

_CARRIED = ("ttgir", "ptx")
"""texts that a launch needs"""


@dataclass(frozen=True)
class Appraisal:
    """A binary and what is expected of it."""

    binary: Binary
    predicted_us: float
    """infinite where a block needs more than a compute unit has"""
    compute_us: float
    """the least time that the GPU's published peaks of arithmetic allow"""


def appraise(request: CompileRequest) -> Appraisal:
    """In this process; `CompilePool.call_many` runs it in others. Raises CompileFailedError."""
    target = Target("triton", request.arch)
    workload = load_workload(request.workload)
    program = TritonProgram(workload, target, request.config, request.pipeline)
    profile = profile_without_layouts(program)
    binary = binary_of(request, compile_here(request))
    return Appraisal(binary, profile.predicted.total_us, profile.roofline.compute_us)


def binary_of(request: CompileRequest, compiled: Compiled) -> Binary:
    """What a device needs of a compilation."""
    return Binary(
        workload=request.workload,
        launch=request.launch,
        image=compiled.binary,
        name=compiled.name,
        shared_bytes=compiled.shared_bytes,
        num_warps=compiled.num_warps,
        texts={level: compiled.texts[level] for level in _CARRIED if level in compiled.texts},
    )
