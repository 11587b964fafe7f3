"""What a workload asks for: its tensors, work, inputs, reference outputs and error scales.

Whatever a kernel does not state is derived from its unscheduled IR.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.errors import InvalidValueError, UsageError
from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Tensor, Workload
from tirgym.kernels_suite.regimes import default_inputs

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

__all__ = [
    "accumulator_of",
    "build_of",
    "bytes_of",
    "flops_of",
    "make_inputs",
    "reference_of",
    "require_reference",
    "scale_of",
    "tensors",
    "terms_of",
]


def build_of(workload: Workload) -> PrimFunc:
    """The unscheduled program of `workload`; must not be changed.

    Raises InvalidValueError if the kernel's `build` returns anything but a PrimFunc, or if the shape
    leaves a parameter without elements (an image smaller than its filter).
    """
    return _built(workload)[0]


@lru_cache(maxsize=256)
def _built(workload: Workload) -> tuple[PrimFunc, Any]:
    """The program, and its root block.

    TVM's schedules change loops in place when nobody else refers to the root block, even below a
    function that is shared: the second reference makes them copy.
    """
    from tvm.tirx import PrimFunc

    func = workload.kernel.build(workload.shape)
    if not isinstance(func, PrimFunc):
        accepted = "a tvm.tirx.PrimFunc, as tvm.te.create_prim_func returns"
        raise InvalidValueError(f"build of kernel {workload.kernel.name}", type(func), accepted)
    for buffer in func.params:
        if any(int(extent) < 1 for extent in buffer.shape):
            what = f"shape of kernel {workload.kernel.name}"
            accepted = f"sizes that leave at least one element in {buffer.name}"
            raise InvalidValueError(what, workload.shape, accepted)
    return func, func.body.block


@lru_cache(maxsize=1024)
def tensors(workload: Workload) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of `workload`, in the order of the PrimFunc's parameters.

    Raises InvalidValueError unless there is at least one input besides the kernel's outputs.
    """
    kernel = workload.kernel
    stated = kernel.parameters
    found = _built_tensors(workload) if stated is None else stated(workload.shape)
    split = len(found) - kernel.num_outputs
    if kernel.num_outputs < 1 or split < 1:
        accepted = f"1 to {len(found) - 1}, since the program has {len(found)} parameters"
        raise InvalidValueError(
            f"num_outputs of kernel {kernel.name}", kernel.num_outputs, accepted
        )
    return found[:split], found[split:]


def _built_tensors(workload: Workload) -> tuple[Tensor, ...]:
    """Parameters of the unscheduled program."""
    return tuple(
        Tensor(buffer.name, tuple(int(extent) for extent in buffer.shape), str(buffer.dtype))
        for buffer in build_of(workload).params
    )


def make_inputs(workload: Workload, rng: np.random.Generator, regime: Regime) -> tuple[Array, ...]:
    """One C-contiguous array for each input, a pure function of `rng`'s state and `regime`.

    Raises InvalidValueError if the kernel's own `inputs` returns other shapes or dtypes.
    """
    inputs, _ = tensors(workload)
    kernel = workload.kernel
    if kernel.inputs is None:
        return default_inputs(inputs, rng, regime, kernel.values)
    drawn = tuple(np.asarray(a, order="C") for a in kernel.inputs(workload.shape, rng, regime))
    got = tuple((a.shape, str(a.dtype)) for a in drawn)
    expected = tuple((t.shape, t.dtype) for t in inputs)
    if got != expected:
        raise InvalidValueError(f"inputs of kernel {kernel.name}", got, str(expected))
    return drawn


def require_reference(kernel: Kernel) -> None:
    """Raises UsageError, with an example, if `kernel` has no reference."""
    if kernel.reference is None:
        raise UsageError(
            f"kernel {kernel.name} has no reference, so nothing could check its results; "
            "give it a NumPy function of its inputs that returns its outputs, such as "
            f"Kernel({kernel.name!r}, …, reference=lambda a, b: a @ b)"
        )


def reference_of(workload: Workload, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The right outputs for `inputs`: float64 for float outputs, else each output's own dtype.

    Exact kernels return every output in its own dtype. Raises UsageError without a reference and
    InvalidValueError if the reference returns another number or other shapes of outputs.
    """
    kernel = workload.kernel
    require_reference(kernel)
    _, outputs = tensors(workload)
    found = _call(workload, "reference", kernel.reference, inputs)
    return tuple(
        np.asarray(array, _judged_dtype(tensor, kernel.exact), order="C")
        for array, tensor in zip(found, outputs, strict=True)
    )


def scale_of(workload: Workload, inputs: tuple[Array, ...]) -> tuple[Array, ...] | None:
    """For each output element the sum of the absolute terms behind it, float64; None if not given."""
    if workload.kernel.scale is None:
        return None
    found = _call(workload, "scale", workload.kernel.scale, inputs)
    return tuple(np.asarray(array, np.float64, order="C") for array in found)


def _judged_dtype(tensor: Tensor, exact: bool) -> str:
    return "float64" if not exact and tensor.dtype.startswith("float") else tensor.dtype


def _call(
    workload: Workload, what: str, function: Any, inputs: tuple[Array, ...]
) -> tuple[Array, ...]:
    wide = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs)
    with np.errstate(all="ignore"):
        found = function(*wide)
    found = found if isinstance(found, tuple) else (found,)
    arrays = tuple(np.asarray(array) for array in found)
    _, outputs = tensors(workload)
    got, expected = [a.shape for a in arrays], [t.shape for t in outputs]
    if got != expected:
        what = f"shapes from the {what} of kernel {workload.kernel.name}"
        raise InvalidValueError(what, got, f"{expected}, one for each output")
    return arrays


def bytes_of(workload: Workload) -> int:
    """Bytes that must move at least; derived: each input read once, each output written once."""
    if workload.kernel.bytes is not None:
        return int(workload.kernel.bytes(workload.shape))
    return sum(t.nbytes for group in tensors(workload) for t in group)


@lru_cache(maxsize=1024)
def flops_of(workload: Workload) -> int:
    """Arithmetic operations; derived: TVM's count over the unscheduled IR."""
    if workload.kernel.flops is not None:
        return int(workload.kernel.flops(workload.shape))
    import tvm
    from tvm.s_tir.analysis import estimate_tir_flops

    return int(estimate_tir_flops(tvm.IRModule({"main": build_of(workload)})))


@lru_cache(maxsize=1024)
def terms_of(workload: Workload) -> int:
    """Longest chain of roundings behind one output element, at least 1.

    Derived from the unscheduled IR: a block adds the product of its reduction extents (1 without
    a reduction) to the longest chain among the blocks that it reads.
    """
    if workload.kernel.terms is not None:
        return max(1, int(workload.kernel.terms(workload.shape)))
    chains: dict[int, int] = {}
    for block in _blocks(build_of(workload).body.block.body):
        reduced = (int(iv.dom.extent) for iv in block.iter_vars if int(iv.iter_type) == _REDUCE)
        chain = math.prod(reduced) + max(
            (chains.get(hash(r.source), 0) for r in block.reads), default=0
        )
        for region in block.writes:
            chains[hash(region.source)] = max(chains.get(hash(region.source), 0), chain)
    return max(chains.values(), default=1)


@lru_cache(maxsize=1024)
def accumulator_of(workload: Workload) -> str:
    """Dtype of the sums behind float outputs; "" where it is each output's own.

    Derived for outputs of float16: the narrowest float dtype in which the unscheduled IR adds,
    multiplies, or calls a function.
    """
    stated = workload.kernel.accumulator
    if stated or all(t.dtype != "float16" for t in tensors(workload)[1]):
        return stated
    import tvm_ffi
    from tvm.ir import Call
    from tvm.tirx import Add, Div, Mul, Sub

    found: set[str] = set()

    def look(node: Any) -> None:
        found.add(str(node.ty.dtype))

    tvm_ffi.structural_walk(build_of(workload).body, ((Add, Sub, Mul, Div, Call), look))
    return next((dtype for dtype in _FLOATS if dtype in found), "")


_FLOATS = ("float16", "float32", "float64")
_REDUCE = 2
"""`tvm.tirx.IterVar.CommReduce`"""


def _blocks(stmt: Any) -> Iterator[Any]:
    """The outermost blocks in `stmt`, in program order."""
    if hasattr(stmt, "seq"):
        for child in stmt.seq:
            yield from _blocks(child)
    elif hasattr(stmt, "iter_values"):
        yield stmt.block
    elif hasattr(stmt, "body"):
        yield from _blocks(stmt.body)
