"""`parse_module`: the text of TTIR and TTGIR modules, as Triton 3.6 to 3.9 print it, to typed IR.

One operation stands on one line, and a region opens with the brace that ends a line; so the text
of `module.str_nodebug()` and of `kernel.asm["ttgir"]` (with locations) is read line by line, and
operations that nobody has heard of are read like all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from tirgym.errors import DamagedFileError
from tirgym.harness.triton.executor.ir import (
    Block,
    Function,
    Module,
    Operation,
    Region,
    Value,
    parse_attributes,
)
from tirgym.harness.triton.executor.types import (
    BOOL,
    TOKEN,
    OpaqueType,
    PointerType,
    ScalarType,
    Type,
    TypeTextError,
    closing,
    parse_type,
    parse_types,
    shaped_like,
    split_top,
)

__all__ = ["parse_module"]

_NAME = r"%[\w$.\-]+"
_RESULTS = re.compile(rf"({_NAME}(?::\d+)?(?:, {_NAME}(?::\d+)?)*) = ")
_RESULT = re.compile(rf"({_NAME})(?::(\d+))?")
_OPERATION = re.compile(r"\"?([a-z_][\w]*(?:\.[\w.]+)?)\"?")
_OPERAND = re.compile(rf"(?:\b([A-Za-z_]\w*) )?({_NAME}(?:#\d+)?)")
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"")
_ATTRIBUTES = re.compile(r"<\{|(?<![<\w])\{")
_LOCATION = re.compile(r" loc\((.*)\)$")
_LABEL = re.compile(r"(\^\w+)(?:\((.*)\))?:")
_SUCCESSOR = re.compile(r"\^\w+")
_ALIAS = re.compile(r"(#\w+) = (.*)")
_ARGUMENT = re.compile(rf"({_NAME}): ")
_FUNCTION = re.compile(
    r"tt\.func\s+(?:(public|private)\s+)?(?:noinline\s+)?@(\"[^\"]*\"|[\w$.]+)\("
)

# Result types where the rule "after the arrow, else as listed last" does not say it.
_ResultRule = Callable[[tuple[Type, ...]], tuple[Type, ...]]


def _pointee(listed: tuple[Type, ...]) -> tuple[Type, ...]:
    element = listed[0].element
    inner = element.pointee if isinstance(element, PointerType) else element
    return (shaped_like(listed[0], inner) if isinstance(inner, ScalarType) else inner,)


_RESULT_RULES: dict[str, _ResultRule] = {
    "arith.cmpi": lambda listed: (shaped_like(listed[0], BOOL),),
    "arith.cmpf": lambda listed: (shaped_like(listed[0], BOOL),),
    "tt.addptr": lambda listed: (listed[0],),
    "tt.load": _pointee,
}
_TOKENS = ("ttg.async_copy_global_to_local", "ttg.async_commit_group", "ttg.async_wait")
"""Operations whose result is a token, which their text leaves out."""


@dataclass(slots=True)
class _Open:
    """An operation whose regions are being read."""

    name: str
    operands: tuple[Value, ...]
    roles: tuple[str, ...]
    result_names: list[tuple[str, int]]
    header: str
    attributes: str
    result_types: tuple[Type, ...] | None
    line: int
    regions: list[Region] = field(default_factory=list)


class _Reader:
    """Reads lines; keeps the place for messages and the values that are in scope."""

    def __init__(self, text: str, source: str) -> None:
        self.lines = text.splitlines()
        self.source = source
        self.at = 0
        self.values = 0
        self.scope: dict[str, Value] = {}
        self.line = ""

    def fail(self, problem: str, near: str = "") -> NoReturn:
        raw = self.lines[self.at - 1] if 0 < self.at <= len(self.lines) else ""
        place = raw.find(near) if near else len(raw) - len(raw.lstrip())
        where = f"line {self.at}, column {max(place, 0) + 1}"
        raise DamagedFileError(self.source, "Triton IR text", f"{where}: {problem}")

    def type(self, text: str) -> Type:
        try:
            return parse_type(text.strip())
        except TypeTextError:
            self.fail(f"expected a type, found {_shown(text)}", text.strip())

    def types(self, text: str) -> tuple[Type, ...]:
        try:
            return parse_types(text)
        except TypeTextError as error:
            bad = str(error.args[0])
            self.fail(f"expected a type, found {_shown(bad)}", bad)

    def next(self) -> str | None:
        """The next line that says something, without location and comment; None at the end."""
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line and not line.startswith("//") and not line.startswith("#loc"):
                self.line = line
                return line
        return None

    def define(self, name: str, of: Type) -> Value:
        if name in self.scope:
            self.fail(f"value {name} is defined twice", name)
        value = Value(self.values, name, of)
        self.values += 1
        self.scope[name] = value
        return value

    def use(self, name: str) -> Value:
        value = self.scope.get(name)
        if value is None and name.endswith("#0"):
            value = self.scope.get(name[:-2])
        if value is None:
            self.fail(f"use of undefined value {name}", name)
        return value


def _shown(text: str) -> str:
    """`text` in quotes, cut."""
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "…")


def parse_module(text: str, source: str = "<text>") -> Module:
    """The module that `text` spells; `source` names it in messages.

    Raises DamagedFileError, with line and column, for text that is not Triton IR, that uses an
    undefined value, or that ends too early.
    """
    reader = _Reader(text, source)
    layouts: dict[str, str] = {}
    functions: list[Function] = []
    attributes: dict[str, str] = {}
    opened = False
    while (line := reader.next()) is not None:
        alias = _ALIAS.fullmatch(line)
        if alias:
            layouts[alias[1]] = alias[2]
        elif line.startswith("module"):
            opened = True
            start = line.find("{")
            if "attributes" in line[: max(start, 0)]:
                end = closing(line, start)
                if end < 0:
                    reader.fail("the attributes of the module do not close", "attributes")
                attributes = dict(parse_attributes(line[start + 1 : end]))
        elif line.startswith("tt.func"):
            functions.append(_function(reader, line))
        elif line.startswith("}") and opened:
            opened = False
        elif line.startswith("{-#"):
            break
        else:
            reader.fail(f"expected a module or a tt.func, found {_shown(line)}")
    if opened:
        reader.fail("the text ends inside of the module")
    if not functions:
        reader.fail("there is no tt.func")
    return Module(tuple(functions), layouts, attributes, reader.values)


def _function(reader: _Reader, line: str) -> Function:
    found = _FUNCTION.match(line)
    if found is None:
        reader.fail("expected tt.func @name(arguments)")
    start, number = found.end() - 1, reader.at
    end = closing(line, start)
    if end < 0:
        reader.fail("the arguments of the function do not close", "(")
    reader.scope = {}
    arguments = _arguments(reader, line[start + 1 : end])
    rest = line[end + 1 :]
    results: tuple[Type, ...] = ()
    if rest.startswith(" -> "):
        spelled = rest[4:].partition(" attributes ")[0].removesuffix("{").strip()
        results = reader.types(spelled)
    if not line.endswith("{"):
        reader.fail("expected the body of the function")
    body, _ = _region(reader, tuple(arguments))
    name = found[2].strip('"')
    return Function(name, found[1] != "private", body.entry.arguments, body, results, number)


def _arguments(reader: _Reader, text: str) -> list[Value]:
    """`%x: type {attributes} loc(…), …`"""
    made = []
    for part in split_top(text):
        found = _ARGUMENT.match(part)
        if found is None:
            reader.fail(f"expected an argument with its type, found {_shown(part)}", part)
        spelled = re.split(r" \{| loc\(", part[found.end() :], maxsplit=1)[0]
        made.append(reader.define(found[1], reader.type(spelled)))
    return made


def _region(reader: _Reader, arguments: tuple[Value, ...]) -> tuple[Region, str]:
    """Blocks up to the line that closes the region, and that line; values go out of scope."""
    known = len(reader.scope)
    blocks: list[Block] = []
    label, operations = "", list[Operation]()
    first_line = reader.at
    while True:
        line = reader.next()
        if line is None:
            reader.at = first_line
            reader.fail("the region that opens here does not close")
        if line.startswith("}"):
            break
        if line.startswith("^"):
            if operations or label:
                blocks.append(Block(label, arguments, tuple(operations)))
                operations, arguments = [], ()
            found = _LABEL.match(line)
            if found is None:
                reader.fail("expected a block label such as ^bb0(%x: i32):")
            label = found[1]
            arguments = (*arguments, *_arguments(reader, found[2] or ""))
        else:
            operations.append(_operation(reader, line))
    blocks.append(Block(label, arguments, tuple(operations)))
    while len(reader.scope) > known:
        reader.scope.popitem()
    return Region(tuple(blocks)), line


def _operation(reader: _Reader, line: str) -> Operation:
    number = reader.at
    location = ""
    if line.endswith(")") and (found := _LOCATION.search(line)):
        location, line = found[1], line[: found.start()]
    names: list[tuple[str, int]] = []
    place = 0
    if line.startswith("%"):
        found = _RESULTS.match(line)
        if found is None:
            reader.fail("expected results and =")
        names = [(n, int(c or 1)) for n, c in _RESULT.findall(found[1])]
        place = found.end()
    found = _OPERATION.match(line, place)
    if found is None:
        reader.fail(f"expected an operation, found {_shown(line[place:])}", line[place:])
    name, rest = found[1], line[found.end() :]
    if line.endswith("{"):
        return _with_regions(reader, name, names, rest, number)
    head, listed, result_types = _signature(reader, rest)
    head, attributes = _without_attributes(reader, head)
    operands, roles = _operands(reader, head)
    successors = tuple(_SUCCESSOR.findall(head)) if "^" in head else ()
    results = _results(reader, name, names, listed, result_types, head)
    return Operation(
        name, operands, roles, results, head.strip(), attributes, listed, (), number, location,
        successors,
    )  # fmt: skip


def _signature(reader: _Reader, rest: str) -> tuple[str, tuple[Type, ...], tuple[Type, ...] | None]:
    """Text before the types, types before an arrow, types behind it."""
    place = rest.find(" : ")
    while place >= 0 and not _balanced(rest, place):
        place = rest.find(" : ", place + 3)
    if place < 0:
        if rest.startswith(": "):
            return "", reader.types(rest[2:]), None
        return rest, (), None
    before, arrow, behind = rest[place + 3 :].partition(" -> ")
    if not arrow:
        before, arrow, behind = before.partition(" to ")
    return rest[:place], reader.types(before), reader.types(behind) if arrow else None


def _balanced(text: str, end: int) -> bool:
    """Whether all brackets and strings that open before `end` close before it."""
    count = text.count
    return (
        count("{", 0, end) == count("}", 0, end)
        and count("(", 0, end) == count(")", 0, end)
        and count("[", 0, end) == count("]", 0, end)
        and count('"', 0, end) % 2 == 0
    )


def _without_attributes(reader: _Reader, head: str) -> tuple[str, str]:
    """`head` without its attribute braces, and what stood inside of them."""
    parts: list[str] = []
    while "{" in head and (found := _ATTRIBUTES.search(head)):
        start = found.end() - 1
        end = closing(head, start)
        if end < 0:
            reader.fail("the attributes do not close", head[start:])
        parts.append(head[start + 1 : end])
        head = head[: found.start()] + head[end + (2 if found[0] == "<{" else 1) :]
    return head, ", ".join(parts)


def _operands(reader: _Reader, head: str) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    if '"' in head:
        head = _STRING.sub("", head)
    found = _OPERAND.findall(head)
    return tuple(reader.use(name) for _, name in found), tuple(role for role, _ in found)


def _results(
    reader: _Reader,
    name: str,
    names: list[tuple[str, int]],
    listed: tuple[Type, ...],
    given: tuple[Type, ...] | None,
    head: str = "",
) -> tuple[Value, ...]:
    count = sum(number for _, number in names)
    if count == 0:
        return ()
    types = given
    if name in _TOKENS:
        types = (TOKEN,)
    elif types is None and listed:
        rule = _RESULT_RULES.get(name)
        types = rule(listed) if rule else listed if len(listed) == count else (listed[-1],)
    elif types is None:
        boolean = name == "arith.constant" and head.strip() in ("true", "false")
        types = (BOOL if boolean else OpaqueType("!unknown"),) * count
    elif name == "tt.split":
        types *= count
    if len(types) != count:
        reader.fail(f"{name} defines {count} values but has {len(types)} result types", name)
    made: list[Value] = []
    for result, number in names:
        if number == 1:
            made.append(reader.define(result, types[len(made)]))
        else:
            for index in range(number):
                made.append(reader.define(f"{result}#{index}", types[len(made)]))
    return tuple(made)


# --- operations with regions -------------------------------------------------------------------


def _with_regions(
    reader: _Reader, name: str, names: list[tuple[str, int]], rest: str, number: int
) -> Operation:
    rest = rest[:-1].rstrip()
    if rest.endswith("("):  # the generic form: "tt.reduce"(%x) <{axis = 0 : i32}> ({
        return _generic(reader, name, names, rest[:-1].rstrip(), number)
    arguments: tuple[Value, ...] = ()
    result_types: tuple[Type, ...] | None = None
    listed: tuple[Type, ...] = ()
    head, attributes = _without_attributes(reader, rest)
    before, arrow, behind = head.partition(" -> ")
    if name == "scf.for":
        arrow_types, _, step_type = behind.rpartition(" : ") if arrow else ("", "", "")
        head = before
        if arrow:
            result_types = reader.types(arrow_types or behind)
            listed = reader.types(step_type or "i32")
        else:
            head, _, spelled = before.rpartition("  : ") if "  : " in before else (before, "", "")
            listed = reader.types(spelled or "i32")
        operands, roles, arguments = _loop(reader, head, listed[0], result_types or ())
    elif name == "scf.while":
        head, _, spelled = before.rpartition(" : ")
        listed, result_types = reader.types(spelled), reader.types(behind)
        operands, roles, arguments = _loop(reader, head, None, listed)
    else:
        if arrow:
            result_types = reader.types(behind)
        head = before
        operands, roles = _operands(reader, head)
    opened = _Open(name, operands, roles, names, head.strip(), attributes, result_types, number)
    return _close(reader, opened, listed, arguments)


def _loop(
    reader: _Reader, head: str, induction: Type | None, carried: tuple[Type, ...]
) -> tuple[tuple[Value, ...], tuple[str, ...], tuple[Value, ...]]:
    """Bounds and initial values, and the arguments that the body sees (not yet in scope)."""
    pairs = re.findall(rf"({_NAME}) = ({_NAME}(?:#\d+)?)", head)
    bounds = re.search(rf" to ({_NAME}(?:#\d+)?) step ({_NAME}(?:#\d+)?)", head)
    operands = [reader.use(value) for _, value in pairs]
    roles = ["init"] * len(pairs)
    types = list(carried)
    if induction is not None:
        if bounds is None or not pairs:
            reader.fail("expected %i = %lower to %upper step %step")
        operands[1:1] = [reader.use(bounds[1]), reader.use(bounds[2])]
        roles[0:1] = ["from", "to", "step"]
        types = [induction, *types]
    if len(types) != len(pairs):
        reader.fail(f"{len(pairs)} values are carried but {len(types)} types are given")
    made = []
    for (name, _), kind in zip(pairs, types, strict=True):
        made.append(Value(reader.values, name, kind))
        reader.values += 1
    return tuple(operands), tuple(roles), tuple(made)


def _close(
    reader: _Reader, opened: _Open, listed: tuple[Type, ...], arguments: tuple[Value, ...]
) -> Operation:
    """Read the regions of an operation and what stands behind them."""
    location = ""
    while True:
        reader.scope.update({value.name: value for value in arguments})
        region, line = _region(reader, arguments)
        for value in arguments:
            reader.scope.pop(value.name, None)
        opened.regions.append(region)
        if not line.endswith("{"):
            break
        arguments = tuple(_partition_arguments(reader, line))
    if line.endswith(")") and (found := _LOCATION.search(line)):
        location, line = found[1], line[: found.start()]
    tail, attributes = _without_attributes(reader, line[1:])
    if " : " in tail and opened.result_types is None:  # warp_specialize: } : (…) -> …
        before, arrow, behind = tail.partition(" : ")[2].partition(" -> ")
        listed = reader.types(before)
        opened.result_types = reader.types(behind) if arrow else None
    results = _results(reader, opened.name, opened.result_names, (), opened.result_types)
    attributes = ", ".join(part for part in (opened.attributes, attributes) if part)
    return Operation(
        opened.name, opened.operands, opened.roles, results, opened.header, attributes, listed,
        tuple(opened.regions), opened.line, location,
    )  # fmt: skip


def _partition_arguments(reader: _Reader, line: str) -> list[Value]:
    """Arguments of `} partition0(%x: i32) num_warps(4) {`; none of `} else {` and `} do {`."""
    start = line.find("(%")
    if start < 0:
        return []
    made = _arguments(reader, line[start + 1 : closing(line, start)])
    for value in made:
        del reader.scope[value.name]
    return made


def _generic(
    reader: _Reader, name: str, names: list[tuple[str, int]], rest: str, number: int
) -> Operation:
    head, attributes = _without_attributes(reader, rest)
    operands, roles = _operands(reader, head)
    regions: list[Region] = []
    while True:
        region, line = _region(reader, ())
        regions.append(region)
        if not re.match(r"\}, \{$", line):
            break
    location = ""
    if line.endswith(")") and (found := _LOCATION.search(line)):
        location, line = found[1], line[: found.start()]
    if not line.startswith("})"):
        reader.fail("expected }) and the types")
    tail, more = _without_attributes(reader, line[2:])
    _, listed, result_types = _signature(reader, tail)
    results = _results(reader, name, names, listed, result_types)
    attributes = ", ".join(part for part in (attributes, more) if part)
    return Operation(
        name, operands, roles, results, head.strip(), attributes, listed, tuple(regions), number,
        location,
    )  # fmt: skip
