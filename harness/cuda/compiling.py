"""CUDA C to machine code, without TVM and without a device: by nvcc, or by NVRTC through CuPy."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tirgym.errors import BackendUnavailableError, CompileFailedError

__all__ = [
    "COMPILERS",
    "compiler_here",
    "nvcc",
    "nvcc_path",
    "nvcc_version",
    "nvrtc",
    "nvrtc_version",
    "why_no_nvrtc",
]

_NVCC_S = 120.0
_STANDARD = "--std=c++17"
_TOOLKITS = ("nvidia/cu13/include", "nvidia/cuda_runtime/include")
"""headers of CUDA in the wheels that torch brings, below the folders of packages"""
_TOOLKIT = Path("/usr/local/cuda")
"""where NVIDIA's installer puts one"""
_WORDS = 300


@lru_cache(maxsize=1)
def nvcc_path() -> str | None:
    """Where nvcc is installed; None if it is not."""
    return next(filter(None, map(shutil.which, ("nvcc", str(_TOOLKIT / "bin" / "nvcc")))), None)


@lru_cache(maxsize=64)
def nvcc(source: str, arch: str, form: str = "cubin") -> bytes:
    """What nvcc makes of `source`: `form` "cubin" or "ptx".

    Raises CompileFailedError, BackendUnavailableError without nvcc.
    """
    with tempfile.TemporaryDirectory(prefix="tirgym-cuda-") as scratch:
        text, made = Path(scratch, "kernels.cu"), Path(scratch, f"kernels.{form}")
        text.write_text(source, encoding="utf-8")
        command = [_nvcc(), f"-{form}", f"-arch={arch}", _STANDARD, "-w", str(text)]
        try:
            done = subprocess.run(
                [*command, "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_NVCC_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileFailedError(form, str(error)) from None
        if done.returncode:
            raise CompileFailedError(form, _error_of(done.stderr), done.stderr)
        return made.read_bytes()


def _nvcc() -> str:
    path = nvcc_path()
    if path is None:
        raise BackendUnavailableError(
            "PTX and machine code of CUDA C, tensor cores and asynchronous copies among it, need nvcc: "
            "install NVIDIA's CUDA toolkit with nvcc in PATH; level cuda needs none"
        )
    return path


def nvrtc(source: str, arch: str) -> bytes:
    """The cubin that NVRTC makes of `source`; raises CompileFailedError, BackendUnavailableError."""
    problem = why_no_nvrtc()
    if problem is not None:
        raise BackendUnavailableError(problem)
    library: Any = _nvrtc()
    program = library.createProgram(source, "kernels.cu", (), ())
    options = (f"--gpu-architecture={arch}", _STANDARD, *(f"-I{path}" for path in _headers()))
    try:
        library.compileProgram(program, options)
        return bytes(library.getCUBIN(program))
    except library.NVRTCError as error:
        log = str(library.getProgramLog(program))
        raise CompileFailedError("cubin", _error_of(log) or str(error), log) from None
    finally:
        library.destroyProgram(program)


def nvcc_version() -> str:
    """ "nvcc 13.0.88"; raises CompileFailedError where nvcc cannot be run, BackendUnavailableError."""
    try:
        done = subprocess.run(
            [_nvcc(), "--version"], capture_output=True, text=True, timeout=_NVCC_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileFailedError("cubin", str(error)) from None
    found = re.search(r"V([\d.]+)", done.stdout)
    return f"nvcc {found[1]}" if found else "nvcc"


def nvrtc_version() -> str:
    """ "nvrtc 13.0"; raises BackendUnavailableError."""
    problem = why_no_nvrtc()
    if problem is not None:
        raise BackendUnavailableError(problem)
    major, minor = _nvrtc().getVersion()
    return f"nvrtc {major}.{minor}"


def why_no_nvrtc() -> str | None:
    """None where CuPy and its NVRTC can be loaded, else one line with the remedy."""
    if find_spec("cupy") is None:
        return "compiling CUDA C needs CuPy: pip install 'tirgym[cuda13]' (or cuda12)"
    found = _nvrtc()
    if isinstance(found, str):
        return f"CuPy finds no NVRTC ({found}): pip install nvidia-cuda-nvrtc"
    return None


@cache
def _nvrtc() -> Any:
    """CuPy's module, or what keeps it from being used."""
    try:
        from cupy.cuda import nvrtc as library

        library.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:_WORDS]
    return library


@cache
def _headers() -> tuple[Path, ...]:
    """Folders for TVM's includes: the standard library that CuPy brings, and CUDA's own headers (float16)
    where a wheel or a toolkit has them."""
    spec = find_spec("cupy")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    toolkits = [*(package.parent / name for name in _TOOLKITS), _TOOLKIT / "include"]
    found = nvcc_path()
    if found is not None:
        toolkits.append(Path(found).resolve().parent.parent / "include")
    library = package / "_core" / "include" / "cupy" / "_cccl" / "libcudacxx"
    return (library, *(path for path in toolkits if (path / "cuda_fp16.h").exists()))


@dataclass(frozen=True, slots=True)
class _Compiler:
    there: Callable[[], bool]
    version: Callable[[], str]
    compile: Callable[[str, str], bytes]
    """f(source, arch) → cubin"""


COMPILERS: Mapping[str, _Compiler] = {
    "nvcc": _Compiler(lambda: nvcc_path() is not None, nvcc_version, nvcc),
    "nvrtc": _Compiler(lambda: why_no_nvrtc() is None, nvrtc_version, nvrtc),
}
"""What makes cubins of CUDA C, the one that is asked first at the top."""


def compiler_here() -> str | None:
    """The first compiler of the table that this machine has."""
    return next((name for name, compiler in COMPILERS.items() if compiler.there()), None)


def _error_of(log: str) -> str:
    """The first line of a compiler's log that says "error", else the first one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line), lines[0] if lines else "")
    return said[:_WORDS]
