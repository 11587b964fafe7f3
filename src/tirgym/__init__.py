"""tirgym: reinforcement-learning environments over real compilers, with verified speedups.

Importing this package registers the environments with Gymnasium and imports no compiler.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tirgym import without_torch

if TYPE_CHECKING:
    from tirgym.baselines.optimize import optimize
    from tirgym.harness.explain import explain
    from tirgym.harness.session import CompileHarness
    from tirgym.kernels_suite.kernel import Kernel, Regime, Workload
    from tirgym.kernels_suite.registry import load_kernel, load_workload, register_kernel

__all__ = [
    "CompileHarness",
    "Kernel",
    "Regime",
    "Workload",
    "explain",
    "load_kernel",
    "load_workload",
    "optimize",
    "register_kernel",
]

try:
    __version__ = version("tirgym")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_LAZY = {
    "CompileHarness": "tirgym.harness.session",
    "Kernel": "tirgym.kernels_suite.kernel",
    "Regime": "tirgym.kernels_suite.kernel",
    "Workload": "tirgym.kernels_suite.kernel",
    "explain": "tirgym.harness.explain",
    "load_kernel": "tirgym.kernels_suite.registry",
    "load_workload": "tirgym.kernels_suite.registry",
    "optimize": "tirgym.baselines.optimize",
    "register_kernel": "tirgym.kernels_suite.registry",
}

without_torch.install()

if find_spec("gymnasium") is not None:  # without it nobody could make one; Triton kernels need none
    from tirgym.envs.registration import register_environments

    register_environments()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tirgym' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
