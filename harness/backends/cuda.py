"""The `cuda` backend: TVM's CUDA C, PTX and SASS for NVIDIA GPUs, measured where there is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tvm

from tirgym.errors import BackendUnavailableError
from tirgym.harness.backends.compile_only import CompileOnlyBackend
from tirgym.harness.backends.device_code import compile_device
from tirgym.harness.backends.gpu_limits import archs_of
from tirgym.harness.backends.nvptx import cubin_of, nvptx_target, ptx_of, ptx_pipeline
from tirgym.harness.cuda.capability import cuda_capability, cuda_product
from tirgym.harness.cuda.compiling import nvcc, nvcc_path, nvrtc_version
from tirgym.harness.cuda.session import why_no_device
from tirgym.harness.launches import DeviceCode
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

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """`arch` is one of the table of GPUs; None means that of this machine's GPU."""
        here = cuda_capability() if arch is None else None
        return super().target(here if here in archs_of(self.name) else arch, num_threads)

    def why_cannot_run(self, target: Target) -> str | None:
        """Without a GPU of the architecture, or without CuPy, which compiles for it and times it."""
        reason = why_no_device(target.arch)
        if reason is None:
            return None
        return (
            f"code for {target.arch} cannot run here: measuring needs a device and CuPy, and {reason}; "
            "see tirgym show, and tirgym.harness.semantic for what a program means"
        )

    def describe(self, target: Target) -> dict[str, Any]:
        """The limits that decide legality, and versions of all that makes and runs its code."""
        facts = super().describe(target)
        if why_no_device(target.arch) is not None:
            return facts
        here = {"gpu": cuda_product(), "nvrtc": nvrtc_version()}
        versions = {name: text.replace(" ", "_") for name, text in here.items()}
        return {**facts, "versions": {**facts["versions"], **versions}}

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
        if nvcc_path() is not None or _needs_nvcc(code.source):
            if level == "ptx":
                return nvcc(code.source, target.arch, "ptx").decode()
            return _sass(nvcc(code.source, target.arch))
        _, module = compile_device(
            mod, nvptx_target(target.arch), self._limits(target), ptx_pipeline()
        )
        ptx = ptx_of(module)
        return ptx if level == "ptx" else _sass(cubin_of(ptx, target.arch))

    def _loader(self, code: DeviceCode, target: Target) -> Callable[[], Callable[..., None]]:
        reason = self.why_cannot_run(target)

        def load() -> Callable[..., None]:
            if reason is not None:
                raise BackendUnavailableError(reason)
            from tirgym.harness.cuda.session import session
            from tirgym.harness.cuda.worker_device import LoadedKernels

            return LoadedKernels(code, session(target))

        return load


def _needs_nvcc(source: str) -> bool:
    """Whether CUDA C uses tensor cores or asynchronous copies, which TVM's NVPTX code generator lacks."""
    return "nvcuda::wmma" in source or "cp.async" in source


def _sass(cubin: bytes) -> str:
    from tirgym.harness.triton.sass import sass_of

    return sass_of(cubin)
