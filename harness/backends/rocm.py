"""The `rocm` backend: TVM's LLVM IR and machine code for AMD GPUs, compiled without a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi

from tirgym.harness.backends.compile_only import CompileOnlyBackend
from tirgym.harness.launches import DeviceCode
from tirgym.harness.target import Target

__all__ = ["ROCmBackend"]

_FORMATS: Mapping[str, str] = {"llvm": "llvm", "amdgcn": "asm"}
"""Level → format of `inspect_source`."""


@lru_cache(maxsize=16)
def _tvm_target(arch: str) -> Any:
    _without_rocm()
    return tvm.target.Target({"kind": "rocm", "mcpu": arch, "host": {"kind": "llvm"}})


@lru_cache(maxsize=1)
def _without_rocm() -> None:
    """Let TVM's code generator work where ROCm is not installed: without its device libraries (calls
    of their functions stay unresolved) and without linking a code object, which nothing would load."""

    def no_bitcode(*_: Any) -> list[str]:
        return []

    def unlinked(object_file: bytes) -> bytearray:
        return bytearray(bytes(object_file))

    tvm_ffi.register_global_func("tvm_callback_rocm_bitcode_path", no_bitcode, override=True)
    tvm_ffi.register_global_func("tvm_callback_rocm_link", unlinked, override=True)


class ROCmBackend(CompileOnlyBackend):
    """AMDGCN machine code as text; there is no code object."""

    name = "rocm"
    levels: tuple[str, ...] = ("tir", "lowered", "llvm", "amdgcn")

    def tvm_target(self, target: Target) -> Any:
        """ROCm for the architecture."""
        return _tvm_target(target.arch)

    def _text(self, code: DeviceCode, module: Any, level: str, target: Target) -> str:
        return str(module.inspect_source(_FORMATS[level]))
