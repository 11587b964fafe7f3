"""`GuardedBuffer`: a tensor in memory with guard bands on both sides, poisoned before each call."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from tirgym.kernels_suite.kernel import Array, Tensor

__all__ = ["ALIGNMENT", "GUARD_BYTES", "GuardedBuffer", "Poison", "same_bits"]

ALIGNMENT = 64
"""Bytes; what TVM's kernels assume, and what DLPack import asks for."""
GUARD_BYTES = 4096
"""Bytes of guard on each side: 64 cache lines, more than the widest vector tail."""
_PAGE = 4096


class Poison(IntEnum):
    """What fills an output before a call; a kernel that reads or skips it shows in one of them."""

    NAN = 0
    """NaN; integers: alternating bits"""
    HIGH = 1
    """the largest finite value: survives a maximum whose initial value was dropped"""
    LOW = 2
    """the smallest finite value: survives a minimum whose initial value was dropped"""


def same_bits(one: Array, two: Array) -> bool:
    """Whether two C-contiguous arrays hold the same bytes."""
    if one.nbytes != two.nbytes:
        return False
    word = next(
        w for w in (np.uint64, np.uint32, np.uint16, np.uint8) if one.nbytes % w(0).itemsize == 0
    )
    a, b = (np.ascontiguousarray(array).reshape(-1).view(word) for array in (one, two))
    return bool(np.array_equal(a, b))


def poison_value(dtype: np.dtype[Any], poison: Poison) -> Any:
    """One element of `dtype` that stands for `poison`."""
    if dtype.kind == "f":
        info = np.finfo(dtype)
        return dtype.type((np.nan, info.max, info.min)[poison])
    if dtype.kind == "b":
        return np.bool_(poison is Poison.NAN)
    limits = np.iinfo(dtype)
    pattern = np.frombuffer(b"\xa5" * dtype.itemsize, dtype)[0]
    return (pattern, dtype.type(limits.max), dtype.type(limits.min))[poison]


class GuardedBuffer:
    """Memory of one parameter: guard, tensor, guard. Guards hold NaN, so that reads out of bounds
    show in the result, and are compared bit by bit, so that writes out of bounds show too.

    `index` staggers the start within a page, the same for the same parameter of every program:
    candidate and baseline see equal cache-set and page-offset conflicts.
    """

    def __init__(self, tensor: Tensor, index: int = 0) -> None:
        dtype = np.dtype(tensor.dtype)
        self.tensor = tensor
        self._raw = np.empty(tensor.nbytes + 2 * GUARD_BYTES + 2 * _PAGE, np.uint8)
        start = GUARD_BYTES + -(self._raw.ctypes.data + GUARD_BYTES) % _PAGE
        start += index * 17 % 32 * ALIGNMENT
        self.whole = self._raw[start - GUARD_BYTES : start + tensor.nbytes + GUARD_BYTES]
        """guard, tensor, guard, as bytes"""
        body = self._raw[start : start + tensor.nbytes]
        self.array: Array = body.view(dtype).reshape(tensor.shape)
        """the tensor, writable"""
        self.guarded = self._raw[start - GUARD_BYTES : start + tensor.nbytes + GUARD_BYTES]
        """guard, tensor, guard as bytes, for a copy in other memory"""
        # The guard after the tensor begins with the first byte after it, aligned or not.
        self._guards = (
            self._raw[start - GUARD_BYTES : start],
            self._raw[start + tensor.nbytes : start + tensor.nbytes + GUARD_BYTES],
        )
        self._device: Any = None
        self._guard_with(Poison.NAN)

    @property
    def device(self) -> Any:
        """The same memory as a TVM tensor, through DLPack."""
        if self._device is None:
            import tvm

            self._device = tvm.runtime.from_dlpack(self.array)
        return self._device

    def send(self) -> None:
        """Make what was written here visible to kernels; nothing to do in the host's own memory."""

    @property
    def places(self) -> tuple[int, ...]:
        """Places of the tensor that calls were given since it was sent; each may hold another result.
        One in the host's own memory."""
        return (0,)

    def fetch(self, place: int = 0) -> None:
        """Make what kernels wrote at `place` visible here, at the first of `places` if it is none of
        them; nothing to do in the host's own memory."""

    def reset_guards(self) -> None:
        """Write the guard pattern."""
        for guard in self._guards:
            guard[:] = self._pattern

    def fill(self, values: Array) -> None:
        """Copy `values` into the tensor."""
        self.array[...] = values

    def poison(self, poison: Poison) -> None:
        """Overwrite the tensor with a value that no right result has everywhere; the guards too.

        The guards change with the poison because a write past the end often stores a NaN that was
        read past the end of an input, which a guard of NaN would not show.
        """
        self.array.fill(poison_value(self.array.dtype, poison))
        self._guard_with(poison)

    def _guard_with(self, poison: Poison) -> None:
        value = poison_value(self.array.dtype, poison)
        self._pattern = np.frombuffer(value.tobytes() * (GUARD_BYTES // value.itemsize), np.uint8)
        self.reset_guards()

    def overrun(self) -> str | None:
        """None while both guards are whole, else which one was written and how far away."""
        before, after = self._guards
        if not np.array_equal(before, self._pattern):
            distance = GUARD_BYTES - int(np.flatnonzero(before != self._pattern)[-1])
            return f"{self.tensor.name}: written {distance} bytes before its start"
        if not np.array_equal(after, self._pattern):
            distance = int(np.flatnonzero(after != self._pattern)[0])
            return f"{self.tensor.name}: written {distance} bytes after its end"
        return None

    def changed(self, values: Array) -> bool:
        """Whether any bit differs from `values`."""
        return not same_bits(self.array, values)
