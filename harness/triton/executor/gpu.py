"""Steps of TTGIR: shared memory, asynchronous copies and their waits, warp-group products."""

from __future__ import annotations

import re

import numpy as np

from tirgym.harness.triton.executor.accesses import nothing, pointee_of, together
from tirgym.harness.triton.executor.faults import Fault, uncovered
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.numbers import Array, is_covered
from tirgym.harness.triton.executor.shaping import dot_product
from tirgym.harness.triton.executor.shared import MemDesc, Pending
from tirgym.harness.triton.executor.steps import (
    Builder,
    Compile,
    Frame,
    Run,
    Step,
    full,
    one_answer,
)
from tirgym.harness.triton.executor.types import MemDescType

__all__ = ["GPU"]

_TOKEN = "token"


def _allocate(operation: Operation, builder: Builder) -> Step:
    result = operation.results[0]
    of = result.type
    if not isinstance(of, MemDescType) or not is_covered(of):
        raise uncovered(operation, f"shared memory of {of}")
    source = operation.operands[0] if operation.operands else None

    def step(frame: Frame, run: Run) -> None:
        made = MemDesc.allocate(of, run.programs)
        if source is not None:
            made.store(operation, frame[source.number])
        frame[result.number] = made

    return step


def _deallocate(operation: Operation, builder: Builder) -> Step:
    operand = operation.operands[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[operand].deallocate(operation)

    return step


def _index(operation: Operation, builder: Builder) -> Step:
    source, index = operation.operands
    result = operation.results[0]
    length = source.type.shape[0]
    keeps_axis = len(result.type.shape) == len(source.type.shape)

    def step(frame: Frame, run: Run) -> None:
        place = int(one_answer(frame[index.number]))
        if not 0 <= place < length:
            raise Fault.wrong(operation, f"index {place} of {length} buffers in shared memory")
        chosen = slice(place, place + 1) if keeps_axis else place
        frame[result.number] = frame[source.number].view((chosen,))

    return step


def _subslice(operation: Operation, builder: Builder) -> Step:
    source, result = operation.operands[0], operation.results[0]
    listed = re.search(r"\[([\d, ]*)\]", operation.header)
    if listed is None:
        raise uncovered(operation, "a subslice with computed offsets")
    offsets = [int(number) for number in listed[1].split(",")]
    index = tuple(
        slice(start, start + size) for start, size in zip(offsets, result.type.shape, strict=True)
    )

    def step(frame: Frame, run: Run) -> None:
        frame[result.number] = frame[source.number].view(index)

    return step


def _transpose(operation: Operation, builder: Builder) -> Step:
    source, result = operation.operands[0].number, operation.results[0].number
    order = operation.integers("order")

    def step(frame: Frame, run: Run) -> None:
        frame[result] = frame[source].transposed(order)

    return step


def _local_load(operation: Operation, builder: Builder) -> Step:
    source, result = operation.operands[0].number, operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = frame[source].load(operation)

    return step


def _local_store(operation: Operation, builder: Builder) -> Step:
    value, target = (operand.number for operand in operation.operands[:2])

    def step(frame: Frame, run: Run) -> None:
        frame[target].store(operation, np.asarray(frame[value]))

    return step


def _copy(operation: Operation, builder: Builder) -> Step:
    pointer, target = operation.operands[:2]
    mask, other = operation.operand("mask"), operation.operand("other")
    element = pointee_of(operation, pointer.type)
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        addresses, keep = together(
            frame[pointer.number], None if mask is None else frame[mask.number]
        )
        fill = None if other is None else frame[other.number]
        values = run.memory.load(operation, addresses, element, keep, fill)
        run.jobs.copy(operation, frame[target.number], values)
        frame[result] = _TOKEN

    return step


def _commit(operation: Operation, builder: Builder) -> Step:
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        run.jobs.commit()
        frame[result] = _TOKEN

    return step


def _wait(operation: Operation, builder: Builder) -> Step:
    result, pending = operation.results[0].number, operation.integer("num")

    def step(frame: Frame, run: Run) -> None:
        run.jobs.wait(pending)
        frame[result] = _TOKEN

    return step


def _warp_group_dot(operation: Operation, builder: Builder) -> Step:
    a, b, c = operation.operands[:3]
    use_c = operation.operands[3] if len(operation.operands) > 3 else None
    result = operation.results[0].number
    product = dot_product(operation, a.type.element)
    asynchronous = operation.attributes.get("isAsync", "false") == "true"
    shapes = (a.type.shape, b.type.shape)

    def operand(frame: Frame, number: int, shape: tuple[int, ...]) -> Array:
        value = frame[number]
        return value.load(operation) if isinstance(value, MemDesc) else full(value, shape)

    def step(frame: Frame, run: Run) -> None:
        accumulator = frame[c.number]
        if isinstance(accumulator, Pending):  # products of one warp group run in order
            accumulator = accumulator.value
        if use_c is not None and not one_answer(frame[use_c.number]):
            accumulator = None
        value = product(
            operand(frame, a.number, shapes[0]), operand(frame, b.number, shapes[1]), accumulator
        )
        if asynchronous:
            reads = tuple(m for m in (frame[a.number], frame[b.number]) if isinstance(m, MemDesc))
            frame[result] = run.jobs.start_product(value, reads, operation.line)
        else:
            run.jobs.wait_products(0)
            frame[result] = value

    return step


def _wait_products(operation: Operation, builder: Builder) -> Step:
    pending = operation.integer("pendings")
    pairs = [
        (operand.number, result.number)
        for operand, result in zip(operation.operands, operation.results, strict=True)
    ]

    def step(frame: Frame, run: Run) -> None:
        run.jobs.wait_products(pending)
        for operand, result in pairs:
            value = frame[operand]
            frame[result] = value.value if isinstance(value, Pending) and value.done else value

    return step


GPU: dict[str, Compile] = {
    "ttg.local_alloc": _allocate,
    "ttg.local_dealloc": _deallocate,
    "ttg.memdesc_index": _index,
    "ttg.memdesc_subslice": _subslice,
    "ttg.memdesc_trans": _transpose,
    "ttg.local_load": _local_load,
    "ttg.local_store": _local_store,
    "ttg.async_copy_global_to_local": _copy,
    "ttg.async_commit_group": _commit,
    "ttg.async_wait": _wait,
    "ttng.warp_group_dot": _warp_group_dot,
    "ttng.warp_group_dot_wait": _wait_products,
    "ttng.fence_async_shared": nothing,
}
"""Operation → how it is compiled."""
