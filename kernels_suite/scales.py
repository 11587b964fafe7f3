"""Error scales: for each output element the sum of the absolute terms behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tirgym.kernels_suite.kernel import Array

__all__ = ["of_absolute"]


def of_absolute(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The scale of a kernel that only adds products with non-negative coefficients: its reference
    on the absolute inputs."""

    def scale(*inputs: Array) -> Any:
        return reference(*(np.abs(a) for a in inputs))

    return scale
