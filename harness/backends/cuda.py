"""The `cuda` backend: TVM's CUDA C, PTX and SASS for NVIDIA GPUs, compiled without a device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm

from tirgym.harness.backends.compile_only import CompileOnlyBackend
from tirgym.harness.backends.device_code import compile_device
from tirgym.harness.backends.nvcc import compile_cuda, has_nvcc, needs_nvcc
from tirgym.harness.backends.nvptx import cubin_of, nvptx_target, ptx_of, ptx_pipeline
from tirgym.harness.program import Program
from tirgym.harness.target import Target

__all__ = ["CUDABackend"]


@lru_cache(maxsize=16)
def _tvm_target(arch: str) -> Any:
    return tvm.target.Target({"kind": "cuda", "arch": arch, "host": {"kind": "llvm"}})


class CUDABackend(CompileOnlyBackend):
    """CUDA C from TVM; PTX and SASS from nvcc, which tensor cores and asynchronous copies need. Without nvcc
    PTX from TVM's NVPTX code generator, and SASS from ptxas of the extra `triton`."""

    name = "cuda"
    levels: tuple[str, ...] = ("tir", "lowered", "cuda", "ptx", "sass")

    def tvm_target(self, target: Target) -> Any:
        """CUDA with the limits that TVM knows of the architecture."""
        return _tvm_target(target.arch)

    def ir_level(self, program: Program, level: str) -> str:
        """As for every device; "ptx" and "sass" are what nvcc makes of the CUDA C, or without nvcc LLVM's PTX
        and what ptxas makes of that."""
        if level not in ("ptx", "sass"):
            return super().ir_level(program, level)
        target, mod = program.target, self._completed(program).mod
        code, _ = self._compiled(mod, target)
        if has_nvcc() or needs_nvcc(code.source):
            if level == "ptx":
                return compile_cuda(code.source, target.arch, "ptx").decode()
            return _sass(compile_cuda(code.source, target.arch, "cubin"))
        _, module = compile_device(
            mod, nvptx_target(target.arch), self._limits(target), ptx_pipeline()
        )
        ptx = ptx_of(module)
        return ptx if level == "ptx" else _sass(cubin_of(ptx, target.arch))


def _sass(cubin: bytes) -> str:
    from tirgym.harness.triton.sass import sass_of

    return sass_of(cubin)
