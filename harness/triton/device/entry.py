"""`entry_parameters`: what a compiled kernel takes, read from its PTX, and the values to pass."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.kernels_suite.triton.source import Launch

__all__ = ["entry_parameters", "entry_values"]

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[busf](?P<bits>\d+)[^,]*?(?P<name>[\w$]+)\s*$"
)
_POINTER_BITS = 64
_NUMBERS: Mapping[str, tuple[int, type[Any]]] = {
    "i32": (32, ctypes.c_int32),
    "i64": (64, ctypes.c_int64),
    "fp32": (32, ctypes.c_float),
}
"""Triton's type → bits in PTX, C type"""


def entry_parameters(ptx: str, name: str) -> tuple[tuple[str, int], ...]:
    """(name, bits) of each parameter of the function `name`; raises InvalidValueError."""
    for found in _ENTRY.finditer(ptx):
        if found["name"] != name:
            continue
        text = found["parameters"].strip()
        parameters = [_PARAMETER.match(part.strip()) for part in text.split(",")] if text else []
        if all(parameters):
            return tuple((p["name"], int(p["bits"])) for p in parameters if p is not None)
        raise InvalidValueError(f"parameters of {name}", text[:200], "numbers and pointers")
    raise InvalidValueError("PTX", ptx[:80], f"the function {name}")


def entry_values(
    launch: Launch, addresses: Mapping[str, int], parameters: tuple[tuple[str, int], ...], ptx: str
) -> list[Any]:
    """ctypes values for every parameter: the launch's arguments, then null for Triton's own.

    Triton appends pointers to scratch memory, which kernels of this suite do not use. Raises
    InvalidValueError where launch and binary do not fit, or a kernel does use them.
    """
    given = [argument for argument in launch.arguments if argument.type != "constexpr"]
    own, scratch = parameters[: len(given)], parameters[len(given) :]
    values: list[Any] = []
    for argument, (name, bits) in zip(given, own, strict=False):
        if argument.is_pointer:
            wanted, value = _POINTER_BITS, ctypes.c_uint64(addresses[str(argument.value)])
        else:
            wanted, kind = _NUMBERS[argument.type]
            value = kind(argument.value)
        if bits != wanted:
            raise InvalidValueError(f"{name} of the binary", f"{bits} bits", f"{wanted}")
        values.append(value)
    if len(own) != len(given) or any(bits != _POINTER_BITS for _, bits in scratch):
        found = [bits for _, bits in parameters]
        accepted = f"{len(given)} for the launch, then pointers"
        raise InvalidValueError("parameters of the binary", found, accepted)
    for name, _ in scratch:
        if len(re.findall(rf"\b{re.escape(name)}\b", ptx)) > 1:
            raise InvalidValueError("binary", f"{name} is read", "a kernel without scratch memory")
    return values + [ctypes.c_uint64(0) for _ in scratch]
