"""How a kernel touches memory, from its TTGIR: coalescing of global accesses, shared-memory conflicts.

Layouts are Triton's own: its bindings answer which element each register of each lane holds. They
print complaints when the process ends, and one of them ends the process if it is asked wrongly; call
`memory_facts` in a process of its own (`CompilePool.call_many`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.triton.compiling import compile_here, parse_module
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.parser import parse_module as parse_text
from tirgym.harness.triton.executor.types import PointerType, TensorType
from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.index_values import Visit, visits
from tirgym.harness.triton.request import CompileRequest

__all__ = ["GlobalAccess", "MemoryFacts", "SharedAccess", "memory_facts"]

_VECTOR_BYTES = 16
"""widest access of one thread, NVIDIA and AMD"""
_SEGMENT_BYTES = {"nvidia": 32, "amd": 64}
"""what memory is fetched in: sectors of a cache line (NVIDIA), half lines (AMD)"""


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """One load, store or asynchronous copy, as the first warp of the first program runs it."""

    operation: str
    """"tt.load" """
    tensor: str
    line: int
    """of the TTGIR text"""
    times: int
    """how often one program runs it"""
    nbytes: int
    """that one program asks for each time, masks ignored"""
    vector_bytes: int
    """contiguous bytes of one thread, at most 16; 0 where addresses depend on data"""
    segments: int
    """32-byte (AMD: 64-byte) pieces of memory that the first instruction of a warp touches"""
    ideal_segments: int
    """as few as could hold the same bytes"""

    @property
    def efficiency(self) -> float:
        """Share of the fetched bytes that are asked for; 0 where unknown."""
        return self.ideal_segments / self.segments if self.segments else 0.0


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One load from or store to shared memory."""

    operation: str
    shape: str
    conflicts: int | None
    """extra passes of one access because of bank conflicts; None where Triton cannot tell"""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """All accesses of a kernel."""

    accesses: tuple[GlobalAccess, ...]
    shared: tuple[SharedAccess, ...]


@dataclass(frozen=True, slots=True)
class _Bases:
    """Linear layout: place of element 0, moved by one basis for each bit of register and lane."""

    registers: tuple[tuple[int, ...], ...]
    lanes: tuple[tuple[int, ...], ...]


def memory_facts(request: CompileRequest) -> MemoryFacts:
    """Facts of the kernel that `request` compiles; raises CompileFailedError."""
    text = compile_here(request.changed(until="ttgir")).texts["ttgir"]
    layouts, shared = _asked(text, request.gpu)
    module = parse_text(text)
    found = []
    for visit in visits(module, request.launch):
        place = _POINTERS.get(visit.operation.name)
        if place is not None:
            found.append(_access(visit, place, module.layouts, layouts, request.gpu))
    return MemoryFacts(tuple(found), tuple(shared))


_POINTERS = {
    "tt.load": 0,
    "tt.store": 0,
    "tt.atomic_rmw": 0,
    "ttg.async_copy_global_to_local": 0,
    "amdg.buffer_load": 1,
    "amdg.buffer_store": 2,
    "amdg.buffer_load_to_local": 2,
}
"""Global access → its operand that has the addresses: pointers, or offsets in elements (AMD)."""


def _access(
    visit: Visit,
    place: int,
    aliases: Mapping[str, str],
    layouts: Mapping[str, _Bases],
    gpu: Gpu,
) -> GlobalAccess:
    operation = visit.operation
    where = operation.operands[place]
    size = _element_bytes(operation, place)
    tensor = next(
        (visit.roots[v.number] for v in operation.operands if v.number in visit.roots), "?"
    )
    count = int(np.prod(where.type.shape, dtype=np.int64))
    addresses = visit.values.get(where.number)
    vector = segments = ideal = 0
    if addresses is not None and isinstance(where.type, TensorType):
        bases = layouts.get(_full_type(where.type, aliases))
        if not isinstance(where.type.element, PointerType):
            addresses = addresses * size
        if bases is not None:
            vector, segments, ideal = _coalescing(
                addresses, bases, size, _SEGMENT_BYTES[gpu.vendor]
            )
    return GlobalAccess(
        operation.name, tensor, operation.line, visit.times, count * size, vector, segments, ideal
    )


def _element_bytes(operation: Operation, place: int) -> int:
    for operand in (operation.operands[place], *operation.operands):
        element = operand.type.element
        if isinstance(element, PointerType):
            return max(1, element.pointee.element.bits // 8)
    return 4


def _coalescing(
    addresses: NDArray[np.int64], bases: _Bases, size: int, segment: int
) -> tuple[int, int, int]:
    """Vector bytes of a thread, segments that a warp's first instruction touches, and at least."""
    shape = addresses.shape
    origin = int(addresses.reshape(-1)[0])
    width = 1
    for bit, basis in enumerate(bases.registers):
        if width * size >= _VECTOR_BYTES or width != 1 << bit:
            break
        if int(addresses[_wrapped(basis, shape)]) - origin != width * size:
            break
        width *= 2
    touched = np.zeros((1, len(shape)), np.int64)
    for basis in (*bases.registers[: width.bit_length() - 1], *bases.lanes):
        touched = np.concatenate((touched, touched ^ np.asarray(basis)))
    places = tuple(touched[:, axis] % extent for axis, extent in enumerate(shape))
    unique = np.unique(addresses[places])
    segments = len(np.unique(unique // segment))
    return width * size, segments, -(-len(unique) * size // segment)


def _wrapped(basis: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(step % extent for step, extent in zip(basis, shape, strict=True))


def _full_type(of: TensorType, aliases: Mapping[str, str]) -> str:
    """The type's text with every layout alias written out."""
    text = str(of)
    for _ in range(8):
        longer = re.sub(r"#\w+(?![\w.])", lambda m: aliases.get(m[0], m[0]), text)
        if longer == text:
            break
        text = longer
    return text


def _asked(text: str, gpu: Gpu) -> tuple[dict[str, _Bases], list[SharedAccess]]:
    """Bases of every tensor type that addresses global memory, and the shared accesses, from
    Triton's bindings."""
    from triton._C.libtriton import gluon_ir, ir
    from triton.compiler.compiler import make_backend

    context = ir.context()
    ir.load_dialects(context)
    make_backend(gpu.triton_target()).load_dialects(context)
    module = parse_module(text, "ttgir", context)
    builder = gluon_ir.GluonOpBuilder(context)
    layouts: dict[str, _Bases] = {}
    shared: list[SharedAccess] = []

    def ask(operation: Any) -> None:
        name = operation.get_name()
        if name in _POINTERS:
            builder.set_insertion_point_to_start(operation.get_block())
            value = operation.get_operand(_POINTERS[name])
            of = str(value.get_type())
            if of.startswith("tensor<") and of not in layouts:
                layouts[of] = _bases(builder, value, of)
        elif name in _SHARED:
            builder.set_insertion_point_to_start(operation.get_block())
            shared.append(_conflicts(builder, operation, name, gpu))

    module.walk(ask)
    return layouts, shared


def _bases(builder: Any, value: Any, of: str) -> _Bases:
    layout = builder.get_gluon_layout_from_tensor(value)
    linear = builder.to_linear_layout(layout._to_ir(builder), list(_sizes(of)))
    return _Bases(tuple(map(tuple, linear.reg_bases)), tuple(map(tuple, linear.lane_bases)))


_SHARED = {"ttg.local_load": ("result", 0), "ttg.local_store": (0, 1)}
"""Shared access → where its registers and its memory are."""


def _conflicts(builder: Any, operation: Any, name: str, gpu: Gpu) -> SharedAccess:
    registers, memory = _SHARED[name]
    value = operation.get_result(0) if registers == "result" else operation.get_operand(registers)
    descriptor = operation.get_operand(memory)
    of = str(descriptor.get_type())
    shape, found = _sizes(of), None
    if gpu.vendor == "nvidia" and not _is_part(of):
        # Without the insertion point, which the caller has set, Triton 3.9 ends the process here;
        # for layouts of AMD's matrix units it does so in any case.
        found = int(
            builder.get_shared_bank_conflicts(
                builder.get_gluon_layout_from_tensor(value)._to_ir(builder),
                builder.get_gluon_layout_from_memdesc(descriptor)._to_ir(builder),
                list(shape),
                _bits(of),
            )
        )
    return SharedAccess(name, "x".join(map(str, shape)), found)


def _sizes(of: str) -> tuple[int, ...]:
    """Extents of `tensor<128x32x…>` or `!ttg.memdesc<128x32x…>`."""
    found = re.search(r"<((?:\d+x)+)", of)
    return tuple(int(n) for n in found[1].rstrip("x").split("x")) if found else ()


def _bits(of: str) -> int:
    found = re.search(r"<(?:\d+x)+[a-z]+(\d+)", of)
    return int(found[1]) if found else 32


def _is_part(of: str) -> bool:
    """Whether a view is smaller than its allocation (a slice), which Triton does not count."""
    shape = _sizes(of)
    allocated = re.search(r", ((?:\d+x)*\d+)>$", of)
    if allocated is None:
        return False
    return tuple(int(n) for n in allocated[1].split("x"))[-len(shape) :] != shape
