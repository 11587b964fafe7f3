"""`count_program`: hardware counters of one program, in a process of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np

from tirgym.harness.backend import backend
from tirgym.harness.counters import HARDWARE, Counters, count, why_unavailable
from tirgym.harness.own_process import call_apart
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.worker_device import WORKER_DEVICES
from tirgym.kernels_suite.kernel import Array, Regime, Tensor
from tirgym.kernels_suite.problem import make_inputs, tensors

__all__ = ["count_program"]

COUNTED_S = 0.2
"""Seconds of counted calls."""


def count_program(
    program: Program, events: Mapping[str, tuple[int, int]] = HARDWARE
) -> Counters | str:
    """Events of one call of `program` on normal inputs, or one line that says why there are none.

    Runs the program: only for what has passed the gate.
    """
    if program.target.backend in WORKER_DEVICES:
        return f"backend {program.target.backend} does not run in this process"
    if events is HARDWARE:
        reason = why_unavailable()
        if reason is not None:
            return reason
    inputs = make_inputs(program.workload, np.random.default_rng(0), Regime.NORMAL)
    outputs = tensors(program.workload)[1]
    text = backend(program.target.backend).module_json(program)
    made = call_apart(
        _count_here,
        *(text, program.target, inputs, outputs, dict(events)),
        num_threads=program.target.num_threads,
    )
    return made if isinstance(made, str) else Counters(*made)


def _count_here(
    module_json: str,
    target: Target,
    inputs: tuple[Array, ...],
    outputs: tuple[Tensor, ...],
    events: dict[str, tuple[int, int]],
) -> tuple[dict[str, float], int] | str:
    """Build, warm up and count; the fields of `Counters`, which does not pickle."""
    import tvm

    function = backend(target.backend).build(module_json, target).load()
    arrays = [*inputs, *(np.zeros(t.shape, t.dtype) for t in outputs)]
    arguments = [tvm.runtime.tensor(array) for array in arrays]
    seconds = math.inf
    for _ in range(3):
        started = time.perf_counter()
        function(*arguments)
        seconds = min(seconds, time.perf_counter() - started)
    repeats = max(1, min(100_000, round(COUNTED_S / max(seconds, 1e-7))))
    found = count(lambda: function(*arguments), repeats, events)
    return found if isinstance(found, str) else (dict(found.per_call), found.repeats)
