"""What kernels share that hold whole rows in registers: ROWS rows of WIDTH >= n columns a program."""

from __future__ import annotations

import triton

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, meta, next_power_of_2

__all__ = ["ROW_PARAMETERS", "row_grid", "row_width"]

ROW_PARAMETERS = (
    meta("ROWS", 1, 2, 4, 8, default=1),
    meta("num_warps", 1, 2, 4, 8, 16, default=8),
    meta("num_stages", 1, 2, default=1),
)


def row_width(shape: Shape) -> dict[str, int]:
    """WIDTH: the power of two that holds a row."""
    return {"WIDTH": next_power_of_2(shape["n"])}


def row_grid(shape: Shape, config: Config) -> tuple[int, ...]:
    """One program for ROWS rows."""
    return (triton.cdiv(shape["m"], config["ROWS"]),)
