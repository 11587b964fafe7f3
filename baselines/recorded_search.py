"""`record_search`: fills a measurement store with what a search agent visits, answers and verdicts.

    tirgym store record softmax --programs 64 --searched 64

Searches find the fast programs that random answers miss, so a store that agents learn from needs both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tirgym.baselines.registry import in_space, make_agent
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
from tirgym.whole_number import require_whole

__all__ = ["record_search"]

_OPTIONS = {"evolutionary": {"population": 20, "generations": 1, "batch": 10, "samples": 20}}
"""By agent. Few relatives are bred for each that is measured, so that most of the time goes into measuring."""


def record_search(
    workloads: Sequence[Workload],
    target: Target,
    evaluator: Evaluator,
    store: Store,
    trials: int = 64,
    seed: int = 0,
    on_verdict: Callable[[Recorded], None] | None = None,
    agent: str = "evolutionary",
) -> Recording:
    """Let an agent search each workload's decision space; verdicts and answers are stored.

    `agent` is a name of the agent table or "package.module:Class"; trained policies are among them.
    `store` is the evaluator's. The same arguments search in the same way as far as verdicts are stored,
    so a recording that was ended goes on where it stopped; searches that ended are not run again.
    Raises InvalidValueError for `trials` below 1 or a seed below 0, UnknownNameError for an agent that
    does not exist or does not play decision points, and what `Evaluator.evaluate` raises.
    """
    require_whole("trials", trials, 1)
    require_whole("seed", seed, 0)
    options, _ = in_space(agent, "decision", target.backend)
    options |= _OPTIONS.get(agent, {})
    make_agent(agent, **options)  # before anything is measured: a missing package is said at once
    verdicts: Counter[str] = Counter()
    reused = 0

    def follow(context: Context, workload: Workload, trial: Trial) -> None:
        nonlocal reused
        candidate = trial.candidate
        if trial.answers:
            source = f"search {agent} {seed}.{trial.number}"  # no source of `draws`
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
        done = f"searched {agent} {seed} {context.workload} {context.target_text}"
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
        if run.run(make_agent(agent, **options)) is Stopped.INTERRUPTED:
            raise KeyboardInterrupt
        store.note(done, str(trials))
    return Recording(sum(verdicts.values()), reused, dict(sorted(verdicts.items())))
