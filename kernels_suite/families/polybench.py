"""Linear-algebra kernels that PolyBench made common, from their mathematical definitions.

float32, with the coefficients alpha = 1.5 and beta = 1.2; nothing is updated in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

ALPHA, BETA = 1.5, 1.2
TRAIN = ({"m": 376, "n": 432}, {"m": 120, "n": 1296}, {"m": 384, "n": 384})
HOLDOUT = ({"m": 127, "n": 257}, {"m": 65, "n": 33}, {"m": 1, "n": 3})
TINY = {"m": 14, "n": 18}


def matrix(name: str, rows: int, columns: int) -> Any:
    """A float32 matrix parameter."""
    from tvm import te

    return te.placeholder((rows, columns), "float32", name)


def vector(name: str, size: int) -> Any:
    """A float32 vector parameter."""
    from tvm import te

    return te.placeholder((size,), "float32", name)


def times(name: str, a: Any, x: Any, transposed: bool = False) -> Any:
    """a x, or a^T x, as one reduction."""
    from tvm import te

    rows, columns = a.shape
    if transposed:
        r = te.reduce_axis((0, rows), "r")
        return te.compute((columns,), lambda j: te.sum(a[r, j] * x[r], axis=r), name)
    r = te.reduce_axis((0, columns), "r")
    return te.compute((rows,), lambda i: te.sum(a[i, r] * x[r], axis=r), name)


def build_atax(shape: Shape) -> PrimFunc:
    """y = a^T (a x): a (m, n)."""
    from tvm import te

    a, x = matrix("a", shape["m"], shape["n"]), vector("x", shape["n"])
    return te.create_prim_func([a, x, times("y", a, times("ax", a, x), transposed=True)])


ATAX = Kernel(
    name="atax",
    family="polybench",
    build=build_atax,
    reference=lambda a, x: a.T @ (a @ x),
    scale=of_absolute(lambda a, x: a.T @ (a @ x)),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_bicg(shape: Shape) -> PrimFunc:
    """s, q = a^T r, a p: a (m, n)."""
    from tvm import te

    a = matrix("a", shape["m"], shape["n"])
    p, r = vector("p", shape["n"]), vector("r", shape["m"])
    return te.create_prim_func([a, p, r, times("s", a, r, transposed=True), times("q", a, p)])


BICG = Kernel(
    name="bicg",
    family="polybench",
    build=build_bicg,
    reference=lambda a, p, r: (a.T @ r, a @ p),
    scale=of_absolute(lambda a, p, r: (a.T @ r, a @ p)),
    num_outputs=2,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_mvt(shape: Shape) -> PrimFunc:
    """z1, z2 = x1 + a y1, x2 + a^T y2: a (n, n)."""
    from tvm import te

    n = shape["n"]
    a = matrix("a", n, n)
    x1, x2, y1, y2 = (vector(name, n) for name in ("x1", "x2", "y1", "y2"))
    ay1, ay2 = times("ay1", a, y1), times("ay2", a, y2, transposed=True)
    z1 = te.compute((n,), lambda i: x1[i] + ay1[i], "z1")
    z2 = te.compute((n,), lambda i: x2[i] + ay2[i], "z2")
    return te.create_prim_func([a, x1, x2, y1, y2, z1, z2])


def mvt(a: Array, x1: Array, x2: Array, y1: Array, y2: Array) -> tuple[Array, Array]:
    """Both products, one with a transposed."""
    return x1 + a @ y1, x2 + a.T @ y2


MVT = Kernel(
    name="mvt",
    family="polybench",
    build=build_mvt,
    reference=mvt,
    scale=of_absolute(mvt),
    num_outputs=2,
    train=({"n": 432}, {"n": 304}, {"n": 384}),
    holdout=({"n": 257}, {"n": 65}, {"n": 1}),
    tiny={"n": 16},
)


def build_gemver(shape: Shape) -> PrimFunc:
    """w = alpha h x with h = a + u1 v1^T + u2 v2^T and x = z + beta h^T y: a (n, n)."""
    from tvm import te, tirx

    n = shape["n"]
    alpha, beta = tirx.const(ALPHA, "float32"), tirx.const(BETA, "float32")
    a = matrix("a", n, n)
    u1, v1, u2, v2, y, z = (vector(name, n) for name in ("u1", "v1", "u2", "v2", "y", "z"))
    h = te.compute((n, n), lambda i, j: a[i, j] + u1[i] * v1[j] + u2[i] * v2[j], "h")
    hy = times("hy", h, y, transposed=True)
    x = te.compute((n,), lambda i: z[i] + beta * hy[i], "x")
    hx = times("hx", h, x)
    w = te.compute((n,), lambda i: alpha * hx[i], "w")
    return te.create_prim_func([a, u1, v1, u2, v2, y, z, w])


def gemver(a: Array, u1: Array, v1: Array, u2: Array, v2: Array, y: Array, z: Array) -> Array:
    """A rank-2 update and two dependent products."""
    h = a + np.outer(u1, v1) + np.outer(u2, v2)
    out: Array = ALPHA * (h @ (z + BETA * (h.T @ y)))
    return out


GEMVER = Kernel(
    name="gemver",
    family="polybench",
    build=build_gemver,
    reference=gemver,
    scale=of_absolute(gemver),
    # a product of five inputs
    values={name: Values(huge=2.0**12) for name in ("a", "u1", "v1", "u2", "v2", "y", "z")},
    train=({"n": 432}, {"n": 304}, {"n": 384}),
    holdout=({"n": 257}, {"n": 65}, {"n": 1}),
    tiny={"n": 16},
)


def build_syrk(shape: Shape) -> PrimFunc:
    """out = alpha a a^T + beta c, the whole square: a (n, k), c (n, n)."""
    from tvm import te, tirx

    n, k = shape["n"], shape["k"]
    alpha, beta = tirx.const(ALPHA, "float32"), tirx.const(BETA, "float32")
    a, c = matrix("a", n, k), matrix("c", n, n)
    r = te.reduce_axis((0, k), "r")
    product = te.compute((n, n), lambda i, j: te.sum(a[i, r] * a[j, r], axis=r), "product")
    out = te.compute((n, n), lambda i, j: alpha * product[i, j] + beta * c[i, j], "out")
    return te.create_prim_func([a, c, out])


SYRK = Kernel(
    name="syrk",
    family="polybench",
    build=build_syrk,
    reference=lambda a, c: ALPHA * a @ a.T + BETA * c,
    scale=of_absolute(lambda a, c: ALPHA * a @ a.T + BETA * c),
    train=({"n": 144, "k": 176}, {"n": 120, "k": 300}, {"n": 128, "k": 128}),
    holdout=({"n": 67, "k": 113}, {"n": 65, "k": 33}, {"n": 3, "k": 1}),
    tiny={"n": 10, "k": 14},
)


def build_two_mm(shape: Shape) -> PrimFunc:
    """out = alpha a b c + beta d: a (m, k), b (k, n), c (n, l), d (m, l)."""
    from tvm import te, tirx

    m, n, k, l = shape["m"], shape["n"], shape["k"], shape["l"]
    alpha, beta = tirx.const(ALPHA, "float32"), tirx.const(BETA, "float32")
    a, b, c, d = matrix("a", m, k), matrix("b", k, n), matrix("c", n, l), matrix("d", m, l)
    r, s = te.reduce_axis((0, k), "r"), te.reduce_axis((0, n), "s")
    ab = te.compute((m, n), lambda i, j: te.sum(alpha * a[i, r] * b[r, j], axis=r), "ab")
    abc = te.compute((m, l), lambda i, j: te.sum(ab[i, s] * c[s, j], axis=s), "abc")
    out = te.compute((m, l), lambda i, j: abc[i, j] + beta * d[i, j], "out")
    return te.create_prim_func([a, b, c, d, out])


TWO_MM = Kernel(
    name="2mm",
    family="polybench",
    build=build_two_mm,
    reference=lambda a, b, c, d: ALPHA * a @ b @ c + BETA * d,
    scale=of_absolute(lambda a, b, c, d: ALPHA * a @ b @ c + BETA * d),
    train=(
        {"m": 88, "n": 104, "k": 112, "l": 120},
        {"m": 60, "n": 150, "k": 70, "l": 140},
        {"m": 96, "n": 96, "k": 96, "l": 96},
    ),
    holdout=(
        {"m": 31, "n": 37, "k": 41, "l": 43},
        {"m": 17, "n": 65, "k": 33, "l": 15},
        {"m": 1, "n": 1, "k": 3, "l": 1},
    ),
    tiny={"m": 6, "n": 8, "k": 10, "l": 12},
)
