"""NVIDIA machine code as text and as instructions with their control codes, from a cubin.

Needs no device: Triton brings cuobjdump and nvdisasm. Every instruction of sm_70 and later carries
in its encoding the cycles that its warp waits before the next one (Jia et al., Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking, arXiv:1804.06826, section 2.1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tirgym.errors import CompileFailedError
from tirgym.harness.triton.stderr import captured_stderr

__all__ = ["HotLoop", "Instruction", "hot_loop", "instructions_of", "mix_of", "sass_of"]

_LINE = re.compile(
    r"(?P<control>[^\t]+)\t(?:(?P<guard>@!?U?P\w+) )?(?P<op>[A-Z][\w.]*)(?P<rest>.*);"
)
_LABEL = re.compile(r"(LBB\d+):")


@lru_cache(maxsize=64)
def sass_of(cubin: bytes) -> str:
    """The disassembly, one instruction a line behind its control codes (waits on barriers, read
    barrier, write barrier, yield, stall cycles). Raises CompileFailedError."""
    from triton.tools.disasm import get_sass

    with captured_stderr() as captured:
        try:
            text = get_sass(cubin)
        except (OSError, ValueError, AttributeError) as error:
            text, failure = "", str(error)
        else:
            failure = "cuobjdump found no function"
    if not text:
        raise CompileFailedError("sass", failure, captured.text)
    return str(text)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction."""

    opcode: str
    """"LDG.E.128" """
    operands: str
    guard: str
    """predicate that it runs under, "" if always"""
    stall: int
    """cycles before the warp's next instruction may issue"""
    waits: int
    """scoreboards that it waits for"""

    @property
    def base(self) -> str:
        """Opcode without modifiers: "LDG"."""
        return self.opcode.split(".")[0]


def instructions_of(sass: str) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    """All instructions, and label → index of the instruction that it stands before."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        label, match = _LABEL.match(line), _LINE.match(line)
        if label:
            labels[label[1]] = len(found)
        elif match:
            codes = match["control"].split(":")
            mask = int(codes[0]) if codes[0].isdigit() else 0
            found.append(
                Instruction(
                    opcode=match["op"],
                    operands=match["rest"].strip(),
                    guard=match["guard"] or "",
                    stall=int(codes[-1], 16),
                    waits=mask.bit_count(),
                )
            )
    return tuple(found), labels


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The loop that does the work: of all backward branches the one around most matrix
    instructions, and among those the shortest."""

    first: int
    """index of its first instruction"""
    last: int
    """index of the branch back"""
    stall_cycles: int
    """sum of the stall counts: one warp, alone, without any wait for memory"""
    mix: dict[str, int]

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return self.last - self.first + 1


_BRANCH = re.compile(r"BRA$|s_c?branch")
_MATRIX = (
    "HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "DMMA",
    "v_mfma", "v_wmma",
)  # fmt: skip
_MEMORY = ("LDG", "STG", "LDS", "UTMALDG", "buffer_", "global_", "ds_")


def hot_loop(instructions: tuple[Instruction, ...], labels: dict[str, int]) -> HotLoop | None:
    """The hot loop; None if there is none (the branch onto itself at the end is not one)."""
    loops: list[HotLoop] = []
    for place, instruction in enumerate(instructions):
        target = re.search(r"\.?LBB\w+", instruction.operands)
        if not _BRANCH.match(instruction.base) or target is None:
            continue
        first = labels.get(target[0], place)
        if first < place:
            body = instructions[first : place + 1]
            loops.append(HotLoop(first, place, sum(i.stall for i in body), mix_of(body)))
    return max(loops, key=_heat, default=None)


def _heat(loop: HotLoop) -> tuple[int, int, int]:
    """Matrix instructions first, then memory accesses, then the shorter loop."""
    matrix = sum(n for op, n in loop.mix.items() if op.startswith(_MATRIX))
    memory = sum(n for op, n in loop.mix.items() if op.startswith(_MEMORY))
    return matrix, memory, -loop.instructions


def mix_of(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Base opcode → count, most frequent first."""
    return dict(Counter(instruction.base for instruction in instructions).most_common())
