"""Small programs for tests of transforms and legality, made of one kernel and transform texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.harness.transforms.base import ScheduleTransform
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.registry import load_kernel

__all__ = ["ARCH", "apply_all", "begin", "schedule_step"]

ARCH = "cascadelake"
"""Has the byte dot product; IR does not depend on the machine that runs the tests."""


def _chain(_: Any) -> Any:
    a = te.placeholder((16, 32), "float32", "A")
    b = te.compute((16, 32), lambda i, j: a[i, j] * tirx.const(2.0, "float32"), "B")
    c = te.compute((16, 32), lambda i, j: b[i, j] + tirx.const(1.0, "float32"), "C")
    return te.create_prim_func([a, c])


def _byte_dots(_: Any) -> Any:
    a = te.placeholder((8, 16), "uint8", "A")
    w = te.placeholder((2, 4, 16, 4), "int8", "W")
    r = te.reduce_axis((0, 16), "r")
    c = te.compute(
        (8, 32),
        lambda i, j: te.sum(
            a[i, r].astype("int32") * w[j // 16, r // 4, j % 16, r % 4].astype("int32"), axis=r
        ),
        "C",
    )
    return te.create_prim_func([a, w, c])


def _row_dots(_: Any) -> Any:
    a = te.placeholder((8, 16), "uint8", "A")
    w = te.placeholder((32, 16), "int8", "W")
    r = te.reduce_axis((0, 16), "r")
    c = te.compute(
        (8, 32),
        lambda i, j: te.sum(a[i, r].astype("int32") * w[j, r].astype("int32"), axis=r),
        "C",
    )
    return te.create_prim_func([a, w, c])


def _prefix(_: Any) -> Any:
    """Each element is the one before it plus one: order matters."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")) -> None:  # type: ignore[valid-type]
        for i, j in T.grid(8, 16):
            with T.sblock("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] + T.if_then_else(  # type: ignore[index]
                    v_j > 0,
                    B[v_i, T.max(v_j - 1, 0)],  # type: ignore[index]
                    T.float32(0),
                )

    return main


def _rewritten(_: Any) -> Any:
    """B is read, then overwritten: moving the reader behind the second writer is wrong."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")) -> None:  # type: ignore[valid-type]
        B = T.sblock_alloc_buffer((16,))
        D = T.sblock_alloc_buffer((16,))
        for i in range(16):
            with T.sblock("B"):
                v_i = T.axis.spatial(16, i)
                B[v_i] = A[v_i] + T.float32(1)  # type: ignore[index]
        for i in range(16):
            with T.sblock("D"):
                v_i = T.axis.spatial(16, i)
                D[v_i] = B[v_i] * T.float32(2)
        for i in range(16):
            with T.sblock("B_again"):
                v_i = T.axis.spatial(16, i)
                B[v_i] = A[v_i] - T.float32(1)  # type: ignore[index]
        for i in range(16):
            with T.sblock("C"):
                v_i = T.axis.spatial(16, i)
                C[v_i] = D[v_i] + B[v_i]  # type: ignore[index]

    return main


def _recomputed(_: Any) -> Any:
    """Row sums that are computed four times over."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]
        for i, _again, k in T.grid(8, 4, 16):
            with T.sblock("B"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v_i] = T.float32(0)  # type: ignore[index]
                B[v_i] = B[v_i] + A[v_i, v_k]  # type: ignore[index]

    return main


def _repeated(_: Any) -> Any:
    """Each element is written four times over."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]
        for _again, i in T.grid(4, 8):
            with T.sblock("B"):
                v_i = T.axis.spatial(8, i)
                B[v_i] = A[v_i] * T.float32(2)  # type: ignore[index]

    return main


def _multiplied(_: Any) -> Any:
    """Each element is added to itself: no operand is zero where the sum goes on."""
    a = te.placeholder((8,), "float32", "A")
    r = te.reduce_axis((0, 12), "r")
    return te.create_prim_func([a, te.compute((8,), lambda i: te.sum(a[i], axis=r), "B")])


def _broadcast(_: Any) -> Any:
    a = te.placeholder((8,), "float32", "A")
    x = te.placeholder((8, 16), "float32", "X")
    q = te.compute((8,), lambda i: a[i] + tirx.const(1.0, "float32"), "Q")
    p = te.compute((8,), lambda i: q[i] * tirx.const(2.0, "float32"), "P")
    c = te.compute((8, 16), lambda i, j: p[i] + x[i, j], "C")
    d = te.compute((8, 16), lambda i, j: c[i, j] * c[i, j], "D")
    return te.create_prim_func([a, x, d])


def _reversed(_: Any) -> Any:
    a = te.placeholder((16,), "float32", "A")
    b = te.compute((16,), lambda i: a[i] * tirx.const(2.0, "float32"), "B")
    c = te.compute((16,), lambda i: b[i] + tirx.const(1.0, "float32"), "C")
    d = te.compute((16,), lambda i: c[15 - i] * c[15 - i], "D")
    return te.create_prim_func([a, d])


def _total(_: Any) -> Any:
    """A sum without dimensions."""
    a = te.placeholder((16,), "float32", "A")
    k = te.reduce_axis((0, 16), "k")
    return te.create_prim_func([a, te.compute((), lambda: te.sum(a[k] * a[k], k), "T")])


def _scaled(_: Any) -> Any:
    """Divided by a sum without dimensions."""
    a = te.placeholder((16,), "float32", "A")
    k = te.reduce_axis((0, 16), "k")
    t = te.compute((), lambda: te.sum(a[k] * a[k], k), "T")
    return te.create_prim_func([a, te.compute((16,), lambda i: a[i] / t(), "B")])


def _squared_exp(_: Any) -> Any:
    """The exponential is written down twice where it is inlined."""
    a = te.placeholder((16,), "float32", "A")
    b = te.compute((16,), lambda i: tirx.exp(a[i]), "B")
    return te.create_prim_func([a, te.compute((16,), lambda i: b[i] * b[i], "C")])


def _back_and_forth(_: Any) -> Any:
    """Transposed and transposed again."""
    a = te.placeholder((32, 64), "float32", "A")
    b = te.compute((64, 32), lambda i, j: a[j, i], "B")
    return te.create_prim_func([a, te.compute((32, 64), lambda i, j: b[j, i], "C")])


def _wide_exp(_: Any) -> Any:
    """An exponential in float64."""
    a = te.placeholder((16,), "float64", "A")
    return te.create_prim_func([a, te.compute((16,), lambda i: tirx.exp(a[i]), "B")])


_LOCAL: dict[str, Callable[[Any], Any]] = {
    "chain": _chain,
    "byte_dots": _byte_dots,
    "row_dots": _row_dots,
    "prefix": _prefix,
    "rewritten": _rewritten,
    "recomputed": _recomputed,
    "repeated": _repeated,
    "multiplied": _multiplied,
    "broadcast": _broadcast,
    "reversed": _reversed,
    "total": _total,
    "scaled": _scaled,
    "squared_exp": _squared_exp,
    "back_and_forth": _back_and_forth,
    "wide_exp": _wide_exp,
}


def begin(
    name: str, num_threads: int = 1, arch: str = ARCH, backend: str = "llvm", /, **shape: int
) -> TensorIRProgram:
    """The unscheduled program of a kernel of this module, or of the suite at `shape`.

    Dimensions of suite kernels that are not given are those of the tiny shape.
    """
    target = Target(backend, arch, num_threads)
    if name in _LOCAL:
        workload = Workload.of(Kernel(name, "test", _LOCAL[name], None, ({"n": 1},)))
    else:
        kernel = load_kernel(name)
        workload = Workload.of(kernel, {**kernel.tiny_shape, **shape})
    return TensorIRProgram.start(workload, target)


def apply_all(program: TensorIRProgram, steps: str) -> TensorIRProgram:
    """`program` after transforms given as texts with semicolons between them."""
    for step in filter(None, (s.strip() for s in steps.split(";"))):
        program = program.apply(parse_transform(step))
    return program


def schedule_step(text: str) -> ScheduleTransform:
    """The transform of TensorIR that `text` is."""
    made = parse_transform(text)
    assert isinstance(made, ScheduleTransform)
    return made
