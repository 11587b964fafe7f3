"""Machine code of compiled kernels as text, and the key of equal code."""

from __future__ import annotations

import hashlib
import re

from tirgym.harness.triton.gpus import gpu
from tirgym.harness.triton.request import Compiled
from tirgym.harness.triton.sass import sass_of

__all__ = ["assembly_of", "code_key_of"]

_DEBUG_LINE = re.compile(r"^\s*(\.(loc|file|section|ident)\b|;|//)|^\s*$")


def assembly_of(compiled: Compiled, arch: str) -> str:
    """SASS or AMDGCN; raises CompileFailedError where it cannot be disassembled."""
    if gpu(arch).vendor == "nvidia":
        return sass_of(compiled.binary)
    return compiled.texts["amdgcn"]


def code_key_of(assembly: str) -> str:
    """16 hex digits of the assembly without debug lines and comments."""
    code = "\n".join(line for line in assembly.splitlines() if not _DEBUG_LINE.match(line))
    return hashlib.sha256(code.encode()).hexdigest()[:16]
