"""Every trick runs through the evaluator that pays, without the static checks in front of it.

Static checks refuse many tricks before they run; what is tested here is that the gate needs no help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from handmade import host

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import TimingPlan

Unpaid = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def evaluator() -> Iterator[LocalEvaluator]:
    """A worker of this machine, one thread, little timing."""
    plan = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)
    with LocalEvaluator(
        host(), ":memory:", static_checks=False, plans=dict.fromkeys(Level, plan)
    ) as made:
        yield made


@pytest.fixture
def unpaid(evaluator: LocalEvaluator) -> Unpaid:
    """Assert that a program gets a verdict and no number, at both levels; answers the last one."""

    def judge(program: TensorIRProgram, *statuses: Status) -> Evaluation:
        for level in Level:
            found = evaluator.evaluate(program, level, fresh=True)
            assert found.measurement is None
            assert found.speedup is None
            assert found.status in (statuses or (Status.WRONG_RESULT,)), found.message
        return found

    return judge


@pytest.fixture(scope="session")
def host_target() -> Target:
    """This machine, one thread."""
    return host()
