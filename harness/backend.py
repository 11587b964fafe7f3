"""`Backend`: one compiler with one kind of device behind one small protocol; the backend table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from tirgym.errors import BackendUnavailableError, UnknownNameError
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Workload

__all__ = ["BACKENDS", "HOME_SUITES", "Backend", "Build", "backend", "home_name"]


@dataclass(frozen=True)
class Build:
    """A compiled program: a way to make it callable, and the key of its machine code."""

    code_key: str
    """16 hex digits; equal for no two machine codes"""
    load: Callable[[], Callable[..., None]]
    """JIT-links and returns f(*inputs, *outputs); belongs to the build time"""


class Backend(Protocol):
    """Hardware, IR levels and code generation of one compiler."""

    name: str
    levels: tuple[str, ...]
    """IR levels from high to low"""

    def why_unavailable(self) -> str | None:
        """None when usable here, else one line that says what is missing and how to get it."""

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """An explicit target; `arch` None means this machine's. Raises InvalidValueError."""

    def why_cannot_run(self, target: Target) -> str | None:
        """None when this machine can run code for `target`, else one line that says why it cannot."""

    def start(self, workload: Workload, target: Target) -> Program:
        """The unscheduled program."""

    def module_json(self, program: Program) -> str:
        """The IR as text that crosses a process border and comes back through `build`."""

    def build(self, module_json: str, target: Target) -> Build:
        """Compile. Raises what the compiler raises; may crash the process: call it in a worker."""

    def ir_level(self, program: Program, level: str) -> str:
        """The program as text at one of `levels`; raises UnknownNameError."""

    def describe(self, target: Target) -> dict[str, Any]:
        """Hardware facts of `target`: vector width, caches, peak estimates, … (JSON values)."""


BACKENDS: dict[str, str] = {
    "llvm": "tirgym.harness.backends.llvm:LLVMBackend",
    "cuda": "tirgym.harness.backends.cuda:CUDABackend",
    "opencl": "tirgym.harness.backends.opencl:OpenCLBackend",
    "rocm": "tirgym.harness.backends.rocm:ROCmBackend",
    "triton": "tirgym.harness.backends.triton:TritonBackend",
}
"""Name → "module:Class"; imported only when asked for."""

HOME_SUITES: dict[str, str] = {"triton": "triton-v0"}
"""Backend → the only suite that it compiles; a bare kernel name is looked up there. The others
compile every kernel."""

_made: dict[str, Backend] = {}


def backend(name: str) -> Backend:
    """The backend called `name`; raises UnknownNameError or BackendUnavailableError."""
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, sorted(BACKENDS))
    if name not in _made:
        module, _, attribute = BACKENDS[name].partition(":")
        made = cast(Backend, getattr(import_module(module), attribute)())
        reason = made.why_unavailable()
        if reason is not None:
            raise BackendUnavailableError(reason)
        _made[name] = made
    return _made[name]


def home_name(kernel: str, backend_name: str) -> str:
    """`kernel` with the suite that a backend compiles, if it is the bare name of a kernel there."""
    from tirgym.kernels_suite.registry import SUITES

    suite = HOME_SUITES.get(backend_name)
    return f"{suite}/{kernel}" if suite and kernel in SUITES[suite].kernels else kernel
