"""`Operations`: the requests that a worker answers."""

from __future__ import annotations

import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from tirgym.errors import EvaluationError
from tirgym.harness.backend import Build, backend
from tirgym.harness.buffers import Poison
from tirgym.harness.evaluation import Level
from tirgym.harness.examination import Examination
from tirgym.harness.file_lock import FileLock
from tirgym.harness.gate import check, run_gate
from tirgym.harness.outcome import Anchor, Outcome
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.timing import Call, interleave
from tirgym.harness.workbench import Workbench

__all__ = ["Operations"]


class Operations:
    """The requests that a worker answers, by method name."""

    KEPT = 6
    """workloads kept warm at once"""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._benches: OrderedDict[str, Workbench] = OrderedDict()
        self._examined: Examination | None = None

    def prepare(
        self,
        key: str,
        workload: bytes,
        naive_json: str,
        target: Target,
        rules: bytes,
        anchors: Sequence[Anchor],
    ) -> tuple[list[str], str, float]:
        """Make a workbench. Answers the keys that are kept, naive's code key and its seconds."""
        if key not in self._benches:
            while len(self._benches) >= self.KEPT:
                self._benches.popitem(last=False)
            bench = Workbench(pickle.loads(workload), naive_json, target, pickle.loads(rules))
            bench.anchors = list(anchors)
            bench.time_naive()
            self._benches[key] = bench
        bench = self._benches[key]
        return list(self._benches), bench.naive_key, bench.naive_s

    def build(self, key: str, module_json: str) -> tuple[str, float]:
        """Compile and remember. Answers the code key and the seconds in the compiler."""
        started = time.perf_counter()
        build = self._bench(key).build(module_json)
        self._bench(key).remember(build)
        return build.code_key, time.perf_counter() - started

    def load(self, key: str, code_key: str) -> float:
        """JIT-link an earlier build. Answers the seconds it took."""
        started = time.perf_counter()
        bench = self._bench(key)
        build = bench.builds[code_key]
        function = build.load()
        bench.builds[code_key] = Build(build.code_key, lambda: function)
        return time.perf_counter() - started

    def gate(self, key: str, code_key: str, level: Level, number: int) -> Outcome:
        """The gate on an earlier build, with the inputs of evaluation `number`."""
        bench = self._bench(key)
        self._examined = Examination(bench, code_key, level, number, self._note)
        return replace(self._examined.gate(), tainted=bench.bench.tainted)

    def time(self, key: str, code_key: str, floor_us: float) -> Outcome:
        """Timing of what just passed the gate."""
        bench, made = self._bench(key), self._examined
        if made is None or made.at is not bench or made.code_key != code_key:
            raise EvaluationError(f"{code_key} is not what was gated last")
        self._examined = None
        return replace(made.time(floor_us), tainted=bench.bench.tainted)

    def check(self, key: str, code_key: str, level: Level, number: int) -> Outcome:
        """The gate alone, in its worst case: the right answers lie where the outputs go."""
        bench = self._bench(key)
        self._note("inputs")
        sets, timed = bench.sets(level, number)
        if all(s is not timed for s in sets):  # an evaluation judges what its timed calls leave
            sets = [*sets, timed]
        self._note("gate")
        bench.bench.answers_left = True
        try:
            outcome, _ = bench.gate(bench.function(code_key), sets, level)
        finally:
            bench.bench.answers_left = False
        return replace(outcome, tainted=bench.bench.tainted)

    def witness(
        self, key: str, variants: Sequence[tuple[str, str, Target]]
    ) -> list[tuple[str, str]]:
        """Name and failure ("" if right) of each variant, on what the last program failed on."""
        bench = self._bench(key)
        if bench.failing is None:
            raise EvaluationError("no program has failed on this workload")
        found = []
        for name, module_json, target in variants:
            self._note("build")
            function = backend(target.backend).build(module_json, target).load()
            self._note("gate")
            gate = run_gate(bench.bench, function, [bench.failing])
            found.append((name, gate.report.failure))
        return found

    def compare(
        self, key: str, first: str, second: str
    ) -> tuple[Outcome, float, tuple[float, float], bool]:
        """Interleave two programs that passed in full. Answers first / second with its interval."""
        bench = self._bench(key)
        self._note("build")
        functions = [bench.build(text).load() for text in (first, second)]
        self._note("inputs")
        given = bench.normal_set()
        self._note("gate")
        places = (bench.baseline, bench.bench)
        estimates = [
            min(place.run(function, given, Poison.NAN) for _ in range(2))
            for place, function in zip(places, functions, strict=True)
        ]
        calls = [Call(f, p.arguments()) for f, p in zip(functions, places, strict=True)]
        self._note("lock")
        with FileLock(bench.rules.lock_path):
            self._note("timing")
            pair = (estimates[1], estimates[0])
            plan = bench.rules.plans[Level.FULL]
            paired = interleave(calls[1], calls[0], pair, plan, bench.timer)
        for place in places:
            place.fetch()
        failure = next((f for p in places if (f := check(p, given)[0])), "")
        status = Status.WRONG_RESULT if failure else Status.PASSED
        outcome = Outcome(status, message=failure, tainted=bench.bench.tainted)
        return outcome, paired.ratio, paired.interval, paired.noisy

    def add_anchor(self, key: str, anchor: Anchor, code_key: str) -> None:
        """Time later candidates against `anchor` where it is closest; with `code_key` its binary is
        that of an earlier build, else it is built when it is first needed."""
        bench = self._bench(key)
        bench.anchors.append(anchor)
        if code_key:
            call = Call(bench.function(code_key), bench.baseline.arguments())
            bench.loaded[anchor.module_json] = call

    def _bench(self, key: str) -> Workbench:
        self._benches.move_to_end(key)
        return self._benches[key]
