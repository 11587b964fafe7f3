"""`TritonSource`: a Triton kernel with its meta-parameters, and how a workload launches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.kernels_suite.kernel import Shape, Tensor, Workload
from tirgym.kernels_suite.problem import tensors

__all__ = [
    "Argument",
    "Config",
    "Launch",
    "MetaParameter",
    "TritonSource",
    "meta",
    "next_power_of_2",
]

Config = Mapping[str, int]
"""Meta-parameter → value; num_warps and num_stages are among them."""

_POINTERS = {"float32": "*fp32", "float16": "*fp16", "int32": "*i32", "int8": "*i8"}
_ALIGNMENT = 16
"""Triton specialises for pointers and integers that are multiples of it."""


@dataclass(frozen=True, slots=True)
class MetaParameter:
    """A compile-time number that a tuner may choose."""

    name: str
    values: tuple[int, ...]
    default: int

    def __post_init__(self) -> None:
        """Raises InvalidValueError unless the default is one of the values."""
        if self.default not in self.values:
            raise InvalidValueError(f"default of {self.name}", self.default, str(self.values))


def meta(name: str, *values: int, default: int) -> MetaParameter:
    """A meta-parameter; short because sources list many."""
    return MetaParameter(name, values, default)


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a Triton kernel with what a launch passes for it."""

    name: str
    type: str
    """Triton's name: "*fp16" (pointer to float16), "i32", "fp32", or "constexpr" """
    value: str | int | float
    """name of a tensor for pointers, else the number"""
    divisible: bool
    """passed as a multiple of 16"""
    nbytes: int = 0
    """size of the tensor; 0 for numbers"""

    @property
    def is_pointer(self) -> bool:
        """Whether it is a tensor."""
        return self.type.startswith("*")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as it is compiled and launched for one workload and configuration."""

    arguments: tuple[Argument, ...]
    """in the kernel's order"""
    grid: tuple[int, int, int]
    """programs in x, y and z"""
    num_warps: int
    num_stages: int

    @property
    def programs(self) -> int:
        """Program instances (thread blocks) of one launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def signature(self) -> dict[str, str]:
        """Argument → Triton type, every argument, in order."""
        return {argument.name: argument.type for argument in self.arguments}

    @property
    def constants(self) -> dict[str, int | float]:
        """The arguments that are compiled in."""
        return {a.name: a.value for a in self.arguments if a.type == "constexpr"}  # type: ignore[misc]


def _nothing(_: Shape) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, eq=False)
class TritonSource:
    """A `@triton.jit` function; its arguments are found by name.

    `x_ptr` is the tensor x of the kernel, a name in capitals a constant, any other name a number:
    a dimension of the shape or one of `scalars`. Tensors are contiguous and 16-byte aligned. As in
    Triton's JIT, an integer 1 is compiled in, and multiples of 16 are known to be such.
    """

    function: Any
    """triton.runtime.jit.JITFunction"""
    parameters: tuple[MetaParameter, ...]
    """what a tuner may choose: block sizes, num_warps, num_stages, …"""
    grid: Callable[[Shape, Config], tuple[int, ...]]
    """programs by shape and configuration, one to three axes"""
    constants: Callable[[Shape], Mapping[str, int]] = _nothing
    """constants that follow from the shape"""
    scalars: Callable[[Shape], Mapping[str, float]] = _nothing
    """numbers besides the dimensions"""

    @property
    def name(self) -> str:
        """Name of the kernel function."""
        return str(self.function.fn.__name__)

    @property
    def text(self) -> str:
        """The Python source."""
        return "".join(self.function.raw_src)

    @property
    def default_config(self) -> dict[str, int]:
        """Default of every meta-parameter."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def config(self, changes: Config | None = None) -> dict[str, int]:
        """The default configuration with `changes`.

        Raises UnknownNameError for a parameter that this source has not, InvalidValueError for a
        value that is not among its candidates.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        chosen = self.default_config
        for name, value in (changes or {}).items():
            if name not in known:
                raise UnknownNameError(f"meta-parameter of {self.name}", name, known)
            if value not in known[name].values:
                accepted = f"one of {', '.join(map(str, known[name].values))}"
                raise InvalidValueError(f"{name} of {self.name}", value, accepted)
            chosen[name] = value
        return chosen

    def launch(self, workload: Workload, changes: Config | None = None) -> Launch:
        """Arguments and grid for `workload`; raises what `config` raises."""
        config = self.config(changes)
        shape = workload.shape
        inputs, outputs = tensors(workload)
        named = {tensor.name: tensor for tensor in (*inputs, *outputs)}
        constants = {**config, **self.constants(shape)}
        numbers: dict[str, float] = {**shape, **self.scalars(shape)}
        arguments = tuple(
            _argument(name, named, constants, numbers) for name in self.function.arg_names
        )
        x, y, z = (*self.grid(shape, config), 1, 1)[:3]
        return Launch(arguments, (x, y, z), config["num_warps"], config["num_stages"])


def _argument(
    name: str, named: Mapping[str, Tensor], constants: Config, numbers: Mapping[str, float]
) -> Argument:
    if name.endswith("_ptr"):
        tensor = named[name.removesuffix("_ptr")]
        return Argument(name, _POINTERS[tensor.dtype], tensor.name, True, tensor.nbytes)
    if name.isupper():
        return Argument(name, "constexpr", constants[name], False)
    value = numbers[name]
    if isinstance(value, float):
        return Argument(name, "fp32", value, False)
    if value == 1:
        return Argument(name, "constexpr", value, False)
    return Argument(name, "i32", value, value % _ALIGNMENT == 0)


def next_power_of_2(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()
