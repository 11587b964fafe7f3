"""`record_search`: fills a measurement store with what a search agent visits, answers and verdicts.

    tirgym store record softmax --programs 64 --searched 64

Searches find the fast programs that random answers miss, so a store that agents learn from needs both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tirgym.baselines.evolutionary import EvolutionaryAgent
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Budget
from tirgym.harness.backend import backend
from tirgym.harness.desk import context_of
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.search_run import SearchRun, Stopped, Trial
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.store import Context, Store
from tirgym.harness.target import Target
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.performance_model.recording import Recorded, Recording

__all__ = ["record_search"]

_BREEDING = {"population": 20, "generations": 1, "batch": 10, "samples": 20}
"""Few relatives are bred for each that is measured, so that most of the time goes into measuring."""


def record_search(
    workloads: Sequence[Workload],
    target: Target,
    evaluator: Evaluator,
    store: Store,
    trials: int = 64,
    seed: int = 0,
    on_verdict: Callable[[Recorded], None] | None = None,
) -> Recording:
    """Search each workload's decision space for `trials` trials; verdicts and answers are stored.

    `store` is the evaluator's. The same arguments search in the same way as far as verdicts are stored,
    so a recording that was ended goes on where it stopped; searches that ended are not run again.
    Raises InvalidValueError for a number below 1, and what `Evaluator.evaluate` raises.
    """
    if isinstance(trials, bool) or trials < 1:
        raise InvalidValueError("trials", trials, "a whole number of at least 1")
    verdicts: Counter[str] = Counter()
    reused = 0

    def follow(context: Context, workload: Workload, trial: Trial) -> None:
        nonlocal reused
        candidate = trial.candidate
        if trial.answers:
            source = f"evolutionary {seed}.{trial.number}"
            answers = tuple(trial.answers.items())
            store.put_walk(context, answers, candidate.program.ir_key, source)
        if trial.charged:
            measured = candidate.evaluation.measurement
            verdicts[candidate.evaluation.status.value] += 1
            reused += measured is not None and measured.reused
            if on_verdict is not None:
                on_verdict(Recorded(workload, trial.number, trials, candidate.evaluation.status))

    for workload in workloads:
        context = context_of(workload, target)
        done = f"searched evolutionary {seed} {context.workload} {context.target_text}"
        if int(store.notes().get(done, 0)) >= trials:
            continue
        run = SearchRun(
            backend(target.backend).start(workload, target),
            default_vocabulary(target.backend),
            StaticCostModel(),
            evaluator,
            Budget(trials),
            seed,
            lambda trial, c=context, w=workload: follow(c, w, trial),  # type: ignore[misc]
        )
        if run.run(EvolutionaryAgent(**_BREEDING)) is Stopped.INTERRUPTED:
            raise KeyboardInterrupt
        store.note(done, str(trials))
    return Recording(sum(verdicts.values()), reused, dict(sorted(verdicts.items())))
