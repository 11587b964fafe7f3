"""`Plan`: which kernels are checked how, how often, and how long that may take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tirgym.kernels_suite.kernel import Kernel, Regime, Workload
from tirgym.kernels_suite.registry import load_kernel
from tirgym.kernels_suite.triton.sources import SOURCES, SUITE

__all__ = ["CHECKED", "TRIAL", "Plan"]

CHECKED = (Regime.RAMP, Regime.TIES, Regime.MIXED)
"""regimes of a kernel that is reported, at the size that is timed; all of them at an odd size"""
TRIAL = (Regime.RAMP,)
"""regimes of a trial; what the timed calls leave is judged on normal inputs besides"""
_TIMED = {"cross_entropy": 1}
"""kernel → number of its train shape"""
_SEARCHED = ("matmul", "softmax", "attention")
_RANKED = (*_SEARCHED, "layernorm", "batch_matmul")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    kernels: tuple[str, ...] = (*_SEARCHED, *(name for name in SOURCES if name not in _SEARCHED))
    searched: tuple[str, ...] = _SEARCHED
    ranked: tuple[str, ...] = _RANKED
    search_trials: int = 20
    """measured trials of a search, and configurations that the autotuner gets"""
    tuned_trials: int = 5
    """the same for the kernels that are not searched"""
    drawn_per_trial: int = 2
    """configurations that are compiled and priced for each trial"""
    prepared: tuple[str, ...] = ()
    """kernels of TVM's programs that were made elsewhere"""
    prepared_key: str = ""
    """of their files"""
    ranked_configs: int = 10
    ranked_pipelines: int = 3
    """stock pass pipelines of the default configuration with one pass left out"""
    budget_s: float = 480.0
    """wall seconds of one run; what is not reached then is named"""
    trial_timeout_s: float = 30.0
    row_timeout_s: float = 120.0
    """for the first look at a workload, whose references are worked out then"""
    copy_bytes: int = 1 << 30
    seed: int = 0
    tiny: bool = False
    """every kernel at its tiny shape, for tests"""

    def workload(self, kernel: str) -> Workload:
        """The one that is timed: the first train shape, or another one whose reference takes less."""
        found = self._kernel(kernel)
        timed = found.train[_TIMED.get(kernel, 0)]
        return Workload.of(found, found.tiny_shape if self.tiny else timed)

    def odd_workload(self, kernel: str) -> Workload:
        """The one that is checked in every regime: the first holdout shape."""
        found = self._kernel(kernel)
        return Workload.of(found, found.tiny_shape if self.tiny else found.holdout[0])

    @staticmethod
    def _kernel(name: str) -> Kernel:
        return load_kernel(f"{SUITE}/{name}")

    def fields(self) -> dict[str, Any]:
        """What rows depend on: all but the budget, as JSON values."""
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        del found["budget_s"]
        return found
