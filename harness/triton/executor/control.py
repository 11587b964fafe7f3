"""Compiled regions, and steps of control flow: loops, conditions, calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.harness.triton.executor.faults import Diverged, Fault, uncovered
from tirgym.harness.triton.executor.ir import Block, Operation, Region
from tirgym.harness.triton.executor.numbers import compute_dtype
from tirgym.harness.triton.executor.steps import Builder, Compile, Frame, Run, Step, one_answer

__all__ = ["CONTROL", "CompiledRegion", "compile_region"]

_BRANCHES = ("cf.br", "cf.cond_br")
_TERMINATORS = frozenset(
    {"scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", *_BRANCHES}
)
_TARGET = re.compile(r"(\^\w+)(?:\(([^:)]*))?")


@dataclass(slots=True)
class _CompiledBlock:
    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    operands: tuple[int, ...]
    """of the terminator, when it leaves the region"""
    condition: int | None
    targets: tuple[tuple[int, tuple[int, ...]], ...]
    """block and its operands, when the terminator is a branch"""


class CompiledRegion:
    """The blocks of a region; `Body` of steps.py."""

    def __init__(self, blocks: list[_CompiledBlock]) -> None:
        self._blocks = blocks
        self.arguments = blocks[0].arguments

    def run(self, frame: Frame, run: Run) -> list[Any]:
        """Execute it; the operands of the terminator that leaves it."""
        block = self._blocks[0]
        while True:
            run.spend(len(block.steps) + 1)
            for step in block.steps:
                step(frame, run)
            if not block.targets:
                return [frame[number] for number in block.operands]
            choice = 0
            if block.condition is not None:
                choice = 0 if one_answer(frame[block.condition]) else 1
            target, operands = block.targets[choice]
            values = [frame[number] for number in operands]
            block = self._blocks[target]
            _bind(frame, block.arguments, values)


def compile_region(region: Region, compile_one: Callable[[Operation], Step]) -> CompiledRegion:
    """Compile all operations of `region`."""
    labels = {block.label: number for number, block in enumerate(region.blocks)}
    return CompiledRegion([_block(block, labels, compile_one) for block in region.blocks])


def _block(
    block: Block, labels: dict[str, int], compile_one: Callable[[Operation], Step]
) -> _CompiledBlock:
    *inner, last = block.operations or (None,)
    if last is not None and last.name not in _TERMINATORS:
        inner, last = [*inner, last], None
    steps = tuple(compile_one(operation) for operation in inner if operation is not None)
    arguments = tuple(value.number for value in block.arguments)
    operands = tuple(value.number for value in last.operands) if last else ()
    if last is None or last.name not in _BRANCHES:
        return _CompiledBlock(arguments, steps, operands, None, ())
    condition, rest = (operands[0], operands[1:]) if last.name == "cf.cond_br" else (None, operands)
    targets = []
    for label, listed in _TARGET.findall(last.header):
        count = listed.count("%")
        targets.append((labels[label], rest[:count]))
        rest = rest[count:]
    return _CompiledBlock(arguments, steps, (), condition, tuple(targets))


def _for(operation: Operation, builder: Builder) -> Step:
    low, high, stride = (value.number for value in operation.operands[:3])
    initial = [value.number for value in operation.operands[3:]]
    body = builder.body(operation.regions[0])
    induction, *carried = body.arguments
    dtype = compute_dtype(operation.operands[0].type.element)
    results = [value.number for value in operation.results]
    if operation.header.startswith("unsigned"):
        raise uncovered(operation, "a loop over unsigned numbers")

    def step(frame: Frame, run: Run) -> None:
        bounds = (frame[low], frame[high], frame[stride])
        if any(np.ndim(bound) for bound in bounds):
            rows = np.stack(np.broadcast_arrays(*bounds), axis=-1)
            if (rows != rows[0]).any():
                raise Diverged(np.unique(rows, axis=0, return_inverse=True)[1])
            bounds = tuple(rows[0])
        first, end, by = (int(bound) for bound in bounds)
        if by <= 0:
            raise Fault.wrong(operation, f"a loop with step {by}")
        values = [frame[number] for number in initial]
        for index in range(first, end, by):
            frame[induction] = dtype.type(index)
            _bind(frame, carried, values)
            values = body.run(frame, run)
        _bind(frame, results, values)

    return step


def _bind(frame: Frame, numbers: Sequence[int], values: Sequence[Any]) -> None:
    """Give the values with those numbers."""
    for number, value in zip(numbers, values, strict=True):
        frame[number] = value


def _if(operation: Operation, builder: Builder) -> Step:
    condition = operation.operands[0].number
    bodies = [builder.body(region) for region in operation.regions]
    results = [value.number for value in operation.results]

    def step(frame: Frame, run: Run) -> None:
        choice = 0 if one_answer(frame[condition]) else 1
        if choice < len(bodies):
            _bind(frame, results, bodies[choice].run(frame, run))

    return step


def _while(operation: Operation, builder: Builder) -> Step:
    initial = [value.number for value in operation.operands]
    before, after = (builder.body(region) for region in operation.regions)
    results = [value.number for value in operation.results]

    def step(frame: Frame, run: Run) -> None:
        values = [frame[number] for number in initial]
        while True:
            _bind(frame, before.arguments, values)
            condition, *values = before.run(frame, run)
            if not one_answer(condition):
                break
            _bind(frame, after.arguments, values)
            values = after.run(frame, run)
        _bind(frame, results, values)

    return step


def _call(operation: Operation, builder: Builder) -> Step:
    found = re.search(r"@(?:\"([^\"]*)\"|([\w$.]+))", operation.header)
    if found is None:
        raise uncovered(operation, "a call without a name")
    body = builder.called(found[1] or found[2], operation)
    operands = [value.number for value in operation.operands]
    results = [value.number for value in operation.results]

    def step(frame: Frame, run: Run) -> None:
        values = [frame[number] for number in operands]
        _bind(frame, body.arguments, values)
        _bind(frame, results, body.run(frame, run))

    return step


def _execute_region(operation: Operation, builder: Builder) -> Step:
    body = builder.body(operation.regions[0])
    results = [value.number for value in operation.results]

    def step(frame: Frame, run: Run) -> None:
        _bind(frame, results, body.run(frame, run))

    return step


CONTROL: dict[str, Compile] = {
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "scf.execute_region": _execute_region,
    "tt.call": _call,
}
"""Operation → how it is compiled."""
