"""`Session`: context and queue of one device in one worker process."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from tirgym.errors import BackendUnavailableError
from tirgym.harness.opencl.devices import arch_of
from tirgym.harness.opencl.probe import facts_of
from tirgym.harness.target import Target

__all__ = ["Session", "session"]


class Session:
    """Made in the worker, after the fork: an OpenCL runtime has threads, which a fork loses."""

    def __init__(self, target: Target) -> None:
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(target.num_threads)
        os.environ["POCL_CACHE_DIR"] = str(_cache_of_this_process())
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        import pyopencl as cl

        self.cl = cl
        self.device = _device(cl, target)
        self.context = cl.Context([self.device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)


def _device(cl: Any, target: Target) -> Any:
    for platform in cl.get_platforms():
        for device in platform.get_devices():
            facts = facts_of(device)
            if arch_of(facts["platform"], facts["name"], facts["version"]) == target.arch:
                return device
    raise BackendUnavailableError(f"no OpenCL device {target.arch} in this process")


def _cache_of_this_process() -> Path:
    """Folder for PoCL's compiled kernels, a new one for each process; those of processes that are
    gone are removed."""
    folder = Path(tempfile.gettempdir()) / f"tirgym-pocl-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for left in folder.iterdir():
        if left.name.isdigit() and not Path(f"/proc/{left.name}").exists():
            shutil.rmtree(left, ignore_errors=True)
    mine = folder / str(os.getpid())
    mine.mkdir(mode=0o700, exist_ok=True)
    return mine


@lru_cache(maxsize=1)
def session(target: Target) -> Session:
    """The session of this process; a worker has one device and one number of threads."""
    return Session(target)
