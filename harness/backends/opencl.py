"""The `opencl` backend: TVM's OpenCL C, built and run through pyopencl; PoCL runs it on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tvm

from tirgym.errors import InvalidValueError
from tirgym.harness.backends.tvm_device import TVMDeviceBackend
from tirgym.harness.launches import DeviceCode
from tirgym.harness.opencl.devices import device_for, devices, why_no_device
from tirgym.harness.target import Target, require_threads

__all__ = ["OpenCLBackend"]


@lru_cache(maxsize=64)
def _tvm_target(target: Target) -> Any:
    """OpenCL with the limits of the device."""
    device = device_for(target)
    return tvm.target.Target(
        {
            "kind": "opencl",
            "max_threads_per_block": device.max_threads,
            "max_num_threads": device.max_threads,
            "max_shared_memory_per_block": device.shared_bytes,
            "host": {"kind": "llvm"},
        }
    )


class OpenCLBackend(TVMDeviceBackend):
    """TVM to OpenCL C to a device of this machine, measured by the device's own clock."""

    name = "opencl"
    levels: tuple[str, ...] = ("tir", "lowered", "opencl")

    def why_unavailable(self) -> str | None:
        """Without pyopencl, or without a device."""
        return why_no_device()

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """`arch` is the name of a device of this machine; None means the first.

        PoCL runs on `num_threads` threads of the CPU; a device of its own has no such choice.
        """
        names = [device.arch for device in devices()]
        arch = arch or names[0]
        if arch not in names:
            raise InvalidValueError("arch of backend opencl", arch, f"one of {', '.join(names)}")
        on_cpu = device_for(Target(self.name, arch, 1)).on_cpu
        most = (os.cpu_count() or 1) if on_cpu else 1
        return Target(self.name, arch, require_threads(num_threads, most, arch))

    def why_cannot_run(self, target: Target) -> str | None:
        """Where this machine has no such device."""
        names = [device.arch for device in devices()]
        if target.arch in names:
            return None
        return f"code for {target.arch} cannot run here: this machine has {', '.join(names)}"

    def tvm_target(self, target: Target) -> Any:
        """OpenCL with the limits of the device."""
        return _tvm_target(target)

    def describe(self, target: Target) -> dict[str, Any]:
        """Facts of the device, and versions of all that makes its code."""
        from tirgym.harness.hardware import fingerprint

        device, facts = device_for(target), super().describe(target)
        return {
            **facts,
            "device": device.name,
            "platform": f"{device.platform} {device.platform_version}",
            "compute_units": device.compute_units,
            "fingerprint": fingerprint(),
            "versions": {
                **facts["versions"],
                "opencl": f"{device.platform_version}, {device.driver}".replace(" ", "_"),
                "pyopencl": _version("pyopencl"),
            },
        }

    def _loader(self, code: DeviceCode, target: Target) -> Callable[[], Callable[..., None]]:
        def load() -> Callable[..., None]:
            from tirgym.harness.opencl.launch import LoadedKernels
            from tirgym.harness.opencl.session import session

            return LoadedKernels(code, session(target))

        return load


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"
