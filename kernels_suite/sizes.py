"""Sizes of a kernel as float32 constants, or as expressions where a size is a variable.

`build` gets whole numbers; the fallback of an exported library is built once for every shape, with
variables in their place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.tirx import PrimExpr

__all__ = ["float32", "inverse_root"]


def float32(size: Any) -> PrimExpr:
    """`size` as float32."""
    from tvm import tirx

    return tirx.const(float(size), "float32") if isinstance(size, int) else size.astype("float32")


def inverse_root(size: Any) -> PrimExpr:
    """1 / sqrt(`size`) as float32."""
    from tvm import tirx

    if isinstance(size, int):
        return tirx.const(1.0 / math.sqrt(size), "float32")
    return tirx.const(1.0, "float32") / tirx.sqrt(float32(size))
