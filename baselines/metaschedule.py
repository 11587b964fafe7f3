"""MetaSchedule's evolutionary search, measured and gated by our evaluator: the peer to beat.

Its own strategy, mutators, database and boosted-tree cost model choose what to measure (Shao et
al., "Tensor Program Optimization with Probabilistic Programs", NeurIPS 2022); builder and runner
are replaced by the evaluator of the run, so that trials are counted, checked and timed as for any
other agent. What it finds is made by the compiler and not by transforms of the vocabulary: it has
no trace of ours, so the agent stands in no table of `optimize` and serves comparisons alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from tirgym.errors import InvalidValueError, MissingExtraError
from tirgym.harness.agent import Search
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program

__all__ = ["Args", "MetaScheduleAgent"]

FAILED_S = 1e10
"""Seconds that MetaSchedule itself records for a candidate that did not run."""


@dataclass(frozen=True)
class Args:
    """Options of the search."""

    batch: int = 16
    """candidates of one round; MetaSchedule's own default, 64, would leave no second round"""
    warmup: int = 16
    """measurements after which its cost model is asked; its own default is 100, so that within 64
    trials it would answer by chance"""
    population: int = 512
    """as it ships"""


class MetaScheduleAgent:
    """Plays MetaSchedule's search on TensorIR programs for `llvm`."""

    name = "metaschedule"

    def __init__(self, **options: Any) -> None:
        self.args = Args(**options)
        for field in ("batch", "warmup", "population"):
            if getattr(self.args, field) < 1:
                value = getattr(self.args, field)
                raise InvalidValueError(f"{field} of agent metaschedule", value, "at least 1")
        if find_spec("xgboost") is None:
            raise MissingExtraError("MetaSchedule's cost model", "xgboost", "peers")
        self.schedules: dict[str, Any] = {}
        """by IR key, the compiler's own trace of each program that was proposed in the last run"""

    def run(self, search: Search) -> None:
        """Spend the budget; returns early where the compiler finds no design space."""
        self.schedules = {}
        rounds = _Rounds(self.args, search, self.schedules)
        while (batch := rounds.propose()) is not None:
            if not rounds.measure(batch):
                return


class _Rounds:
    """One tuning task, round by round."""

    def __init__(self, args: Args, search: Search, schedules: dict[str, Any]) -> None:
        from tvm.s_tir import meta_schedule as ms
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBModel

        from tirgym.harness.default_schedule import tune_context
        from tirgym.harness.tensorir.program import TensorIRProgram

        if not isinstance(search.start, TensorIRProgram):
            raise InvalidValueError("program", search.start.dialect, "a TensorIR program")
        self.search, self.start, self.schedules = search, search.start, schedules
        strategy = ms.search_strategy.EvolutionarySearch(population_size=args.population)
        seed = int(search.rng.integers(1, 2**31 - 1))
        self.context = tune_context(self.start.mod, self.start.target, True, strategy, seed)
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(self.start.mod)
        self.model = XGBModel(num_warmup_samples=args.warmup, num_tuning_cores=1)
        # unlimited: the run's own budget ends the search
        self.context.pre_tuning(1 << 20, args.batch, database=self.database, cost_model=self.model)

    def propose(self) -> Any | None:
        """The next candidates, None when the strategy has no more.

        Before its warm-up is over the cost model answers from NumPy's global generator, which is
        given back as it was.
        """
        state = np.random.get_state()
        np.random.seed(int(self.search.rng.integers(1 << 31)))
        try:
            batch = self.context.generate_measure_candidates()
        finally:
            np.random.set_state(state)
        return batch or None

    def measure(self, batch: Any) -> bool:
        """Judge `batch` and tell strategy, database and model; False once the budget is spent."""
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        results = []
        answers = self.search.evaluate_many([self._program(candidate) for candidate in batch])
        for candidate, evaluation in zip(batch, answers, strict=False):
            seconds = _seconds(evaluation)
            results.append(
                RunnerResult([seconds], None)
                if seconds is not None
                else RunnerResult(None, evaluation.message or evaluation.status.value)
            )
            self._commit(candidate, seconds)
        if len(results) < len(batch):
            return False
        self.context.notify_runner_results(batch, results)
        self.model.update(self.context, list(batch), results)
        return True

    def _program(self, candidate: Any) -> Program:
        from tvm.s_tir import Schedule

        schedule = Schedule(candidate.sch.mod, debug_mask="none", error_render_level="none")
        program = type(self.start)(self.start.workload, self.start.target, (), schedule)
        self.schedules[program.ir_key] = candidate.sch.trace
        return program

    def _commit(self, candidate: Any, seconds: float | None) -> None:
        from tvm.s_tir.meta_schedule.database import TuningRecord

        times = [FAILED_S if seconds is None else seconds]
        record = TuningRecord(
            candidate.sch.trace, self.workload, times, self.context.target, candidate.args_info
        )
        self.database.commit_tuning_record(record)


def _seconds(evaluation: Evaluation) -> float | None:
    """Time of one call, None without a pass."""
    measured = evaluation.measurement
    return None if measured is None else measured.latency_us * 1e-6
