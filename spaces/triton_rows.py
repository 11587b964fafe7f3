"""Features of operands, types and layouts in graphs of Triton IR; their names: `triton_tables`."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from tirgym.harness.triton.executor.types import (
    MemDescType,
    OpaqueType,
    PointerType,
    ScalarType,
    Type,
)
from tirgym.spaces.graph import BOUND
from tirgym.spaces.hardware import log_size

__all__ = ["Row", "layout_row", "operand_row", "sizes", "type_row"]

Row = tuple[float, ...]

_ROLES = {"mask": 1, "other": 2, "token": 3}


@lru_cache(maxsize=512)
def operand_row(position: int, role: str, accumulator: bool) -> Row:
    """Features of an edge from an operand; `accumulator` is that of a dot."""
    row = [min(position / 8, BOUND), 0.0, 0.0, 0.0, float(accumulator)]
    if role in _ROLES:
        row[_ROLES[role]] = 1.0
    return tuple(row)


@lru_cache(maxsize=4096)
def sizes(of: Type | None) -> tuple[int, float]:
    """Elements and bytes; 0 of tokens and nothing."""
    if of is None or isinstance(of, OpaqueType):
        return 0, 0.0
    elements = math.prod(of.shape)
    return elements, elements * of.element.bits / 8


@lru_cache(maxsize=4096)
def type_row(of: Type) -> Row:
    """Features of a type."""
    elements, nbytes = sizes(of)
    element = of.element
    opaque = isinstance(of, OpaqueType)
    number = isinstance(element, ScalarType) and not opaque
    return (
        float(number and not element.is_float),
        float(number and element.is_float),
        float(isinstance(element, PointerType)),
        float(opaque),
        float(isinstance(of, MemDescType)),
        log_size(elements),
        log_size(nbytes),
        len(of.shape) / 8,
        log_size(of.shape[-1]) if of.shape else 0.0,
        0.0 if opaque else element.bits / 64,
    )


_LAYOUTS = {
    "blocked": 0, "nvidia_mma": 1, "amd_mfma": 1, "amd_wmma": 1, "dot_op": 2, "slice": 3,
    "linear": 4, "swizzled_shared": 5, "padded_shared": 5, "shared_linear": 5, "nvmma_shared": 6,
}  # fmt: skip


@lru_cache(maxsize=1024)
def layout_row(text: str) -> Row:
    """Features of a layout from its text, `#ttg.blocked<{sizePerThread = [1, 8], …}>`."""
    name = re.match(r"#(?:\w+\.)?(\w+)", text)
    kinds = [0.0] * 8
    kinds[_LAYOUTS.get(name[1] if name else "", 7)] = 1.0
    own = text.partition("parent = ")[0]

    def listed(key: str) -> list[int]:
        found = re.search(rf"\b{key} = \[([\d, ]*)\]", own)
        return [int(n) for n in found[1].split(",") if n.strip()] if found else []

    def number(key: str) -> int:
        found = re.search(rf"\b{key} = (\d+)", text if key == "kWidth" else own)
        return int(found[1]) if found else 0

    registers, order = listed("sizePerThread"), listed("order")
    lanes, warps = listed("threadsPerWarp"), listed("warpsPerCTA")
    fast = order[0] if order and len(registers) == len(order) else -1
    return (
        *kinds,
        log_size(math.prod(registers) if registers else 0),
        log_size(registers[fast] if registers else 0),
        log_size(lanes[fast] if lanes else 0),
        log_size(warps[fast] if warps else 0),
        float(bool(order) and order[0] == len(order) - 1),
        number("vec") / 8,
        number("perPhase") / 8,
        (number("maxPhase") or number("swizzlingByteWidth") // 16) / 8,
        number("opIdx") or number("dim") / 8,
        number("kWidth") / 8,
        number("versionMajor") / 8,
    )
