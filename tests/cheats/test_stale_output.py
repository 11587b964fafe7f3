"""Trick: compute once, then leave the output alone and live off the right answer in the buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from handmade import program_of, start

from tirgym.harness.buffers import GuardedBuffer
from tirgym.harness.gate import Bench, InputSet, run_gate
from tirgym.harness.judge import Expected
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Regime, Tensor

Unpaid = Callable[..., Any]


class Lazy:
    """Doubles its input on the first `honest` calls, then does nothing."""

    def __init__(self, honest: int, bench: Bench) -> None:
        self.left, self.x, self.y = honest, bench.inputs[0].array, bench.outputs[0].array

    def __call__(self, *_: Any) -> None:
        if self.left > 0:
            self.left -= 1
            self.y[...] = self.x * 2


def judged(honest: int) -> Status:
    """Verdict of the gate on a lazy kernel, the right answers lying in the output before each call."""
    tensor = Tensor("x", (16, 24), "float32")
    x = np.random.default_rng(0).standard_normal(tensor.shape).astype(np.float32)
    right = Expected.of("y", x.astype(np.float64) * 2, x * 2, 1, None)
    bench = Bench([GuardedBuffer(tensor, 0)], [GuardedBuffer(tensor, 1)])
    bench.answers_left = True
    sets = [InputSet(Regime.NORMAL, (x,), (right,)) for _ in range(2)]
    return run_gate(bench, Lazy(honest, bench), sets).status


def test_honest_for_ever_passes() -> None:
    assert judged(1000) is Status.PASSED


def test_honest_for_some_calls_is_found() -> None:
    for honest in range(4):
        assert judged(honest) in (Status.WRONG_RESULT, Status.FLAKY)


def test_a_program_that_does_nothing(evaluator: LocalEvaluator, unpaid: Unpaid) -> None:
    nothing = program_of(mutate("stale_output", start().mod))
    assert evaluator.evaluate(start()).passed  # leaves right answers behind
    unpaid(nothing)
    assert evaluator.check(nothing).status is Status.WRONG_RESULT
