"""`record`: fills a measurement store with varied programs of many kernels, to learn from.

What is drawn stands in `draws.py`. Answers are stored as well, so that the decision environments can
replay them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from tirgym.errors import UnknownNameError
from tirgym.harness.backend import backend
from tirgym.harness.decisions import DecisionAgent
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import Context, Store, StoredWalk
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Workload
from tirgym.performance_model.draws import RECORDED_SPACES, TRIES, Draw, Proposal, draws
from tirgym.whole_number import require_whole

__all__ = ["Recorded", "Recording", "record"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer while recording."""

    workload: Workload
    number: int
    """programs of the workload so far"""
    wanted: int
    status: Status


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recording came to."""

    programs: int
    reused: int
    """whose verdict the store had already"""
    verdicts: Mapping[str, int]
    """how many there are of each status"""

    def __add__(self, other: Recording) -> Recording:
        """Both together."""
        verdicts = Counter(self.verdicts) + Counter(other.verdicts)
        return Recording(
            self.programs + other.programs,
            self.reused + other.reused,
            dict(sorted(verdicts.items())),
        )


def record(
    workloads: Sequence[Workload],
    target: Target,
    evaluator: Evaluator,
    programs: int = 64,
    seed: int = 0,
    on_verdict: Callable[[Recorded], None] | None = None,
    *,
    store: Store | None = None,
    space: str = "both",
    agents: Mapping[str, DecisionAgent] | None = None,
) -> Recording:
    """Evaluate `programs` different programs of each workload; the evaluator stores the verdicts.

    `store`, the evaluator's, is told the answers that led to each program. `space` "decision" draws
    answers alone. Each verdict is stored when it falls, and the same arguments propose the same programs,
    so a recording that was ended goes on where it stopped: what the store has a settled walk for is
    not even made again. Small spaces give fewer programs. Raises InvalidValueError for `programs` below
    1 or a seed below 0, UnknownNameError for a space that does not exist, and what
    `Evaluator.evaluate` raises.
    """
    require_whole("programs", programs, 1)
    require_whole("seed", seed, 0)
    if space not in RECORDED_SPACES:
        raise UnknownNameError("space to record", space, RECORDED_SPACES)
    tally = _Tally(programs, on_verdict)
    for workload in workloads:
        start = backend(target.backend).start(workload, target)
        context = context_of(workload, target)
        recorder = _Recorder(context, store, tally, workload)
        recorder.run(evaluator, draws(start, seed, space, agents))
    return Recording(
        sum(tally.verdicts.values()), tally.reused, dict(sorted(tally.verdicts.items()))
    )


class _Tally:
    """Counts what a recording comes to, and tells about it."""

    def __init__(self, wanted: int, tell: Callable[[Recorded], None] | None) -> None:
        self.wanted, self._tell = wanted, tell
        self.verdicts: Counter[str] = Counter()
        self.reused = 0

    def count(self, workload: Workload, number: int, status: Status, reused: bool) -> None:
        """One program more."""
        self.verdicts[status.value] += 1
        self.reused += reused
        if self._tell is not None:
            self._tell(Recorded(workload, number, self.wanted, status))


class _Recorder:
    """Records one workload: draws programs, asks about new ones, and notes the walks that led there."""

    def __init__(
        self, context: Context, store: Store | None, tally: _Tally, workload: Workload
    ) -> None:
        self._context, self._store, self._tally = context, store, tally
        self._workload = workload
        walks = store.walks(context) if store is not None else []
        self._known = {walk.source: walk for walk in walks if walk.settled}
        self._seen: set[str] = set()
        self._asked: deque[Proposal] = deque()
        self._number = 0

    def run(self, evaluator: Evaluator, ways: Iterator[Draw]) -> None:
        """Until enough different programs have a verdict, or too many draws gave none."""
        with closing(evaluator.evaluate_many(self._news(ways))) as answers:
            for evaluation in answers:
                self._take(self._asked.popleft(), evaluation)

    def _news(self, ways: Iterator[Draw]) -> Iterator[Program]:
        """Programs that nobody asked about; those that the store knows are counted on the way."""
        for draw in islice(ways, TRIES * self._tally.wanted + 1):
            walk = self._known.get(draw.source)
            if walk is not None:
                self._skip(walk)
            else:
                proposal = draw.make()
                if proposal.program.ir_key in self._seen:
                    self._note(proposal)
                else:
                    self._seen.add(proposal.program.ir_key)
                    self._asked.append(proposal)
                    yield proposal.program
            if len(self._seen) >= self._tally.wanted:
                return

    def _skip(self, walk: StoredWalk) -> None:
        if walk.ir_key not in self._seen and walk.status is not None:
            self._seen.add(walk.ir_key)
            self._count(walk.status, reused=True)

    def _take(self, proposal: Proposal, evaluation: Evaluation) -> None:
        self._note(proposal)
        measured = evaluation.measurement
        self._count(evaluation.status, measured is not None and measured.reused)

    def _count(self, status: Status, reused: bool) -> None:
        self._number += 1
        self._tally.count(self._workload, self._number, status, reused)

    def _note(self, proposal: Proposal) -> None:
        if self._store is not None and proposal.answers is not None:
            ir_key = proposal.program.ir_key
            self._store.put_walk(self._context, proposal.answers, ir_key, proposal.source)
