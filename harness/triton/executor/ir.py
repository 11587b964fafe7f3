"""Triton IR in memory: modules, functions, regions, blocks, operations and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tirgym.errors import UnknownNameError
from tirgym.harness.triton.executor.types import Type, split_top

__all__ = ["Block", "Function", "Module", "Operation", "Region", "Value", "parse_attributes"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A result of an operation or an argument of a block; `number` is unique in its module."""

    number: int
    name: str
    type: Type

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations in order, the last one a terminator."""

    label: str
    """"" for the only block of a region"""
    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Blocks in order; control enters at the first."""

    blocks: tuple[Block, ...]

    @property
    def entry(self) -> Block:
        """The first block."""
        return self.blocks[0]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation as it was printed, with operands and results resolved to values."""

    name: str
    """dialect and operation: "tt.load" """
    operands: tuple[Value, ...]
    """in the order of the text"""
    roles: tuple[str, ...]
    """the word before each operand ("mask", "other", "token"), "" without one"""
    results: tuple[Value, ...]
    header: str
    """text between name and types, attributes left out"""
    attributes_text: str
    """inside of the attribute braces"""
    operand_types: tuple[Type, ...]
    """as listed after the colon; not one for each operand in every operation"""
    regions: tuple[Region, ...] = ()
    line: int = 0
    """line of the text, from 1"""
    location: str = ""
    """inside of loc(…), "" if the text has none"""
    successors: tuple[str, ...] = ()
    """labels of the blocks that a branch goes to"""

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attribute → text of its value without its type."""
        return parse_attributes(self.attributes_text)

    def operand(self, role: str) -> Value | None:
        """The operand after the word `role`; None if there is none."""
        for operand, found in zip(self.operands, self.roles, strict=True):
            if found == role:
                return operand
        return None

    def setting(self, name: str, default: str) -> str:
        """An attribute, or the word after `name =` outside of the braces."""
        found = re.search(rf"\b{name} = (\w+)", self.header)
        return found[1] if found else self.attributes.get(name, default)

    def integer(self, attribute: str, default: int | None = None) -> int:
        """An integer attribute."""
        text = self.attributes.get(attribute)
        if text is None:
            if default is None:
                raise KeyError(attribute)
            return default
        return int(text)

    def integers(self, attribute: str) -> tuple[int, ...]:
        """An attribute that lists integers, such as `array<i32: 1, 0>`."""
        listed = self.attributes[attribute].partition(":")[2]
        return tuple(int(number) for number in re.findall(r"-?\d+", listed))

    def walk(self) -> Iterator[Operation]:
        """Itself, then the operations inside of it, in the order of the text."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for operation in block.operations:
                    yield from operation.walk()


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A `tt.func`."""

    name: str
    public: bool
    arguments: tuple[Value, ...]
    body: Region
    results: tuple[Type, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A parsed module. `layouts` has the text of each layout alias: "#mma" → "#ttg.nvidia_mma<…>"."""

    functions: tuple[Function, ...]
    layouts: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    values: int = 0
    """number of values; their numbers are smaller"""

    @property
    def level(self) -> str:
        """ "ttgir" once layouts are assigned, else "ttir"."""
        return "ttgir" if "ttg.num-warps" in self.attributes else "ttir"

    def function(self, name: str = "") -> Function:
        """The function called `name`; without a name the public one.

        Raises UnknownNameError.
        """
        for function in self.functions:
            if function.name == name or (not name and function.public):
                return function
        if not name and len(self.functions) == 1:
            return self.functions[0]
        raise UnknownNameError("function", name or "(public)", [f.name for f in self.functions])

    def walk(self) -> Iterator[Operation]:
        """Every operation, in the order of the text."""
        for function in self.functions:
            for block in function.body.blocks:
                for operation in block.operations:
                    yield from operation.walk()


@lru_cache(maxsize=4096)
def parse_attributes(text: str) -> Mapping[str, str]:
    """`end = 4 : i32, tt.flag` → {"end": "4", "tt.flag": ""}; nested braces stay text."""
    found: dict[str, str] = {}
    for part in split_top(text):
        name, _, value = part.partition(" = ")
        value = value.strip()
        if not value.startswith(("{", "[", "<", '"', "#", "array", "dense")):
            value = value.partition(" : ")[0]
        found[name.strip().strip('"')] = value.strip('"') if value.startswith('"') else value
    return found
