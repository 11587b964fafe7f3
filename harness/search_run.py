"""`SearchRun`: lets an agent spend its budget, counts trials, and keeps every verdict."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from tirgym.errors import CompileFailedError, EvaluationError, InvalidValueError
from tirgym.harness.agent import Agent, Budget, Candidate, Search, measured_speedup
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["SearchRun", "Stopped", "Trial", "best_within"]

GAIN = 1.05
"""Improvement of the best speedup that counts, for the patience of a budget."""
_INSISTENCE = 1000
"""Calls after the end of the budget that an agent may make before it is stopped by force."""


class Stopped(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    """the agent returned by itself"""
    TRIALS = "trials"
    """the trials were spent"""
    TIME = "time"
    """the time was spent"""
    DUPLICATES = "duplicates"
    """too many evaluator calls gave machine code that the run had measured before"""
    CONVERGED = "converged"
    """the patience was spent: too many trials in a row without a gain of 5 %"""
    INTERRUPTED = "interrupted"
    """Ctrl-C"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer of the evaluator within a run."""

    number: int
    """trials spent so far, this one included; 0 for the unscheduled program"""
    charged: bool
    """False for the unscheduled program and for machine code that the run had measured before"""
    candidate: Candidate
    predicted_us: float | None
    """what the static cost model says; None if it has to compile and cannot"""
    best_speedup: float
    """best speedup of the run so far, as `Search.worth` has it; 1 at least, since the unscheduled
    program can be kept"""
    elapsed_s: float
    """since the start of the run"""
    answers: Mapping[str, int] = field(default_factory=dict)
    """see `Search.decided`; empty for a program that was made by transforms"""


class _BudgetIgnored(BaseException):
    """Ends an agent that goes on after `evaluate` answered None; no agent can swallow it."""


class SearchRun:
    """One run of one agent. A trial is one evaluator call with a code key new to the run.

    Programs are told apart by IR key before the evaluator is asked, and by code key after: both
    kinds of repetition answer what was measured first, and cost no trial. Verdicts without machine
    code (a failed build, say) are charged. Evaluator calls that cost no trial are limited, so that
    a run ends even where few different programs exist.
    """

    def __init__(
        self,
        start: Program,
        vocabulary: Vocabulary,
        cost: CostModel,
        evaluator: Evaluator,
        budget: Budget,
        seed: int = 0,
        on_trial: Callable[[Trial], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(budget.trials, bool) or budget.trials < 1:
            raise InvalidValueError("trials", budget.trials, "a whole number of at least 1")
        if budget.seconds is not None and not budget.seconds > 0:
            raise InvalidValueError("seconds", budget.seconds, "a positive number, or none")
        if budget.patience is not None and budget.patience < 1:
            raise InvalidValueError("patience", budget.patience, "at least 1 trial, or none")
        self.start, self.cost, self.evaluator, self.budget = start, cost, evaluator, budget
        self.trials: list[Trial] = []
        self.used = 0
        self.evaluator_s = 0.0
        self.stopped = Stopped.FINISHED
        self._free_calls_left = 64 + 8 * budget.trials
        self._on_trial, self._clock, self._began = on_trial, clock, clock()
        self._by_ir: dict[str, Evaluation] = {}
        self._by_code: dict[str, Evaluation] = {}
        self._ignored = 0
        self._mark, self._stale = 1.0, 0
        self.search = Search(
            start=start,
            vocabulary=vocabulary,
            cost=cost,
            rng=np.random.default_rng(seed),
            budget=budget,
            evaluate=self.evaluate,
            evaluate_many=self.evaluate_many,
            remaining_trials=lambda: budget.trials - self.used,
            out_of_time=self.out_of_time,
            worth=self.worth,
        )

    @property
    def history(self) -> list[Candidate]:
        """Every program that was given to the evaluator, in order, with its verdict."""
        return self.search.history

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run was made."""
        return self._clock() - self._began

    def out_of_time(self) -> bool:
        """Whether the time budget is spent."""
        return self.budget.seconds is not None and self.elapsed_s >= self.budget.seconds

    def run(self, agent: Agent) -> Stopped:
        """Measure the unscheduled program, then let `agent` search; what it raises comes out.

        Ctrl-C ends the search and is answered by `Stopped.INTERRUPTED`: nothing is lost.
        """
        try:
            next(self._ask([self.start], free=True))
            agent.run(self.search)
        except KeyboardInterrupt:
            self.stopped = Stopped.INTERRUPTED
        except _BudgetIgnored:
            pass
        return self.stopped

    def evaluate(self, program: Program) -> Evaluation | None:
        """The verdict on `program`, or None once the budget is spent."""
        known = self._by_ir.get(program.ir_key)
        if known is not None:
            return known
        if self._is_over():
            return None
        return next(self._ask([program], free=False))

    def evaluate_many(self, programs: Sequence[Program]) -> Iterator[Evaluation]:
        """The verdicts on `programs`, in order; fewer once the budget is spent.

        Counts as one `evaluate` after the other. The evaluator is handed no more programs than
        trials are left, so that none is built in vain but when time or patience end.
        """
        waiting = deque(programs)
        while waiting:
            news = {p.ir_key: p for p in waiting if p.ir_key not in self._by_ir}
            batch = list(news.values())[: max(1, self.budget.trials - self.used)]
            with closing(self._ask(batch, free=False)) as answers:
                while waiting:
                    known = self._by_ir.get(waiting[0].ir_key)
                    if known is None:
                        if self._is_over():
                            return
                        known = next(answers, None)
                    if known is None:
                        break
                    waiting.popleft()
                    yield known

    def worth(self, program: Program, evaluation: Evaluation) -> float:
        """See `Search.worth`."""
        if evaluation.status is Status.SEMANTIC_ONLY:
            return self.cost.predict_us(self.start) / self.cost.predict_us(program)
        return measured_speedup(program, evaluation)

    def ranked(self) -> list[Candidate]:
        """Programs that passed, or are right as far as was checked, best first by `worth`, one for
        each code key; ties go to the earlier one."""
        return _ranked(self.history, self.worth)

    def _spent(self) -> Stopped | None:
        if self.used >= self.budget.trials:
            return Stopped.TRIALS
        if self._free_calls_left <= 0:
            return Stopped.DUPLICATES
        if self.budget.patience is not None and self._stale >= self.budget.patience:
            return Stopped.CONVERGED
        return Stopped.TIME if self.out_of_time() else None

    def _is_over(self) -> bool:
        """Whether nothing more is measured; stops agents that do not listen by force."""
        spent = self._spent()
        if spent is None:
            return False
        self.stopped = spent
        self._ignored += 1
        if self._ignored > _INSISTENCE:
            raise _BudgetIgnored
        return True

    def _ask(self, programs: Sequence[Program], free: bool) -> Generator[Evaluation, None, None]:
        """Verdicts of the evaluator, each counted and recorded when it is asked for."""
        with closing(self.evaluator.evaluate_many(programs)) as answers:
            for program in programs:
                began = self._clock()
                evaluation = next(answers)
                self.evaluator_s += self._clock() - began
                yield self._counted(program, evaluation, free)

    def _counted(self, program: Program, evaluation: Evaluation, free: bool) -> Evaluation:
        if evaluation.ir_key != program.ir_key:
            raise EvaluationError(
                f"the evaluator answered for IR {evaluation.ir_key}, not {program.ir_key}"
            )
        known = self._by_code.get(evaluation.code_key) if evaluation.code_key else None
        if known is not None:
            evaluation = replace(known, ir_key=program.ir_key)
        elif evaluation.code_key:
            self._by_code[evaluation.code_key] = evaluation
        charged = known is None and not free
        if charged:
            self.used += 1
        else:
            self._free_calls_left -= 1
        self._by_ir[program.ir_key] = evaluation
        self._record(Candidate(program, evaluation), charged)
        return evaluation

    def _record(self, candidate: Candidate, charged: bool) -> None:
        self.search.history.append(candidate)
        best = self.trials[-1].best_speedup if self.trials else 1.0
        trial = Trial(
            number=self.used,
            charged=charged,
            candidate=candidate,
            predicted_us=self._predicted_us(candidate.program),
            best_speedup=max(best, self.worth(candidate.program, candidate.evaluation)),
            elapsed_s=self.elapsed_s,
            answers=self.search.decided.get(candidate.program.ir_key, {}),
        )
        self.trials.append(trial)
        if trial.best_speedup >= GAIN * self._mark:
            self._mark, self._stale = trial.best_speedup, 0
        elif charged:
            self._stale += 1
        if self._on_trial is not None:
            self._on_trial(trial)

    def _predicted_us(self, program: Program) -> float | None:
        try:
            return self.cost.predict_us(program)
        except CompileFailedError:
            return None


def best_within(curve: Sequence[Trial], trials: int) -> list[Candidate]:
    """`SearchRun.ranked` of the first `trials` trials of a run."""
    return _ranked(trial.candidate for trial in curve if trial.number <= trials)


def _ranked(
    candidates: Iterable[Candidate],
    worth: Callable[[Program, Evaluation], float] = measured_speedup,
) -> list[Candidate]:
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        if worth(candidate.program, candidate.evaluation) > 0:
            first.setdefault(candidate.evaluation.code_key, candidate)
    return sorted(first.values(), key=lambda c: -worth(c.program, c.evaluation))
