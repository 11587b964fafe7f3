"""Every hand schedule is legal, and faster than doing nothing is checked by the suite lint."""

from __future__ import annotations

import pytest

from tirgym.errors import UnknownNameError
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.hand_schedules import HAND_SCHEDULES, hand_schedule
from tirgym.kernels_suite.registry import list_kernels, load_workload


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", HAND_SCHEDULES)
def test_every_hand_schedule_is_legal_on_its_default_shape(kernel: str, threads: int) -> None:
    program = TensorIRProgram.start(load_workload(kernel), Target("llvm", "x86-64", threads))
    for text in hand_schedule(kernel, threads):
        program = program.apply(parse_transform(text))
    assert program.steps


def test_only_controls_go_without() -> None:
    missing = {k.name for k in list_kernels("core-v0") if k.name not in HAND_SCHEDULES}
    assert missing == {k.name for k in list_kernels("core-v0") if "control" in k.tags}
    with pytest.raises(UnknownNameError, match="hand schedule"):
        hand_schedule("add")


def test_one_thread_goes_without_parallel() -> None:
    assert any(text.startswith("Parallel(") for text in hand_schedule("matmul", 2))
    assert not any(text.startswith("Parallel(") for text in hand_schedule("matmul"))
