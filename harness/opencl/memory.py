"""`OpenCLBuffer`: a tensor in device memory between guard zones, with a copy on the host."""

from __future__ import annotations

from typing import Any

from tirgym.errors import EvaluationError
from tirgym.harness.buffers import GUARD_BYTES, GuardedBuffer
from tirgym.harness.opencl.session import Session
from tirgym.kernels_suite.kernel import Tensor

__all__ = ["OpenCLBuffer"]


class OpenCLBuffer(GuardedBuffer):
    """The host's guard, tensor and guard lie in one device buffer in the same order; a kernel is given
    the part between the guards. `send` copies all three there, `fetch` back."""

    def __init__(self, tensor: Tensor, index: int, session: Session) -> None:
        super().__init__(tensor, index)
        cl, self._session = session.cl, session
        alignment = session.device.mem_base_addr_align // 8
        if GUARD_BYTES % max(1, alignment):
            raise EvaluationError(
                f"guard zones of {GUARD_BYTES} bytes break the device's alignment"
            )
        flags = cl.mem_flags.READ_WRITE
        self._all = cl.Buffer(session.context, flags, self.whole.nbytes)
        self._part = self._all.get_sub_region(GUARD_BYTES, tensor.nbytes, flags)

    @property
    def device(self) -> Any:
        """What a kernel is given."""
        return self._part

    def send(self) -> None:
        """Copy guards and tensor to the device."""
        self._session.cl.enqueue_copy(self._session.queue, self._all, self.whole)

    def fetch(self, place: int = 0) -> None:
        """Copy guards and tensor from the device."""
        self._session.cl.enqueue_copy(self._session.queue, self.whole, self._all)
