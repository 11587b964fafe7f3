"""Types of Triton IR: scalars, pointers, tensors and memory descriptors, parsed from their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "BOOL",
    "TOKEN",
    "MemDescType",
    "OpaqueType",
    "PointerType",
    "ScalarType",
    "TensorType",
    "Type",
    "TypeTextError",
    "closing",
    "parse_type",
    "parse_types",
    "shaped_like",
    "split_top",
]


class TypeTextError(ValueError):
    """Text that is no type; carries the text."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number: i1, i32, f16, bf16, f8E5M2, index, …"""

    name: str

    shape = ()

    @property
    def element(self) -> ScalarType:
        """Itself."""
        return self

    @property
    def bits(self) -> int:
        """Width; index counts as 64."""
        found = re.match(r"[a-z]+(\d+)", self.name)
        return int(found[1]) if found else 64

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.name.startswith(("f", "bf", "tf"))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class PointerType:
    """`!tt.ptr<f16>`: the address of an element, or of a block of elements."""

    pointee: Type

    shape = ()
    bits = 64
    is_float = False

    @property
    def element(self) -> PointerType:
        """Itself."""
        return self

    @property
    def name(self) -> str:
        """Its text."""
        return f"!tt.ptr<{self.pointee}>"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of registers; `encoding` is its layout, "" in TTIR."""

    shape: tuple[int, ...]
    element: ScalarType | PointerType
    encoding: str = ""

    def __str__(self) -> str:
        inner = "x".join([*map(str, self.shape), str(self.element)])
        return f"tensor<{inner}, {self.encoding}>" if self.encoding else f"tensor<{inner}>"


@dataclass(frozen=True, slots=True)
class MemDescType:
    """A view of shared memory."""

    shape: tuple[int, ...]
    element: ScalarType | PointerType
    encoding: str
    details: tuple[str, ...] = ()
    """memory space, "mutable", shape of the allocation"""

    def __str__(self) -> str:
        inner = "x".join([*map(str, self.shape), str(self.element)])
        return f"!ttg.memdesc<{', '.join([inner, self.encoding, *self.details])}>"


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """Any other type, kept as text: tokens, tensor descriptors, …"""

    text: str

    shape = ()

    @property
    def element(self) -> ScalarType:
        """A stand-in, so that every type has one."""
        return ScalarType("i64")

    def __str__(self) -> str:
        return self.text


Type = ScalarType | PointerType | TensorType | MemDescType | OpaqueType

BOOL = ScalarType("i1")
TOKEN = OpaqueType("!ttg.async.token")

_SCALAR = re.compile(r"(?:[su]?i\d+|bf16|tf32|f\d\w*|index)")
_DIMENSIONS = re.compile(r"((?:\d+x)*)(.*)", re.DOTALL)
_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSING = frozenset(_OPENING.values())
_BRACKETS = re.compile(r"->|[()\[\]{}<>,]|\"(?:[^\"\\]|\\.)*\"")


def split_top(text: str, separator: str = ",") -> list[str]:
    """Parts of `text` between commas outside of brackets and strings, stripped; [] for no text."""
    if not text.strip():
        return []
    if not _NEEDS_CARE.search(text):
        return [part.strip() for part in text.split(separator)]
    parts, depth, start = [], 0, 0
    for found in _BRACKETS.finditer(text):
        mark = found[0]
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
        elif mark == separator and depth == 0:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    parts.append(text[start:].strip())
    return parts


_NEEDS_CARE = re.compile(r"[(\[{<\"]")


def closing(text: str, start: int) -> int:
    """Place of the bracket that closes the one at `start`; -1 if there is none."""
    depth = 0
    for found in _BRACKETS.finditer(text, start):
        mark = found[0]
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth == 0:
                return found.start()
    return -1


@lru_cache(maxsize=8192)
def parse_type(text: str) -> Type:
    """The type that `text` spells; raises TypeTextError."""
    if _SCALAR.fullmatch(text):
        return ScalarType(text)
    if text.endswith(">"):
        name, _, rest = text[:-1].partition("<")
        if name == "tensor":
            return _tensor(rest, text)
        if name == "!tt.ptr":
            return PointerType(parse_type(split_top(rest)[0]))
        if name in ("!ttg.memdesc", ""):
            shape, element, others = _shaped(rest, text)
            if not others:
                raise TypeTextError(text)
            return MemDescType(shape, element, others[0], tuple(others[1:]))
    if re.fullmatch(r"![\w.]+(?:<.*>)?|\(.*\)|none", text, re.DOTALL):
        return OpaqueType(text)
    raise TypeTextError(text)


def _tensor(inner: str, text: str) -> TensorType:
    shape, element, others = _shaped(inner, text)
    return TensorType(shape, element, others[0] if others else "")


def _shaped(inner: str, text: str) -> tuple[tuple[int, ...], ScalarType | PointerType, list[str]]:
    parts = split_top(inner)
    found = _DIMENSIONS.fullmatch(parts[0]) if parts else None
    if found is None:
        raise TypeTextError(text)
    element = parse_type(found[2])
    if not isinstance(element, ScalarType | PointerType):
        raise TypeTextError(text)
    return tuple(int(d) for d in found[1].split("x") if d), element, parts[1:]


@lru_cache(maxsize=8192)
def parse_types(text: str) -> tuple[Type, ...]:
    """Types between commas, or the `*` of a dot, in brackets or not."""
    text = text.strip()
    if text.startswith("(") and closing(text, 0) == len(text) - 1:
        text = text[1:-1]
    return tuple(parse_type(part) for part in split_top(text.replace("> * ", ">, ")))


def shaped_like(given: Type, element: ScalarType | PointerType) -> Type:
    """`given` with other elements."""
    if isinstance(given, TensorType):
        return TensorType(given.shape, element, given.encoding)
    return element
