"""`OpenCLDevice`: the OpenCL devices of this machine, by the architecture names of targets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tirgym.errors import BackendUnavailableError, TargetMismatchError
from tirgym.harness.hardware import POCL
from tirgym.harness.target import Target

__all__ = ["REMEDY", "OpenCLDevice", "arch_of", "device_for", "devices", "why_no_device"]

REMEDY = "pip install 'tirgym[opencl]'"
_PLATFORM = "Portable Computing Language"
_PROBE_S = 120.0


@dataclass(frozen=True, slots=True)
class OpenCLDevice:
    """What a device says of itself."""

    arch: str
    """of its targets: "pocl-znver3", or the name of the device in lower case with dashes"""
    platform: str
    platform_version: str
    name: str
    version: str
    driver: str
    compute_units: int
    max_threads: int
    """work-items of one work-group"""
    max_thread_extents: tuple[int, int, int]
    shared_bytes: int
    """local memory of one work-group"""
    alignment_bytes: int
    """of sub-buffers"""
    doubles: bool
    halves: bool

    @property
    def on_cpu(self) -> bool:
        """Whether it is PoCL on this machine's CPU, which runs on as many threads as it is told."""
        return self.arch.startswith(POCL)


def arch_of(platform: str, name: str, version: str) -> str:
    """The architecture name of a device.

    PoCL's version ends with the LLVM name of the CPU that it compiles for.
    """
    if platform == _PLATFORM:
        cpu = version.rpartition("-")[2] or "cpu"
        return f"{POCL}{cpu}"
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


@lru_cache(maxsize=1)
def _probed() -> dict[str, Any]:
    """What the probe says; PoCL in it runs on one thread and compiles nothing."""
    process = subprocess.run(
        [sys.executable, "-m", "tirgym.harness.opencl.probe"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PROBE_S,
        check=False,
    )
    try:
        return json.loads(process.stdout)  # type: ignore[no-any-return]
    except ValueError:
        lines = process.stderr.strip().splitlines()
        return {"problem": lines[-1] if lines else f"the probe ended with {process.returncode}"}


def why_no_device() -> str | None:
    """None where there is a device, else one line with the remedy."""
    if find_spec("pyopencl") is None:
        return f"backend opencl needs pyopencl; {REMEDY}"
    found = _probed()
    if "problem" in found:
        return f"backend opencl finds no OpenCL device ({found['problem']}); {REMEDY} brings PoCL"
    if not found["devices"]:
        return f"backend opencl finds no OpenCL device; {REMEDY} brings PoCL, which runs on any CPU"
    return None


@lru_cache(maxsize=1)
def devices() -> tuple[OpenCLDevice, ...]:
    """The devices of this machine, the default one first; raises BackendUnavailableError."""
    reason = why_no_device()
    if reason is not None:
        raise BackendUnavailableError(reason)
    made: dict[str, OpenCLDevice] = {}
    for facts in _probed()["devices"]:
        arch = arch_of(facts["platform"], facts["name"], facts["version"])
        extents = tuple(facts.pop("max_thread_extents"))
        made.setdefault(arch, OpenCLDevice(arch=arch, max_thread_extents=extents, **facts))
    return tuple(made.values())


def device_for(target: Target) -> OpenCLDevice:
    """The device of `target`; raises TargetMismatchError where this machine has none of that name."""
    for device in devices():
        if device.arch == target.arch:
            return device
    names = ", ".join(device.arch for device in devices())
    raise TargetMismatchError(
        f"this machine has no OpenCL device {target.arch}, whose limits decide what is legal; "
        f"it has {names}"
    )
