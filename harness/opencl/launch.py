"""`LoadedKernels`: a built program that is called like a function; `EventTimer`: its clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from tirgym.errors import CompileFailedError
from tirgym.harness.launches import DeviceCode
from tirgym.harness.opencl.session import Session
from tirgym.harness.timing import Call

__all__ = ["EventTimer", "LoadedKernels"]


class LoadedKernels:
    """f(*inputs, *outputs) on device buffers: launches every kernel in order and waits."""

    def __init__(self, code: DeviceCode, session: Session) -> None:
        cl, self._session = session.cl, session
        try:
            program = cl.Program(session.context, code.source).build(cache_dir=False)
        except cl.RuntimeError as error:
            raise CompileFailedError("kernels", _said(str(error))) from None
        flags = cl.mem_flags.READ_WRITE
        self._workspaces = [
            cl.Buffer(session.context, flags, max(1, nbytes)) for nbytes in code.workspaces
        ]
        self._launches = [
            (
                getattr(program, step.kernel),
                _sizes(step.grid, step.block),
                step.block,
                step.arguments,
            )
            for step in code.launches
        ]

    def enqueue(self, *arguments: Any) -> list[Any]:
        """Launch without waiting; one event for each kernel. The queue keeps them in order."""
        queue, places = self._session.queue, (*arguments, *self._workspaces)
        return [
            kernel(queue, total, block, *[places[i] for i in chosen])
            for kernel, total, block, chosen in self._launches
        ]

    def __call__(self, *arguments: Any) -> None:
        """Launch and wait."""
        for event in self.enqueue(*arguments):
            event.wait()


def _said(log: str) -> str:
    """The first line of the device compiler's log that says "error"."""
    lines = [line.strip() for line in log.splitlines() if "error:" in line]
    return lines[0] if lines else " ".join(log.split())[:300]


def _sizes(grid: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    """Work-items in all, which OpenCL is told instead of the number of work-groups."""
    return tuple(int(np.multiply(g, b)) for g, b in zip(grid, block, strict=True))


class EventTimer:
    """Time between start and end of each kernel as the device's profiling events tell it, summed up.

    Neither the host's part of a launch nor pauses between kernels count.
    """

    name = "opencl_events"

    def time(self, call: Call, calls: int) -> float:
        """Seconds for one call."""
        events: list[Any] = []
        for _ in range(calls):
            events += call.function.enqueue(*call.arguments)  # type: ignore[attr-defined]
        nanoseconds = 0
        for event in events:
            event.wait()
            nanoseconds += event.profile.end - event.profile.start
        return nanoseconds * 1e-9 / calls
