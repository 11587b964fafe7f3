"""`CompileOnlyBackend`: TVM's backends for GPUs that programs are compiled for and not run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import tvm

from tirgym.errors import BackendUnavailableError, InvalidValueError, UnknownNameError
from tirgym.harness.backends.gpu_limits import archs_of
from tirgym.harness.backends.tvm_device import TVMDeviceBackend
from tirgym.harness.launches import DeviceCode
from tirgym.harness.target import Target

__all__ = ["CompileOnlyBackend"]


class CompileOnlyBackend(TVMDeviceBackend):
    """Levels and legality without a device; there is no launcher yet, so nothing is measured."""

    def why_unavailable(self) -> str | None:
        """Where this TVM lacks the code generator."""
        kind = f"target.build.{self.name}"
        if tvm.get_global_func(kind, allow_missing=True) is None:
            return f"backend {self.name}: this TVM has no {kind}; install apache-tvm==0.27.0.post1"
        return None

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """`arch` is one of the table of GPUs; there is no default, since no device is asked."""
        known = archs_of(self.name)
        if num_threads != 1:
            raise InvalidValueError(f"num_threads of backend {self.name}", num_threads, "1")
        if arch is None:
            raise BackendUnavailableError(
                f"backend {self.name} compiles without a device: name a GPU with --arch: "
                f"{', '.join(known)}"
            )
        if arch not in known:
            raise UnknownNameError(f"arch of backend {self.name}", arch, known)
        return Target(self.name, arch, 1)

    def why_cannot_run(self, target: Target) -> str | None:
        """Always: measuring needs a device and a launcher."""
        return (
            f"code for {target.arch} cannot run here: backend {self.name} compiles only, measuring "
            "needs a device; see tirgym show, and tirgym.harness.semantic for what a program means"
        )

    def _loader(self, code: DeviceCode, target: Target) -> Callable[[], Callable[..., None]]:
        reason = self.why_cannot_run(target)

        def load() -> NoReturn:
            raise BackendUnavailableError(str(reason))

        return load
