"""Hardware counters around a function, through Linux's perf_event_open.

Counts user-mode events of the calling thread and of threads that it starts meanwhile, so call it
inside the process that runs the kernel. Where the system has no counters, `count` answers with one
line that says why; nothing is estimated in their place.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tirgym.errors import InvalidValueError

__all__ = ["HARDWARE", "Counters", "count", "why_unavailable"]

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
"""Number of perf_event_open (kernel sources, arch/*/entry/syscalls)."""
_IOC_ENABLE, _IOC_DISABLE, _IOC_RESET = 0x2400, 0x2401, 0x2403
_ATTR_SIZE = 112
"""perf_event_attr up to version 5 (man 2 perf_event_open)"""
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING = 1, 2
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

HARDWARE: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "cycles": (0, 0),
        "instructions": (0, 1),
        "cache_references": (0, 2),
        "cache_misses": (0, 3),
        "branches": (0, 4),
        "branch_misses": (0, 5),
    }
)
"""Name → (type, config) of perf_event_attr."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Events per call, by name; events that this CPU lacks are absent."""

    per_call: Mapping[str, float]
    repeats: int

    @property
    def instructions_per_cycle(self) -> float | None:
        """IPC, or None without both counters."""
        cycles, instructions = self.per_call.get("cycles"), self.per_call.get("instructions")
        return instructions / cycles if cycles and instructions is not None else None


def _attribute(kind: int, config: int) -> bytes:
    """A perf_event_attr that counts user mode and starts disabled."""
    flags = _DISABLED | _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    reading = _TOTAL_TIME_ENABLED | _TOTAL_TIME_RUNNING
    head = struct.pack("=IIQQQQQ", kind, _ATTR_SIZE, config, 0, 0, reading, flags)
    return head.ljust(_ATTR_SIZE, b"\0")


def _open(kind: int, config: int) -> int:
    """File descriptor of one counter for this thread on any core; raises OSError."""
    number = _SYSCALL.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    library = ctypes.CDLL(None, use_errno=True)
    attribute = ctypes.create_string_buffer(_attribute(kind, config), _ATTR_SIZE)
    none = ctypes.c_int(-1)
    flags = ctypes.c_ulong(8)  # PERF_FLAG_FD_CLOEXEC
    descriptor = library.syscall(number, attribute, ctypes.c_int(0), none, none, flags)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)


def _reason(error: OSError) -> str:
    """One line that says why counters cannot be opened."""
    if platform.system() != "Linux":
        return f"hardware counters need Linux; this is {platform.system()}"
    if error.errno in (errno.EACCES, errno.EPERM):
        level = _PARANOID.read_text().strip() if _PARANOID.exists() else "unknown"
        return (
            f"the kernel refuses hardware counters (perf_event_paranoid is {level}, a sandbox may "
            "forbid them too); an administrator can set kernel.perf_event_paranoid=2 or lower"
        )
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS):
        return (
            "this machine shows no hardware counters (virtual machines often hide them): "
            f"perf_event_open says {os.strerror(error.errno)}"
        )
    return f"perf_event_open says {error.strerror}"


def why_unavailable() -> str | None:
    """None when cycles can be counted here, else one line that says why not."""
    try:
        os.close(_open(*HARDWARE["cycles"]))
    except OSError as error:
        return _reason(error)
    return None


def count(
    function: Callable[[], object],
    repeats: int = 1,
    events: Mapping[str, tuple[int, int]] = HARDWARE,
) -> Counters | str:
    """Events per call of `function`, over `repeats` calls; a line saying why if none can be counted.

    Counters that share the hardware are scaled by the time that each was running. Raises
    InvalidValueError for `repeats` below 1, and whatever `function` raises.
    """
    if repeats < 1:
        raise InvalidValueError("repeats", repeats, "an integer of at least 1")
    descriptors: dict[str, int] = {}
    refused: OSError | None = None
    try:
        for name, (kind, config) in events.items():
            try:
                descriptors[name] = _open(kind, config)
            except OSError as error:
                refused = refused or error
        if not descriptors:
            return _reason(refused) if refused else "no events were asked for"
        return _run(function, repeats, descriptors)
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _run(function: Callable[[], object], repeats: int, descriptors: dict[str, int]) -> Counters:
    library = ctypes.CDLL(None, use_errno=True)

    def control(request: int) -> None:
        for descriptor in descriptors.values():
            library.ioctl(ctypes.c_int(descriptor), ctypes.c_ulong(request), ctypes.c_ulong(0))

    control(_IOC_RESET)
    control(_IOC_ENABLE)
    try:
        for _ in range(repeats):
            function()
    finally:
        control(_IOC_DISABLE)
    found: dict[str, float] = {}
    for name, descriptor in descriptors.items():
        value, enabled, running = struct.unpack("=QQQ", os.read(descriptor, 24))
        if running:
            found[name] = value * (enabled / running) / repeats
    return Counters(MappingProxyType(found), repeats)
