"""What the device asks of `torch.cuda`, where there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

__all__ = ["BUS", "torch_cuda"]

BUS = "00000000:03:01.0"
"""where the GPU is plugged in"""


def torch_cuda(event: type) -> Mapping[str, Any]:
    """Attributes of `torch.cuda` of a machine with one small GPU, and `event` as its clock."""
    properties = SimpleNamespace(
        name="Stand-in", major=9, minor=0, multi_processor_count=2, total_memory=1 << 30,
        L2_cache_size=1 << 12, pci_domain_id=0, pci_bus_id=3, pci_device_id=1,
    )  # fmt: skip
    return {
        "current_device": lambda: 0,
        "get_device_properties": lambda _: properties,
        "synchronize": lambda: None,
        "current_stream": lambda: SimpleNamespace(cuda_stream=7),
        "Event": event,
        "_sleep": lambda cycles: None,
    }
