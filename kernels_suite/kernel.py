"""`Kernel`: what is optimised, as data plus three functions; `Workload`: a kernel at one shape."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

__all__ = [
    "Array",
    "Kernel",
    "Regime",
    "Shape",
    "Split",
    "Tensor",
    "Values",
    "Workload",
    "split_uri",
]

Array = NDArray[Any]
Shape = Mapping[str, int]


class Split(StrEnum):
    """Which part of the suite a kernel family belongs to, so that generalisation can be measured."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class Regime(StrEnum):
    """What the input values of a correctness check look like."""

    NORMAL = "normal"
    """standard normal values"""
    TINY = "tiny"
    """small magnitudes, scaled per kernel so that no intermediate becomes subnormal"""
    HUGE = "huge"
    """large magnitudes, scaled per kernel so that no intermediate overflows"""
    MIXED = "mixed"
    """mixed signs, magnitudes spread over several decades"""
    RAMP = "ramp"
    """values that code their own index, so that a permuted or shifted access shows"""
    TIES = "ties"
    """few distinct values, equal elements, both signed zeros"""
    SPARSE = "sparse"
    """mostly zeros"""
    EXTREME = "extreme"
    """infinities and subnormals: the pattern of inf and NaN must equal the unscheduled program's"""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Name, shape and dtype of one parameter of a kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Values:
    """How far the values of one parameter may go, where the defaults leave the kernel's range.

    The magnitudes are for float32; other float types scale the exponents by their own range.
    """

    tiny: float = 2.0**-20
    """TINY draws magnitudes in [tiny / 2, 2 tiny)"""
    huge: float = 2.0**20
    """HUGE draws magnitudes in [huge / 2, 2 huge)"""
    decades: float = 3.0
    """MIXED spreads magnitudes over 10^-decades to 10^decades"""
    positive: bool = False
    """no value is below zero, in any regime"""
    infinities: tuple[float, ...] = (math.inf, -math.inf, math.inf)
    """EXTREME places these at random elements. Where the kernel takes a maximum, leave -inf out:
    TVM's `max` starts from the lowest finite number. Where it multiplies by a constant zero (padding),
    leave all out of the other factor: TVM folds `0 * x` to 0 once it sees the constant"""


@dataclass(frozen=True)
class Kernel:
    """One operation to optimise: how to build its IR, what it means, and what to feed it.

    `build(shape)` returns an unscheduled TVM `PrimFunc` whose parameters are the inputs, then the
    outputs. `reference(*inputs)` is independent NumPy and returns the outputs; it is never derived
    from the IR that it judges. Called through `problem.reference_of`, its float inputs arrive in
    float64 and other inputs in their own dtype. `inputs(shape, rng, regime)` returns one array for
    each input; without it, values are drawn by regime from each parameter's dtype and `values`
    (`tirgym.kernels_suite.regimes.default_inputs`).
    `scale(*inputs)` gives for each output element the sum of the absolute terms that were added
    up, in float64; errors are judged relative to it. Without it, and where it is inf or NaN,
    max(|ref|, RMS(ref)) is used.
    """

    name: str
    family: str
    build: Callable[[Shape], PrimFunc]
    reference: Callable[..., Array | tuple[Array, ...]] | None
    train: tuple[Shape, ...]
    """Shapes to train and report on; the first is the default shape."""
    holdout: tuple[Shape, ...] = ()
    """Shapes that no agent trains on: primes, tile ±1, ones."""
    tiny: Shape = field(default_factory=dict)
    """A shape of a few thousand operations, for tests; the first train shape if empty."""
    inputs: Callable[[Shape, np.random.Generator, Regime], tuple[Array, ...]] | None = None
    values: Mapping[str, Values] = field(default_factory=dict)
    """Ranges of single parameters, by name; the others have the defaults of `Values`."""
    scale: Callable[..., Array | tuple[Array, ...]] | None = None
    parameters: Callable[[Shape], tuple[Tensor, ...]] | None = None
    """Inputs, then outputs; derived from the unscheduled IR when absent. Stated, the kernel can be
    checked on machines without TVM."""
    terms: Callable[[Shape], int] | None = None
    """Longest chain of roundings behind one output element (K of the tolerance); derived from the
    unscheduled IR when absent."""
    accumulator: str = ""
    """Narrowest float dtype that a correct program may add or multiply in, "float32" for float16 products
    with float32 sums: the roundings of the tolerance are its. Where empty, that of the unscheduled
    IR for outputs of float16, and the output's own for all others."""
    flops: Callable[[Shape], int] | None = None
    """Arithmetic operations; derived from the unscheduled IR when absent."""
    bytes: Callable[[Shape], int] | None = None
    """Bytes that must move at least: each input read once, each output written once."""
    exact: bool = False
    """Outputs are integers, indices, or moved values, and must be equal."""
    compare: (
        Callable[[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]], str | None] | None
    ) = None
    """`compare(inputs, got, expected)`: None when equal by meaning, else what is wrong."""
    num_outputs: int = 1
    dtype: str = "float32"
    tags: frozenset[str] = frozenset()
    suite: str = "local"
    source: str = ""
    """Where a kernel outside the suites comes from: "path.py:name"."""

    def __post_init__(self) -> None:
        """Raises InvalidValueError unless all shapes name the same dimensions."""
        if not self.train:
            raise InvalidValueError(
                f"train shapes of kernel {self.name}", self.train, "at least one"
            )
        dims = set(self.train[0])
        for shape in (*self.train, *self.holdout, self.tiny or self.train[0]):
            if set(shape) != dims:
                accepted = f"the dimensions {', '.join(self.train[0])}"
                raise InvalidValueError(f"shape of kernel {self.name}", dict(shape), accepted)
        if "dtype" in dims or not re.fullmatch("[A-Za-z0-9_]+", self.name):
            accepted = "letters, digits and underscores, and no dimension called dtype"
            raise InvalidValueError("kernel name or dimensions", (self.name, *dims), accepted)

    def __hash__(self) -> int:
        return hash((self.suite, self.name, self.source))

    @property
    def default_shape(self) -> Shape:
        """The first train shape."""
        return self.train[0]

    @property
    def tiny_shape(self) -> Shape:
        """The shape for tests."""
        return self.tiny or self.train[0]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the shape parameters, in order."""
        return tuple(self.train[0])


@dataclass(frozen=True)
class Workload:
    """A kernel at one shape; its URI round-trips through `Workload.uri` and `load_workload`."""

    kernel: Kernel
    dims: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, kernel: Kernel, shape: Shape | None = None) -> Workload:
        """The workload of `kernel` at `shape` (default: its first train shape).

        Raises InvalidValueError for a missing, unknown, non-integer or non-positive dimension.
        """
        default = kernel.default_shape
        given = dict(default if shape is None else shape)
        expected = f"positive integers for {', '.join(default) or 'no dimension'}"
        if set(given) != set(default):
            raise InvalidValueError(f"shape of kernel {kernel.name}", given, expected)
        for name, size in given.items():
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
                raise InvalidValueError(f"dimension {name} of kernel {kernel.name}", size, expected)
        return cls(kernel, tuple((name, int(given[name])) for name in default))

    @property
    def shape(self) -> dict[str, int]:
        """Dimensions by name."""
        return dict(self.dims)

    @property
    def uri(self) -> str:
        """`tirgym://core-v0/matmul?m=250&n=264&k=240&dtype=float32`."""
        query = urlencode([*self.dims, ("dtype", self.kernel.dtype)])
        path = quote(self.kernel.source or self.kernel.name, safe="/:")
        return f"tirgym://{self.kernel.suite}/{path}?{query}"

    def __str__(self) -> str:
        return f"{self.kernel.name}({', '.join(f'{n}={s}' for n, s in self.dims)})"


def split_uri(uri: str) -> tuple[str, str, dict[str, str]]:
    """Suite, kernel name or source, and query of a workload URI.

    Raises InvalidValueError if `uri` is not of the form tirgym://SUITE/KERNEL?DIM=SIZE&….
    """
    form = "tirgym://SUITE/KERNEL?DIM=SIZE&…&dtype=DTYPE"
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not match
        raise InvalidValueError("workload URI", uri, form) from None
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "tirgym" or not parts.netloc or not name:
        raise InvalidValueError("workload URI", uri, form)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(pairs)
    if len(query) != len(pairs):
        raise InvalidValueError("workload URI", uri, f"{form}, each dimension once")
    return parts.netloc, name, query
