"""Small stores of recorded walks with made-up verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fakes import FakeEvaluator
from small import TARGET

from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.store import Record, Store
from tirgym.harness.target import Target
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.recording import record

__all__ = ["Storing", "fill_with_walks"]


class Storing(FakeEvaluator):
    """Stores its verdicts as the real one does; `stop_after` so many it is interrupted."""

    def __init__(
        self,
        store: Store,
        stop_after: int = 10**6,
        otherwise: Callable[[Program], float] | None = None,
    ) -> None:
        super().__init__(otherwise=otherwise)
        self.store, self.stop_after = store, stop_after

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """A pass, which the store keeps."""
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        made = super().evaluate(program, level)
        context = context_of(program.workload, program.target)
        self.store.put_code_key(context, program.ir_key, made.code_key)
        self.store.put_transforms(context, program.ir_key, tuple(map(str, program.steps)))
        self.store.put(
            Record(context, made.code_key, level, made.status, "", made.gate, made.measurement)
        )
        return made


def fill_with_walks(
    store: Store, uris: Iterable[str], programs: int = 12, seed: int = 0, target: Target = TARGET
) -> None:
    """Record `programs` programs of each workload; their speedup grows with their transforms."""
    workloads = [load_workload(uri) for uri in uris]
    record(workloads, target, Storing(store), programs, seed, store=store, space="decision")
