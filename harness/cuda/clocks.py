"""`sm_clock_mhz`: the clock of a GPU's multiprocessors now, as NVIDIA's management library tells it."""

from __future__ import annotations

import subprocess
from typing import Any

__all__ = ["sm_clock_mhz"]

_NVML_CLOCK_SM = 1


def sm_clock_mhz(pci_bus_id: str) -> int | None:
    """From pynvml, else from nvidia-smi; None where neither answers. Changes no setting."""
    try:
        import pynvml
    except ImportError:
        return _from_command(pci_bus_id)
    return _from_library(pynvml, pci_bus_id)


def _from_library(pynvml: Any, pci_bus_id: str) -> int | None:
    try:
        pynvml.nvmlInit()  # stays initialized, so that the next reading takes microseconds
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
        return int(pynvml.nvmlDeviceGetClockInfo(handle, _NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return _from_command(pci_bus_id)


def _from_command(pci_bus_id: str) -> int | None:
    command = ["nvidia-smi", "-i", pci_bus_id, "--query-gpu=clocks.sm"]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return int(done.stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
