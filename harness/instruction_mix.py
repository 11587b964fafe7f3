"""`InstructionMix`: what kinds of instructions a kernel's machine code consists of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["InstructionMix", "instruction_mix"]

_LABEL = re.compile(r"^([A-Za-z_][\w.$]*):")
_REGISTER_BITS = {"zmm": 512, "ymm": 256, "xmm": 128}
_STACK = re.compile(r"-?\d*\(%r[sb]p\)")
_MEMORY = re.compile(r"\([^)]*%r[^)]*\)")
_ARITHMETIC = re.compile(
    r"^v?(add|sub|mul|div|sqrt|rsqrt14|rcp14|max|min|fn?m(add|sub)(addsub)?\d{3}|rndscale|round)"
    r"(?P<kind>[ps])[sdh]$"
)
_FUSED = re.compile(r"^vfn?m(add|sub)")
_DIVIDE = re.compile(r"^v?(div|sqrt)[ps][sd]$")
_MOVES = re.compile(r"^(v?mov|v?lddqu|v?broadcast|vpbroadcast|vextract|vinsert)")


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """Counts of instructions as they stand in the code, each once whatever the loops around it."""

    total: int
    vector_float: int
    """floating-point arithmetic on packed registers"""
    scalar_float: int
    fused: int
    """multiply-adds, vector and scalar"""
    divisions: int
    """divisions and square roots"""
    loads: int
    """instructions that read memory"""
    stores: int
    gathers: int
    """gathers and scatters"""
    spill_loads: int
    """loads from the stack"""
    spill_stores: int
    calls: int
    branches: int
    widest_bits: int
    """widest vector register that is used for arithmetic, 0 if none"""

    @property
    def vector_fraction(self) -> float:
        """Share of packed instructions in floating-point arithmetic; 0 without any."""
        arithmetic = self.vector_float + self.scalar_float
        return self.vector_float / arithmetic if arithmetic else 0.0


def _kernel_lines(assembly: str) -> Iterator[tuple[str, str]]:
    """(mnemonic, operands) of the kernel proper: what TVM calls main_compute_ and its parallel parts.

    The wrapper around it checks arguments and would drown a small kernel. Without such a function
    every instruction counts.
    """
    functions: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in assembly.splitlines():
        label = _LABEL.match(line)
        if label and not label.group(1).startswith(".L"):
            name = label.group(1)
        elif line.startswith("\t") and not line.startswith(("\t.", "\t#")):
            mnemonic, _, operands = line.strip().partition("\t")
            operands = operands.partition("#")[0].strip()
            functions.setdefault(name, []).append((mnemonic, operands))
    kernels = [n for n in functions if "compute_" in n or "parallel_lambda" in n]
    for each in kernels or list(functions):
        yield from functions[each]


def instruction_mix(assembly: str) -> InstructionMix | None:
    """Count the instructions of x86-64 assembly in AT&T syntax; None for another architecture."""
    if "%rsp" not in assembly and "%rdi" not in assembly:
        return None
    counts = dict.fromkeys(InstructionMix.__dataclass_fields__, 0)
    for mnemonic, operands in _kernel_lines(assembly):
        counts["total"] += 1
        _count_arithmetic(counts, mnemonic, operands)
        _count_memory(counts, mnemonic, operands)
        counts["calls"] += mnemonic.startswith("call")
        counts["branches"] += mnemonic.startswith("j")
    return InstructionMix(**counts)


def _count_arithmetic(counts: dict[str, int], mnemonic: str, operands: str) -> None:
    matched = _ARITHMETIC.match(mnemonic)
    if matched is None:
        return
    packed = matched.group("kind") == "p"
    counts["vector_float" if packed else "scalar_float"] += 1
    counts["fused"] += bool(_FUSED.match(mnemonic))
    counts["divisions"] += bool(_DIVIDE.match(mnemonic))
    if packed:
        bits = max((b for name, b in _REGISTER_BITS.items() if name in operands), default=0)
        counts["widest_bits"] = max(counts["widest_bits"], bits)


def _count_memory(counts: dict[str, int], mnemonic: str, operands: str) -> None:
    if "gather" in mnemonic or "scatter" in mnemonic:
        counts["gathers"] += 1
        return
    found = _MEMORY.search(operands)
    if found is None or mnemonic.startswith(("lea", "prefetch", "nop", "call", "j")):
        return
    stores = operands.endswith(")") and (
        bool(_MOVES.match(mnemonic)) or mnemonic.startswith(("vpmov", "vpextr", "mov", "set"))
    )
    stack = bool(_STACK.search(operands))
    counts["stores" if stores else "loads"] += 1
    if stack:
        counts["spill_stores" if stores else "spill_loads"] += 1
