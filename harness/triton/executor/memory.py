"""`GlobalMemory`: the buffers of a launch in an address space of their own, every access checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tirgym.harness.triton.executor.faults import Fault
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.numbers import Array, decode, encode, memory_dtype, poison_of
from tirgym.harness.triton.executor.types import PointerType, ScalarType

__all__ = ["GlobalMemory"]

_SPACE_BITS = 40
"""Buffers lie 2^40 bytes apart: no plausible offset leads from one into another."""


class _Buffer:
    """One array: its bytes seen in any dtype."""

    def __init__(self, name: str, array: Array, base: int) -> None:
        self.name, self.base, self.nbytes = name, base, array.nbytes
        self._bytes = array.reshape(-1).view(np.uint8)
        self._views: dict[np.dtype[Any], Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """All whole elements of `dtype`."""
        if dtype not in self._views:
            whole = self.nbytes // dtype.itemsize * dtype.itemsize
            self._views[dtype] = self._bytes[:whole].view(dtype)
        return self._views[dtype]


class GlobalMemory:
    """Works on the caller's arrays in place; an access outside of all of them is a Fault."""

    def __init__(self, arrays: Sequence[tuple[str, Array]]) -> None:
        """`arrays`: name and C-contiguous array of each buffer."""
        self._buffers = [
            _Buffer(name, array, (number + 1) << _SPACE_BITS)
            for number, (name, array) in enumerate(arrays)
        ]
        self.undo: list[tuple[Array, Array, Array]] | None = None
        """view, indices and old values of every write while writes may have to be taken back"""

    def address(self, number: int) -> np.int64:
        """Address of the first byte of buffer `number`."""
        return np.int64(self._buffers[number].base)

    def take_back(self) -> None:
        """Undo all writes since `undo` was made an empty list, the newest first."""
        for view, indices, old in reversed(self.undo or []):
            view[indices] = old
        self.undo = []

    def _buffer(self, low: int, high: int, size: int) -> _Buffer | None:
        """The buffer that holds the elements at byte addresses low … high; None if none does."""
        number = (low >> _SPACE_BITS) - 1
        if 0 <= number < len(self._buffers):
            buffer = self._buffers[number]
            if high + size <= buffer.base + buffer.nbytes:
                return buffer
        return None

    def _where(self, low: int, high: int, size: int) -> str:
        """Which address is bad, in words."""
        near = (low + (1 << (_SPACE_BITS - 1))) >> _SPACE_BITS
        if not 1 <= near <= len(self._buffers):
            return "access at an address that belongs to no buffer"
        buffer = self._buffers[near - 1]
        if low < buffer.base:
            return f"access {buffer.base - low} bytes before the start of {buffer.name}"
        past = high + size - buffer.base - buffer.nbytes
        return f"access up to {past} bytes past the end of {buffer.name}"

    def _locate(
        self, operation: Operation, addresses: Array, mask: Array | None, size: int
    ) -> tuple[_Buffer, Array]:
        """The buffer that all (where `mask` is true) addresses are in, and element indices; those
        of masked elements are any number."""
        low, high = int(addresses.min()), int(addresses.max())
        buffer = self._buffer(low, high, size)
        if buffer is None and mask is not None:
            used = addresses[mask]
            low, high = int(used.min()), int(used.max())
            buffer = self._buffer(low, high, size)
        if buffer is None:
            raise Fault.wrong(operation, self._where(low, high, size))
        offsets = addresses - buffer.base
        if size > 1:
            odd = offsets & (size - 1)
            if odd.any() and (mask is None or odd[mask].any()):
                raise Fault.wrong(operation, f"address in {buffer.name} not a multiple of {size}")
            offsets >>= size.bit_length() - 1
        return buffer, offsets

    def load(
        self,
        operation: Operation,
        addresses: Array,
        element: ScalarType | PointerType,
        mask: Array | None,
        other: Array | None,
    ) -> Array:
        """Values at `addresses`; where `mask` is false `other`, or poison without one.

        `mask` and `other` have the shape of `addresses`, or one that broadcasts to it.
        """
        if mask is not None:
            if mask.all():
                mask = None
            else:
                mask = np.broadcast_to(mask, addresses.shape)
                if not mask.any():
                    return _filled(addresses.shape, element, other)
        dtype = memory_dtype(element)
        buffer, indices = self._locate(operation, addresses, mask, dtype.itemsize)
        view = buffer.view(dtype)
        if mask is None:
            return decode(view.take(indices, mode="clip"), element)
        values = decode(view.take(indices, mode="clip"), element)
        fill = poison_of(element) if other is None else other
        return np.where(mask, values, fill).astype(values.dtype, copy=False)

    def store(
        self,
        operation: Operation,
        addresses: Array,
        element: ScalarType | PointerType,
        values: Array,
        mask: Array | None,
    ) -> None:
        """Write `values` where `mask` is true."""
        values = np.broadcast_to(values, addresses.shape)
        if mask is not None and not mask.all():
            mask = np.broadcast_to(mask, addresses.shape)
            addresses, values = addresses[mask], values[mask]
            if addresses.size == 0:
                return
        dtype = memory_dtype(element)
        buffer, indices = self._locate(operation, addresses, None, dtype.itemsize)
        self.write(buffer.view(dtype), indices, encode(values, element))

    def write(self, view: Array, indices: Array, values: Array) -> None:
        """`view[indices] = values`, remembered while it may have to be taken back."""
        if self.undo is not None:
            self.undo.append((view, indices, view[indices]))
        view[indices] = values

    def cells(
        self, operation: Operation, addresses: Array, element: ScalarType | PointerType
    ) -> tuple[Array, Array]:
        """The memory behind `addresses`, as a view in `memory_dtype` and indices into it."""
        dtype = memory_dtype(element)
        buffer, indices = self._locate(operation, addresses, None, dtype.itemsize)
        return buffer.view(dtype), indices


def _filled(
    shape: tuple[int, ...], element: ScalarType | PointerType, other: Array | None
) -> Array:
    fill = poison_of(element) if other is None else other
    return np.broadcast_to(np.asarray(fill), shape)
