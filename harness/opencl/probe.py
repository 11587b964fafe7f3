"""What OpenCL devices this machine has, as JSON on stdout: `python -m tirgym.harness.opencl.probe`.

In a process of its own, because an OpenCL runtime starts threads and does not survive a fork.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["facts_of", "main"]


def facts_of(device: Any) -> dict[str, Any]:
    """The properties of a pyopencl device that limit or name it."""
    return {
        "platform": device.platform.name.strip(),
        "platform_version": device.platform.version.strip(),
        "name": device.name.strip(),
        "version": device.version.strip(),
        "driver": device.driver_version.strip(),
        "compute_units": int(device.max_compute_units),
        "max_threads": int(device.max_work_group_size),
        "max_thread_extents": [int(n) for n in device.max_work_item_sizes[:3]],
        "shared_bytes": int(device.local_mem_size),
        "alignment_bytes": max(1, int(device.mem_base_addr_align) // 8),
        "doubles": "cl_khr_fp64" in device.extensions,
        "halves": "cl_khr_fp16" in device.extensions,
    }


def main() -> None:
    """Print {"devices": […]} or {"problem": one line}."""
    import pyopencl

    try:
        found = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    except pyopencl.Error as error:
        json.dump({"problem": " ".join(str(error).split())}, sys.stdout)
        return
    json.dump({"devices": [facts_of(device) for device in found]}, sys.stdout)


if __name__ == "__main__":
    main()
