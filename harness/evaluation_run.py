"""`EvaluationRun`: the one order of an evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from tirgym.harness.attempt import Attempt
from tirgym.harness.evaluation import Evaluation, Level, PhaseTimes
from tirgym.harness.lane import Lane
from tirgym.harness.outcome import Outcome
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.steps import Steps, Turn
from tirgym.harness.store import SETTLED, Context, Record, Store
from tirgym.harness.worker import Worker
from tirgym.harness.workshop import Workshop

__all__ = ["EvaluationRun", "static_finding"]

_REJECTED = (Status.WRONG_RESULT, Status.FLAKY, Status.COMPILE_ERROR)


def static_finding(program: Program, size_only: bool = False) -> str:
    """Why `program` must not even be built, in one line; "" if nothing speaks against it.

    `size_only` asks for compile bombs alone.
    """
    if program.dialect != "tensorir":
        return ""
    from tirgym.harness.static_checks import (
        STATEMENT_LIMIT,
        errors_only,
        statement_count,
        static_checks,
    )

    if size_only:
        count = statement_count(program.nest)  # type: ignore[attr-defined]
        return f"about {count} statements after unrolling" if count > STATEMENT_LIMIT else ""
    return "; ".join(str(finding) for finding in errors_only(static_checks(program)))


class EvaluationRun:
    """One evaluation: look up, check statically, build, look up again, gate and time, store.

    Its steps up to the gate may run while earlier programs are judged; timing, and whatever is
    written or answered, waits for its turn. `begun` are the runs on their way, in order: what an
    earlier one builds is not gated a second time.
    """

    def __init__(
        self,
        workshop: Workshop,
        store: Store,
        context: Context,
        program: Program,
        level: Level,
        fresh: bool,
        verify: bool,
        begun: Sequence[EvaluationRun],
    ) -> None:
        self.verify, self.begun = verify, begun
        self.workshop, self.store, self.context = workshop, store, context
        self.program, self.level, self.fresh = program, level, fresh
        self.started = time.perf_counter()
        self.ir_key = program.ir_key
        self.code_key = ""
        self.static_s = self.build_s = self.waited_s = 0.0

    def steps(self) -> Steps[Evaluation]:
        """The answer."""
        if any(run.ir_key == self.ir_key for run in self.ahead()):
            yield from self.turn(Turn.FIRST)
        stored = self.known()
        if stored is not None:
            yield from self.turn(Turn.ASKED)
            self.remember()
            return self.finished(stored.evaluation(self.ir_key))
        began = time.perf_counter()
        finding = static_finding(self.program, size_only=not self.verify)
        self.static_s = time.perf_counter() - began
        if finding:
            yield from self.turn(Turn.ASKED)
            return self.finished(self.settle(Outcome(Status.ILLEGAL, message=finding)))
        attempt = Attempt(self.workshop, self.program)
        outcome = yield from attempt.run(partial(self.judged, attempt))
        self.build_s = attempt.build_s
        yield from self.turn(Turn.ASKED)
        stored = self.stored(self.code_key) if self.code_key else None
        if stored is not None:
            self.remember()
            return self.finished(stored.evaluation(self.ir_key))
        return self.finished(self.settle(outcome), outcome)

    def judged(self, attempt: Attempt, lane: Lane, worker: Worker) -> Steps[Outcome]:
        """The worker's part; of code with a stored verdict only as much as its key needs."""
        text = yield from attempt.build(worker)
        self.code_key = attempt.code_key
        if not self.fresh and any(run.code_key == self.code_key for run in self.ahead()):
            yield from self.turn(Turn.FIRST)
        stored = self.stored(self.code_key)
        if stored is not None:
            return Outcome(stored.status)
        yield from attempt.load(worker)
        number = self.workshop.next_number()
        gated: Outcome = yield from attempt.in_phases(
            worker, "gate", self.code_key, self.level, number
        )
        if gated.status is not Status.PASSED:
            return gated
        yield from self.turn(Turn.FIRST)
        if self.stored(self.code_key) is not None:
            return gated
        yield from lane.share_anchors(worker, attempt.desk)
        outcome: Outcome = yield from attempt.in_phases(
            worker, "time", self.code_key, attempt.desk.floor_us
        )
        if outcome.anchor is not None:
            anchor = replace(outcome.anchor, module_json=text)
            attempt.desk.anchors.append(anchor)
            yield from lane.add_anchor(worker, attempt.desk, anchor, self.code_key)
        return outcome

    def ahead(self) -> Iterator[EvaluationRun]:
        """The runs that were begun earlier and are not finished."""
        return takewhile(lambda run: run is not self, self.begun)

    def turn(self, turn: Turn) -> Steps[None]:
        """Wait for `turn`."""
        began = time.perf_counter()
        yield turn
        self.waited_s += time.perf_counter() - began

    def known(self) -> Record | None:
        """The verdict that may be used again without a build."""
        code_key = None if self.fresh else self.store.code_key(self.context, self.ir_key)
        return self.stored(code_key or f"ir:{self.ir_key}")

    def remember(self) -> None:
        """Note what the program compiles to, and how it is made, so that models can learn from its
        verdict."""
        if self.fresh or self.store.read_only:
            return
        if self.code_key:
            self.store.put_code_key(self.context, self.ir_key, self.code_key)
        if self.store.transforms(self.context, self.ir_key) is None:
            steps = tuple(map(str, self.program.steps))
            self.store.put_transforms(self.context, self.ir_key, steps)

    def stored(self, key: str) -> Record | None:
        """The verdict on `key` that may be used again (see `LocalEvaluator`)."""
        if self.fresh:
            return None
        training = self.level is Level.TRAINING
        for level in (Level.TRAINING, Level.FULL) if training else (Level.FULL, Level.TRAINING):
            record = self.store.get(self.context, key, level)
            if record is None or record.status not in SETTLED:
                continue
            if training or level is Level.FULL or record.status in _REJECTED:
                return record
        return None

    def settle(self, outcome: Outcome) -> Evaluation:
        """Store a verdict; the answer is what the store then holds for it."""
        self.remember()
        record = Record(
            self.context,
            self.code_key or f"ir:{self.ir_key}",
            self.level,
            outcome.status,
            " ".join(outcome.message.split())[:500],
            outcome.report,
            outcome.measurement,
            outcome.slowdown,
        )
        held = record if self.fresh else self.store.put(record)
        made = held.evaluation(self.ir_key)
        mine = held == record
        return replace(made, measurement=record.measurement) if mine else made

    def finished(self, evaluation: Evaluation, outcome: Outcome | None = None) -> Evaluation:
        """`evaluation` with the time of each phase."""
        parts: dict[str, float] = {}
        if outcome is not None:
            parts = {
                "gate_s": outcome.gate_s,
                "gate_runs_s": outcome.gate_runs_s,
                "timing_s": outcome.timing_s,
                "timed_runs_s": outcome.timed_runs_s,
            }
        waited_s = self.waited_s + (0.0 if outcome is None else outcome.waited_s)
        times = PhaseTimes(
            static_s=self.static_s,
            build_s=self.build_s,
            total_s=time.perf_counter() - self.started,
            waited_s=waited_s,
            **parts,
        )
        return replace(evaluation, phases=times)
