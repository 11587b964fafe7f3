"""A short measured search beside Triton's autotuner, with an equal number of trials each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tirgym.benchmarks.device_check.bench import LOST, Candidate, DeviceCheck, OutOfTimeError
from tirgym.benchmarks.device_check.draws import neighbours, random_configs
from tirgym.benchmarks.device_check.plan import CHECKED, TRIAL
from tirgym.benchmarks.device_check.rows import Row, checked, seeded, vendor_fields
from tirgym.benchmarks.device_check.trial import Trial
from tirgym.harness.status import Status
from tirgym.harness.triton.device.device import Tuned
from tirgym.harness.triton.device.evaluator import Versus
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import bytes_of

__all__ = ["search", "tuned"]


def search(check: DeviceCheck, kernel: str) -> Row:
    """With the trials of a search."""
    return _row(check, kernel, check.plan.search_trials)


def tuned(check: DeviceCheck, kernel: str) -> Row:
    """With the few trials of the other kernels."""
    return _row(check, kernel, check.plan.tuned_trials)


class _Search:
    """Half of the trials go to what the static cost holds for fastest among random configurations,
    the rest to neighbours of the best so far. Equal machine code is measured once."""

    def __init__(self, check: DeviceCheck, workload: Workload, drawn: list[Candidate]) -> None:
        self._check, self._workload = check, workload
        self._waiting = sorted(drawn, key=lambda candidate: candidate.predicted_us)
        self._near: list[Candidate] = []
        self._seen = {_config_key(candidate.config) for candidate in drawn}
        self.trials: dict[str, tuple[Candidate, Trial]] = {}
        self.ended_early = ""

    @property
    def ranked(self) -> list[tuple[Candidate, Trial]]:
        """What passed, fastest first."""
        passed = [pair for pair in self.trials.values() if pair[1].latency_us is not None]
        return sorted(passed, key=lambda pair: -(pair[1].speedup or 0.0))

    def run(self, trials: int) -> None:
        """Until the trials or the candidates are used up, or the budget is."""
        try:
            while self._waiting and len(self.trials) < (trials + 1) // 2:
                self._measure(self._waiting.pop(0))
            while len(self.trials) < trials and self._step():
                pass
        except OutOfTimeError as error:
            self.ended_early = str(error)

    def _step(self) -> bool:
        """Measure the neighbour of the best that is predicted to be fastest, else the next one that
        waits; False if there is none."""
        if self.ranked:
            best = self.ranked[0][0]
            around = neighbours(best.request.source, best.config)
            fresh = [config for config in around if _config_key(config) not in self._seen]
            self._seen |= {_config_key(config) for config in fresh}
            made = self._check.compiled(self._workload, fresh)
            self._near += [candidate for candidate in made if candidate.launchable]
        queue = self._near or self._waiting
        if not queue:
            return False
        queue.sort(key=lambda candidate: candidate.predicted_us)
        self._measure(queue.pop(0))
        return True

    def _measure(self, candidate: Candidate) -> None:
        if candidate.key not in self.trials:
            trial = self._check.evaluate(self._workload, candidate)
            self.trials[candidate.key] = candidate, trial


def _config_key(config: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(config.items()))


def _row(check: DeviceCheck, kernel: str, trials: int) -> Row:
    workload = check.plan.workload(kernel)
    source = check.default(workload).request.source
    rng = seeded(check, "search", kernel)
    configs = random_configs(source, rng, check.plan.drawn_per_trial * trials)
    compiled = check.compiled(workload, configs)
    drawn = [candidate for candidate in compiled if candidate.launchable]
    found = _Search(check, workload, drawn)
    found.run(trials)
    row: Row = {
        "workload": workload.uri,
        "trials_planned": trials,
        "trials": [trial.to_json() for _, trial in found.trials.values()],
        "not_launchable": len(compiled) - len(drawn),
    }
    if found.ended_early:
        return row | {"status": "not_reached", "message": found.ended_early}
    best = _confirmed(check, kernel, workload, found.ranked)
    if best is None:
        return row | {"status": str(Status.WRONG_RESULT), "message": "no trial passed the gate"}
    candidate, trial = best
    row |= {
        "status": trial.status,
        "message": "",
        "best": trial.to_json(),
        "gbs": bytes_of(workload) / (trial.latency_us or 1.0) * 1e-3,
    }
    try:
        row["autotuner"] = _autotuner(check, workload, drawn[:trials], candidate)
        return row | vendor_fields(check, workload, candidate)
    except OutOfTimeError as error:
        return row | {"status": "not_reached", "message": str(error)}


def _confirmed(
    check: DeviceCheck, kernel: str, workload: Workload, ranked: list[tuple[Candidate, Trial]]
) -> tuple[Candidate, Trial] | None:
    """The fastest that also passes at an odd size in every regime, and at its own in more."""
    odd = check.plan.odd_workload(kernel)
    for candidate, trial in ranked:
        (other,) = check.compiled(odd, [candidate.config])
        if not other.launchable:
            continue
        if checked(check, odd, other, tuple(Regime))["status"] != Status.PASSED:
            continue
        if checked(check, workload, candidate, CHECKED)["status"] == Status.PASSED:
            return candidate, trial
    return None


def _autotuner(
    check: DeviceCheck, workload: Workload, drawn: list[Candidate], best: Candidate
) -> dict[str, Any]:
    """What Triton's autotuner chooses among the first configurations that were drawn, and its time over
    that of our best, both launched the same way."""
    default = check.default(workload).binary
    try:
        choice: Tuned = check.ask("autotune", default, [dict(c.config) for c in drawn])
    except LOST as error:
        choice = _own_clock(check, workload, drawn, str(error))
    chosen = next(c for c in drawn if dict(c.config) == choice.config)
    try:
        versus: Versus = check.ask("compare", default, chosen.binary, best.binary, TRIAL)
    except LOST as error:
        versus = Versus(None, None, False, str(error))
    return {
        "how": choice.how,
        "configs": len(drawn),
        "config": choice.config,
        "its_times_us": choice.times_us,
        "ratio": versus.ratio,
        "interval": versus.interval,
        "same_code": versus.same_code,
        "message": versus.message,
    }


def _own_clock(check: DeviceCheck, workload: Workload, drawn: list[Candidate], why: str) -> Tuned:
    """The fastest of the same configurations by our own clock, where the autotuner cannot be used."""
    timed = [check.evaluate(workload, candidate).latency_us for candidate in drawn]
    times = [math.inf if time is None else time for time in timed]
    fastest = drawn[times.index(min(times))]
    how = f"our own clock over the same configurations, since triton.autotune failed: {why}"
    return Tuned(dict(fastest.config), tuple(times), how)
