"""`Counted`: the evaluator of a session, which counts trials as every search does."""

from __future__ import annotations

from tirgym.errors import UsageError
from tirgym.harness.agent import Budget, Search
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.status import Status
from tirgym.harness.verification import evaluate_in_full
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["Counted"]

_UNSURE = (Status.PASSED, Status.NOISY, Status.SUSPECT)
"""Verdicts after which a full evaluation says more."""


class _Client:
    """The agent of the run: it asks from outside, so it has nothing to do in `run`."""

    name = "mcp"

    def run(self, search: Search) -> None:
        """Nothing: the run measures the unscheduled program before it calls this."""


class Counted(Evaluator):
    """Lets every program through a `SearchRun` first: a trial is one evaluator call with a code key
    new to the run. `inner` answers, and is closed by whoever made it."""

    def __init__(self, inner: Evaluator) -> None:
        self.inner = inner
        self._run: SearchRun | None = None

    @property
    def run(self) -> SearchRun:
        """The run; raises UsageError before `begin`."""
        if self._run is None:
            raise UsageError("nothing can be evaluated before a kernel is loaded")
        return self._run

    def begin(self, start: Program, vocabulary: Vocabulary, cost: CostModel, trials: int) -> None:
        """A new run from `start`; raises InvalidValueError for a budget of no trials."""
        self._run = SearchRun(start, vocabulary, cost, self.inner, Budget(trials))

    @property
    def measured_start(self) -> bool:
        """Whether the unscheduled program was measured."""
        return bool(self.run.trials)

    def measure_start(self) -> None:
        """Measure the unscheduled program, which is free."""
        self.run.run(_Client())
        if not self.measured_start:  # the run answers Ctrl-C by ending
            raise KeyboardInterrupt

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """The run's verdict; in full, asked again at that level if it may say more.

        Raises UsageError once the budget is spent.
        """
        found = self.run.evaluate(program)
        if found is None:
            raise UsageError(self._over())
        if level is Level.TRAINING or found.status not in _UNSURE:
            return found
        return evaluate_in_full(self.inner, program, fresh=fresh)

    def renew(self) -> None:
        """As `inner` does."""
        self.inner.renew()

    def close(self) -> None:
        """Nothing: see `inner`."""

    def _over(self) -> str:
        if self.run.stopped is Stopped.DUPLICATES:
            return "too many evaluations met machine code that the session had measured before"
        return (
            f"the {self.run.budget.trials} trials of this session are spent; programs that were "
            "evaluated before still answer, and export_trace exports the best"
        )
