"""`TritonEncoder`: TTIR and TTGIR as graphs of operations, values, types, layouts and regions."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.triton.executor.ir import Function, Module, Operation, Region, Value
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.harness.triton.executor.types import (
    MemDescType,
    TensorType,
    Type,
)
from tirgym.spaces.graph import BOUND, IRGraph
from tirgym.spaces.hardware import hardware_features, log_size
from tirgym.spaces.triton_rows import Row, layout_row, operand_row, sizes, type_row
from tirgym.spaces.triton_tables import (
    OPERATIONS,
    TRITON,
    TritonEdge,
    TritonNode,
)

if TYPE_CHECKING:
    from tirgym.harness.triton.program import TritonProgram

__all__ = ["TritonEncoder", "triton_graph", "triton_tree"]

Place = tuple[TritonNode, int]
"""A node: its type, and its number among those of the type."""

_KINDS = {name: place for place, names in enumerate(OPERATIONS.values()) for name in names}
_OTHER = len(OPERATIONS)
_ASYNCHRONOUS = frozenset(
    {"ttg.async_copy_global_to_local", "ttg.async_wait", "ttg.async_commit_group"}
)
_REGIONS = {"scf.for": 1, "scf.while": 1, "scf.if": 2, "tt.reduce": 3, "tt.scan": 3}
_DOTS = frozenset({"tt.dot", "ttng.warp_group_dot"})
_NO_ROW = (0.0,) * len(TRITON.edge_features)


class TritonEncoder:
    """Encodes programs whose `request` compiles to TTGIR; keeps the graphs of the last programs."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[tuple[str, Target], IRGraph] = OrderedDict()

    def encode(self, program: Program) -> IRGraph:
        """The program's TTGIR as a graph; raises TypeError for another dialect's program.

        Compiles in this process what no cache has.
        """
        made = _triton_program(program)
        key = made.ir_key, made.target
        found = self._graphs.get(key)
        if found is None:
            found = self._graphs[key] = triton_graph(_module_of(made), made.target)
            while len(self._graphs) > _GRAPHS_KEPT:
                self._graphs.popitem(last=False)
        return found

    def tree(self, program: Program) -> list[str]:
        """One line for each operation of the program's TTGIR, indented by depth."""
        return triton_tree(_module_of(_triton_program(program)))


_GRAPHS_KEPT = 1024
"""About 100 kB each."""


def _triton_program(program: Program) -> TritonProgram:
    from tirgym.harness.triton.program import TritonProgram

    if not isinstance(program, TritonProgram):
        raise TypeError(f"expected a TritonProgram, got {type(program).__name__}")
    return program


def _module_of(program: TritonProgram) -> Module:
    from tirgym.harness.triton.compiling import lowered

    return parse_module(lowered(program.request, "ttgir"))


def triton_graph(module: Module | str, target: Target) -> IRGraph:
    """A module, or the text of one, as a graph; blind to names and source locations.

    Raises DamagedFileError for text that does not parse.
    """
    parsed = parse_module(module) if isinstance(module, str) else module
    return _Graph(parsed).made(target)


def triton_tree(module: Module) -> list[str]:
    """One line for each operation, numbered as in the graph, indented by depth."""
    lines: list[str] = []

    def of_region(region: Region, depth: int) -> None:
        for block in region.blocks:
            for operation in block.operations:
                shape = ", ".join(str(value.type) for value in operation.results)
                arrow = f" -> {shape}" if shape else ""
                lines.append(f"{'  ' * depth}op {len(lines)}: {operation.name}{arrow}")
                for inner in operation.regions:
                    of_region(inner, depth + 1)

    for function in module.functions:
        of_region(function.body, 0)
    return lines


class _Graph:
    """Rows and edges of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.rows: dict[TritonNode, list[Row]] = {kind: [] for kind in TritonNode}
        self.edges: list[tuple[TritonEdge, Place, Place, Row]] = []
        self.values: dict[int, int] = {}
        self.uses: dict[int, int] = {}
        self.types: dict[str, int] = {}
        self.layouts: dict[str, int] = {}
        self.constants: dict[int, int] = {}
        for operation in module.walk():
            for operand in operation.operands:
                self.uses[operand.number] = self.uses.get(operand.number, 0) + 1
            if operation.name == "arith.constant":
                number = re.fullmatch(r"(?:dense<)?(-?\d+)>?", operation.header)
                if number:
                    self.constants[operation.results[0].number] = int(number[1])

    def made(self, target: Target) -> IRGraph:
        """The whole graph."""
        warps = int(self.module.attributes.get("ttg.num-warps", "0"))
        level = float(self.module.level == "ttgir")
        hardware = (*hardware_features(target), log_size(warps), level)
        self.rows[TritonNode.HARDWARE].append(hardware)
        for function in self.module.functions:
            self._function(function)
        return self._arrays()

    # --- nodes ----------------------------------------------------------------------------------

    def _function(self, function: Function) -> None:
        self._region(function.body, (TritonNode.HARDWARE, 0), 0, 0, function.arguments)

    def _region(
        self,
        region: Region,
        parent: Place,
        kind: int,
        depth: int,
        arguments: tuple[Value, ...],
    ) -> int:
        number = len(self.rows[TritonNode.REGION])
        node = (TritonNode.REGION, number)
        count = sum(len(block.operations) for block in region.blocks)
        row = [0.0] * 4
        row[kind] = 1.0
        size = (depth / 8, log_size(count), len(arguments) / 8)
        self.rows[TritonNode.REGION].append((*row, *size))
        self._edge(TritonEdge.NESTING, parent, node)
        for argument in arguments:
            self._edge(TritonEdge.ARGUMENT, node, self._value(argument, kind == 1, True))
        for block in region.blocks:
            before = -1
            for operation in block.operations:
                place = self._operation(operation, node, depth)
                if before >= 0:
                    self._edge(
                        TritonEdge.ORDER,
                        (TritonNode.OPERATION, before),
                        (TritonNode.OPERATION, place),
                    )
                before = place
        return number

    def _operation(self, operation: Operation, parent: Place, depth: int) -> int:
        place = len(self.rows[TritonNode.OPERATION])
        node = (TritonNode.OPERATION, place)
        self.rows[TritonNode.OPERATION].append(self._operation_row(operation, depth))
        self._edge(TritonEdge.NESTING, parent, node)
        dot = operation.name in _DOTS
        pairs = zip(operation.operands, operation.roles, strict=True)
        for position, (operand, role) in enumerate(pairs):
            row = operand_row(position, role, dot and position == 2)
            self._edge(TritonEdge.OPERAND, self._value(operand), node, row)
        for region in operation.regions:
            kind = _REGIONS.get(operation.name, 2)
            self._region(region, node, kind, depth + 1, region.entry.arguments)
        for result in operation.results:
            self._edge(TritonEdge.RESULT, node, self._value(result))
        if operation.name in ("scf.for", "scf.if"):
            self._carried(operation)
        return place

    def _carried(self, operation: Operation) -> None:
        """Yielded values become results, and arguments of the next iteration."""
        initial = operation.operands[3:] if operation.name == "scf.for" else ()
        for region in operation.regions:
            entry = region.entry
            yielded = entry.operations[-1].operands if entry.operations else ()
            arguments = entry.arguments[1:] if operation.name == "scf.for" else ()
            for sources, targets in (
                (initial, arguments), (yielded, arguments), (yielded, operation.results),
            ):  # fmt: skip
                for source, target in zip(sources, targets, strict=False):
                    self._edge(TritonEdge.CARRIED, self._value(source), self._value(target))

    def _operation_row(self, operation: Operation, depth: int) -> Row:
        kinds = [0.0] * (_OTHER + 1)
        kinds[_KINDS.get(operation.name, _OTHER)] = 1.0
        of = operation.results[0].type if operation.results else None
        if of is None and operation.operands:
            of = operation.operands[-1 if operation.name != "tt.store" else 0].type
        elements, nbytes = sizes(of)
        masked = "mask" in operation.roles or (
            len(operation.operands) > {"tt.load": 1, "tt.store": 2}.get(operation.name, 99)
        )
        text = operation.attributes_text
        asynchronous = operation.name in _ASYNCHRONOUS or "isAsync = true" in text
        pending = re.search(r"(?:num|pendings) = (\d+)", text)
        trips = self._trips(operation)
        return (
            *kinds,
            depth / 8,
            len(operation.operands) / 8,
            len(operation.results) / 8,
            log_size(elements),
            log_size(nbytes),
            float(masked),
            float(asynchronous),
            int(pending[1]) / 8 if pending else 0.0,
            float(trips is not None),
            log_size(trips or 0),
        )

    def _trips(self, operation: Operation) -> int | None:
        """Iterations of a loop with constant bounds."""
        if operation.name != "scf.for":
            return None
        bounds = [self.constants.get(value.number) for value in operation.operands[:3]]
        low, high, step = bounds
        if low is None or high is None or not step:
            return None
        return max(0, math.ceil((high - low) / step))

    def _value(self, value: Value, carried: bool = False, argument: bool = False) -> Place:
        place = self.values.get(value.number)
        if place is None:
            place = len(self.values)
            self.values[value.number] = place
            constant = self.constants.get(value.number)
            self.rows[TritonNode.VALUE].append(
                (
                    float(argument),
                    float(carried),
                    float(constant is not None),
                    log_size(abs(constant or 0)),
                    float((constant or 0) < 0),
                    self.uses.get(value.number, 0) / 8,
                    float(constant is not None and constant != 0 and constant % 16 == 0),
                )
            )
            self._edge(TritonEdge.TYPED, (TritonNode.VALUE, place), self._type(value.type))
        return TritonNode.VALUE, place

    def _type(self, of: Type) -> Place:
        encoding = of.encoding if isinstance(of, TensorType | MemDescType) else ""
        text = str(of)
        place = self.types.get(text)
        if place is None:
            place = len(self.types)
            self.types[text] = place
            self.rows[TritonNode.TYPE].append(type_row(of))
            if encoding:
                layout = self._layout(encoding)
                self._edge(TritonEdge.LAID_OUT, (TritonNode.TYPE, place), layout)
        return TritonNode.TYPE, place

    def _layout(self, encoding: str) -> Place:
        text = self.module.layouts.get(encoding, encoding)
        place = self.layouts.get(text)
        if place is None:
            place = len(self.layouts)
            self.layouts[text] = place
            self.rows[TritonNode.LAYOUT].append(layout_row(text))
            parent = re.search(r"parent = (#[\w.]+(?:<\{.*\}>)?)", text)
            if parent:
                above = self._layout(parent[1])
                self._edge(TritonEdge.LAID_OUT, (TritonNode.LAYOUT, place), above)
        return TritonNode.LAYOUT, place

    # --- arrays ---------------------------------------------------------------------------------

    def _edge(
        self,
        kind: TritonEdge,
        source: Place,
        target: Place,
        row: Row = _NO_ROW,
    ) -> None:
        self.edges.append((kind, source, target, row))

    def _arrays(self) -> IRGraph:
        counts = tuple(len(self.rows[kind]) for kind in TritonNode)
        nodes = np.zeros((sum(counts), len(TRITON.node_features)), np.float32)
        first: dict[TritonNode, int] = {}
        start = 0
        for kind, count in zip(TritonNode, counts, strict=True):
            first[kind] = start
            if count:
                nodes[start : start + count, kind] = 1.0
                nodes[start : start + count, TRITON.columns[kind]] = self.rows[kind]
            start += count
        np.clip(nodes, -BOUND, BOUND, out=nodes)
        links = np.array(
            [[first[k] + i for _, (k, i), _, _ in self.edges],
             [first[k] + i for _, _, (k, i), _ in self.edges]],
            np.int32,
        )  # fmt: skip
        edges = np.array([row for _, _, _, row in self.edges], np.float32)
        types = np.array([kind for kind, _, _, _ in self.edges], np.int32)
        for array in (nodes, edges, types, links):
            array.flags.writeable = False
        return IRGraph(counts, nodes, edges, types, links, TRITON)
