"""AMD machine code as instructions, from the AMDGCN text that LLVM prints."""

from __future__ import annotations

import re

from tirgym.harness.triton.sass import Instruction

__all__ = ["amd_instructions"]

_LINE = re.compile(r"^\t(?P<op>[a-z][a-z0-9_]+)(?:\s+(?P<rest>[^;\n]*))?")
_LABEL = re.compile(r"^(\.LBB\d+_\d+):")
_ENCODING = re.compile(r"_(?:e32|e64|dpp|sdwa|e64_dpp)$")
_END = ".section"


def amd_instructions(text: str) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    """All instructions of the kernel, without the suffix that names an encoding, and label → index
    of the instruction that it stands before. Stalls and waits are 0: the hardware finds them."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label, match = _LABEL.match(line), _LINE.match(line)
        if label:
            labels[label[1]] = len(found)
        elif match:
            operands = (match["rest"] or "").strip()
            found.append(Instruction(_ENCODING.sub("", match["op"]), operands, "", 0, 0))
        elif found and line.strip().startswith(_END):
            break
    return tuple(found), labels
