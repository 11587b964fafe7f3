"""PTX from LLVM: TVM's `nvptx` target, with barriers that its LLVM accepts; ptxas from Triton's wheel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from tirgym.errors import CompileFailedError, MissingExtraError
from tirgym.harness.backends.llvm_options import STOCK, register_pipeline, stock_pass

__all__ = ["cubin_of", "nvptx_target", "ptx_of", "ptx_pipeline"]

_PIPELINE = "tirgym:nvptx"
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
_NEW_PTXAS = ("sm_90", "sm_10")
"""Architectures that Triton's wheel compiles with its second ptxas, as Triton does."""
_PTXAS_S = 120.0
_FUNCTION = re.compile(r"\.visible \.func (main_kernel\w*)")


@lru_cache(maxsize=16)
def nvptx_target(arch: str) -> Any:
    """TVM's target for `arch`."""
    _without_toolkit()
    return tvm.target.Target({"kind": "nvptx", "mcpu": arch, "host": {"kind": "llvm"}})


@lru_cache(maxsize=1)
def _without_toolkit() -> None:
    """Let TVM take libdevice, NVIDIA's mathematical functions, from Triton's wheel; without it calls of
    them stay unresolved."""

    def libdevice(*_: Any) -> str:
        folder = _triton_folder()
        path = folder / "lib" / "libdevice.10.bc" if folder else None
        return str(path) if path is not None and path.exists() else ""

    tvm_ffi.register_global_func("tvm_callback_libdevice_path", libdevice, override=True)


def _triton_folder() -> Path | None:
    """Where Triton's wheel keeps NVIDIA's tools; None without Triton. Nothing of it is imported."""
    found = find_spec("triton")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "backends" / "nvidia"


def ptx_pipeline() -> str:
    """Name of TVM's own pipeline with one pass more: barriers as calls of LLVM's intrinsic.

    TVM 0.27 emits that intrinsic without its argument, the number of the barrier, which LLVM 22 refuses.
    """
    last_sync = max(i for i, step in enumerate(STOCK) if step[1] == "ThreadSync")
    passes = [stock_pass(step) for step in STOCK]
    passes.insert(last_sync + 1, _barriers_by_number())
    register_pipeline(_PIPELINE, tvm.transform.Sequential(passes))
    return _PIPELINE


def _barriers_by_number() -> Any:
    def rewritten(call: Any) -> Any:
        if str(getattr(call.op, "name", "")) != "tirx.tvm_storage_sync":
            return call
        return tirx.call_llvm_intrin("void", _BARRIER, tirx.const(0, "int32"))

    def change(func: Any, mod: Any, context: Any) -> Any:
        return tvm_ffi.structural_map(func, [(Call, rewritten)])

    return tirx.transform.prim_func_pass(change, opt_level=0, name="tirgym.BarriersByNumber")


def ptx_of(module: Any) -> str:
    """PTX of a device module, its kernels as entries.

    TVM 0.27 marks kernels by metadata that LLVM 22 does not read, and gets plain functions.
    """
    return _FUNCTION.sub(r".visible .entry \1", str(module.inspect_source("ptx")))


def cubin_of(ptx: str, arch: str) -> bytes:
    """What ptxas makes of `ptx`; raises MissingExtraError without Triton, CompileFailedError."""
    folder = _triton_folder()
    if folder is None:
        raise MissingExtraError("level sass of backend cuda", "triton", "triton")
    name = "ptxas-blackwell" if arch.startswith(_NEW_PTXAS) else "ptxas"
    with tempfile.TemporaryDirectory(prefix="tirgym-ptx-") as scratch:
        source, made = Path(scratch, "kernel.ptx"), Path(scratch, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [str(folder / "bin" / name), f"-arch={arch}", str(source), "-o", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PTXAS_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileFailedError("sass", str(error)) from None
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise CompileFailedError("sass", lines[0] if lines else "ptxas failed", done.stderr)
        return made.read_bytes()
