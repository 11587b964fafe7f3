"""CuPy of a machine whose GPU is a CPU, and torch's tensors there: see `cuda_stand_in`."""

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import cuda_stand_in
import numpy as np

from tirgym.harness import vendor_torch
from tirgym.harness.cuda import session

_driver = ctypes.CDLL("libcuda.so.1")
_driver.stand_in_us.restype = ctypes.c_double


class _Clock(SimpleNamespace):
    @property
    def clock_us(self) -> float:
        return float(_driver.stand_in_us())


def _tensor_of(array: Any) -> Any:
    import torch

    told = array.__cuda_array_interface__
    dtype, (address, _) = np.dtype(told["typestr"]), told["data"]
    count = int(np.prod(told["shape"], dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * count).from_address(address)
    return torch.from_numpy(np.frombuffer(memory, dtype).reshape(told["shape"]))


setattr(vendor_torch, "tensor_of", _tensor_of)  # noqa: B010 - mypy knows the function
setattr(session, "sm_clock_mhz", lambda bus: 1500)  # noqa: B010
sys.modules.update(cuda_stand_in.fake_cupy(_Clock()))
