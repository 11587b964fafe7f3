"""The device's process from outside: what keeps it from starting, and calls that are interrupted."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

from numpy_device import NumpyDevice

from tirgym.errors import WorkerDiedError
from tirgym.harness.channel import Channel
from tirgym.harness.triton.device.process import DeviceProcess


def test_why_a_device_does_not_open_is_said() -> None:
    with DeviceProcess("numpy_device:open_full", secret=b"s") as process:
        for lost in (1, 2):
            with pytest.raises(WorkerDiedError) as raised:
                process.call("facts", timeout_s=60)
            assert str(raised.value) == (
                "RuntimeError: CUDA out of memory. Tried to allocate 2 MiB"
            )
            assert process.lost == lost


def test_the_answer_of_an_interrupted_call_is_not_that_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DeviceProcess("numpy_device:open_device", secret=b"s") as process:
        assert process.call("clock_mhz", timeout_s=60) == 1980
        with monkeypatch.context() as patched:
            patched.setattr(Channel, "receive", lambda *_: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                process.call("clock_mhz", timeout_s=60)
        assert process.call("facts", timeout_s=60) == NumpyDevice.facts
