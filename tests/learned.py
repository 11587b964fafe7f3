"""A store of made-up measurements that a model can learn: their truth is known."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import GateReport, Level, Measurement, TimingStats
from tirgym.harness.program import Program
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.status import Status
from tirgym.harness.store import Record, Store
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.draws import distinct

__all__ = ["HELD_OUT", "KERNELS", "TARGET", "fill", "measured", "start", "truth"]

TARGET = Target("llvm", "skylake-avx512", 1)
KERNELS = {
    "elementwise": "tirgym://core-v0/add?m=64&n=128&dtype=float32",
    "reduction": "tirgym://core-v0/row_sum?m=64&n=128&dtype=float32",
    "matmul": "tirgym://core-v0/matmul?m=16&n=24&k=32&dtype=float32",
    "layout": "tirgym://core-v0/transpose?m=32&n=64&dtype=float32",
}
"""Workloads of training families."""
HELD_OUT = "tirgym://core-v0/softmax?m=32&n=64&dtype=float32"
"""A workload of a family that models must not learn from."""

_static = StaticCostModel()


def start(uri: str) -> TensorIRProgram:
    """The unscheduled program of a workload."""
    return TensorIRProgram.start(load_workload(uri), TARGET)


def truth(program: Program) -> float:
    """Log-speedup: what the static cost says, and something it does not know."""
    first = TensorIRProgram.start(program.workload, program.target)
    said = math.log(_static.predict_us(first) / _static.predict_us(program))
    lanes = sum(str(step).startswith("Vectorize") for step in program.steps)
    return said - 0.4 * min(lanes, 2)


def measured(speedup: float) -> Measurement:
    """A measurement of `speedup`."""
    stats = TimingStats(1.5, 2.0, 3.0, 4.0, 20)
    return Measurement(stats, stats, speedup, (speedup * 0.9, speedup * 1.1), 2.5)


def fill(store: Store, uris: Iterable[str], programs: int = 30, seed: int = 0) -> list[Program]:
    """Put `programs` different programs of each workload into `store` with their truth."""
    made: list[Program] = []
    for uri in uris:
        seen = {program.ir_key: program for program in distinct(start(uri), programs, seed)}
        context = context_of(load_workload(uri), TARGET)
        for key, program in seen.items():
            store.put_code_key(context, key, f"code-{key}")
            store.put_transforms(context, key, tuple(map(str, program.steps)))
            gate = GateReport(("normal",), 0.1, True)
            number = measured(math.exp(truth(program)))
            store.put(
                Record(context, f"code-{key}", Level.TRAINING, Status.PASSED, "", gate, number)
            )
        made += seen.values()
    return made
