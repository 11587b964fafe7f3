"""Random answers give right results, judged by the gate in every input regime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tirgym.harness.backend import backend
from tirgym.harness.decisions import DecisionAgent, RandomAgent, StaticAgent, design_space
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.suites import CORE_V0

GOOD = frozenset({Status.PASSED, Status.NOISY, Status.TOO_SLOW, Status.SUSPECT})
"""What says nothing against the result; the last three only refuse a number."""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(store=":memory:") as made:
        yield made


def check(evaluator: LocalEvaluator, kernel: str, threads: int, seeds: range) -> None:
    workload = load_workload(kernel)
    workload = Workload.of(workload.kernel, workload.kernel.tiny_shape)
    target = backend("llvm").target(None, threads)
    walk = design_space(TensorIRProgram.start(workload, target))
    agents: list[DecisionAgent] = [StaticAgent(), *(RandomAgent(seed) for seed in seeds)]
    for agent in agents:
        program = walk.follow(agent).program
        evaluation = evaluator.evaluate(program, Level.FULL)
        steps = "; ".join(map(str, program.steps))
        assert evaluation.status in GOOD, f"{evaluation.message} after {steps}"


def test_random_answers_about_a_softmax_are_right(evaluator: LocalEvaluator) -> None:
    check(evaluator, "softmax", 1, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", sorted(CORE_V0.kernels))
def test_random_answers_about_every_kernel_are_right(
    evaluator: LocalEvaluator, kernel: str, threads: int
) -> None:
    check(evaluator, kernel, threads, range(4))
