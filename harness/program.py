"""`Program`: an immutable IR state, whatever the IR dialect."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import IllegalTransformError
from tirgym.harness.target import Target
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload

__all__ = ["Program"]


class Program(Protocol):
    """One IR state: where it started, what was applied, and its key. Never changes."""

    def __hash__(self) -> int:
        """Programs are keys of caches."""

    @property
    def dialect(self) -> str:
        """IR dialect, which selects the graph encoder: "tensorir", …"""

    @property
    def workload(self) -> Workload:
        """What the program computes."""

    @property
    def target(self) -> Target:
        """What the program is for; legality depends on it."""

    @property
    def steps(self) -> tuple[Transform, ...]:
        """Transforms applied since the unscheduled program, in order."""

    @property
    def ir_key(self) -> str:
        """Structural hash of the IR; equal across processes and hash seeds, blind to names."""

    def apply(self, transform: Transform) -> Program:
        """The program after `transform`; raises IllegalTransformError with rule and location."""

    def why_illegal(self, transform: Transform) -> IllegalTransformError | None:
        """None when `transform` is legal here, else the error that `apply` would raise."""

    def legal_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Shape (len(vocabulary),): which transforms are legal here. Cached by IR key; read-only."""

    def text(self) -> str:
        """The IR as text."""
