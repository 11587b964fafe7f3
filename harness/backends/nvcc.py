"""`nvcc`: NVIDIA's own compiler, for PTX and machine code of the CUDA C that a program becomes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from tirgym.errors import BackendUnavailableError, CompileFailedError

__all__ = ["compile_cuda", "has_nvcc", "needs_nvcc"]

_MARKS = ("nvcuda::wmma", "cp.async")
_PLACES = ("/usr/local/cuda/bin/nvcc",)
_NVCC_S = 120.0


def needs_nvcc(source: str) -> bool:
    """Whether CUDA C uses tensor cores or asynchronous copies, which TVM's NVPTX code generator lacks."""
    return any(mark in source for mark in _MARKS)


def has_nvcc() -> bool:
    """Whether it is installed."""
    return _nvcc() is not None


@lru_cache(maxsize=1)
def _nvcc() -> str | None:
    return next(filter(None, map(shutil.which, ("nvcc", *_PLACES))), None)


@lru_cache(maxsize=64)
def compile_cuda(source: str, arch: str, form: str) -> bytes:
    """What nvcc makes of `source`: `form` "ptx" or "cubin".

    Raises BackendUnavailableError without nvcc, CompileFailedError.
    """
    nvcc = _nvcc()
    if nvcc is None:
        raise BackendUnavailableError(
            "tensor cores and asynchronous copies are compiled by nvcc: install NVIDIA's CUDA toolkit "
            "with nvcc in PATH; level cuda needs none"
        )
    with tempfile.TemporaryDirectory(prefix="tirgym-nvcc-") as scratch:
        text, made = Path(scratch, "kernel.cu"), Path(scratch, f"kernel.{form}")
        text.write_text(source, encoding="utf-8")
        command = [nvcc, f"-arch={arch}", f"-{form}", "-w", str(text), "-o", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_NVCC_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileFailedError("nvcc", str(error)) from None
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise CompileFailedError("nvcc", lines[0] if lines else "nvcc failed", done.stderr)
        return made.read_bytes()
