"""`run_row`: one run of one row; `run_board`: all that a plan still lacks, one after the other."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tirgym.benchmarks.leaderboard.agent_process import Order
from tirgym.benchmarks.leaderboard.apart import AgentApart
from tirgym.benchmarks.leaderboard.entrants import Entrant, entrant, kind_of
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.parallel import parallel_map
from tirgym.benchmarks.leaderboard.recipes import recipe_of
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Claim,
    Kind,
    Machine,
    Outcome,
    Point,
    Record,
    Used,
)
from tirgym.errors import EvaluationError
from tirgym.harness.agent import Budget, Candidate
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.hardware import compiler_versions, cpu_model, fingerprint
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped, Trial, best_within
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.verification import verify_best
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Conditions", "Finished", "machine", "run_board", "run_row", "versions"]

_Key = tuple[str, str, int]
"""agent, workload URI, seed"""


def _local_evaluator(target: Target, seed: int) -> Evaluator:
    return LocalEvaluator(target, ":memory:", seed=seed)


@dataclass(frozen=True)
class Conditions:
    """What holds for every run of a board."""

    target: Target
    trials: tuple[int, ...]
    """ascending; the last is the budget"""
    seconds: float | None = None
    """time limit of one search"""
    hard_limit_s: float = 3600.0
    """the agent's process is killed after `seconds` and this"""
    memory_bytes: int = 16 << 30
    """address space of the agent's process"""
    file_bytes: int = 1 << 30
    sessions: int = 1
    """processes that a claim is the median of; `bench verify` measures anew, so one will do"""
    keep: Path | None = None
    """folder for what agents keep of their runs, such as transcripts; None: nothing is kept"""
    make_evaluator: Callable[[Target, int], Evaluator] = _local_evaluator
    """one for each run, so that every run starts from an empty store"""
    jobs: int = 1
    """searches that run side by side"""


@dataclass(frozen=True, slots=True)
class Finished:
    """What `run_board` tells after each row."""

    record: Record
    done: int
    total: int
    left_s: float | None
    """wall seconds that the rest will take if it goes on like this; None before the first search"""


def machine() -> Machine:
    """This machine."""
    return Machine(fingerprint(), cpu_model(), os.cpu_count() or 1)


def versions() -> dict[str, str]:
    """Of what decides machine code and numbers."""
    own = {name: version(name) for name in ("tirgym", "numpy")}
    return {**compiler_versions(), **own, "python": platform.python_version()}


def run_row(row: Entrant, uri: str, seed: int, given: Conditions) -> Record:
    """One run. Agents play in a process of their own; raises only for what is no agent's fault."""
    workload = load_workload(uri)
    fields: dict[str, Any] = {
        "agent": row.label,
        "kind": row.kind,
        "workload": workload.uri,
        "seed": seed,
        "trials": given.trials,
        "machine": machine(),
        "target": given.target,
        "versions": versions(),
        "protocol": PROTOCOL_VERSION,
        "seconds": given.seconds,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if row.kind in (Kind.REFERENCE, Kind.CONTROL):
        recipe = row.reference(workload)
        if recipe is None:
            return Record(outcome=Outcome.NOT_APPLICABLE, **fields)
        answers = tuple(Answer(trials, recipe) for trials in given.trials)
        return Record(outcome=Outcome.FINISHED, answers=answers, **fields)
    return _search(row, uri, seed, given, fields)


def _search(
    row: Entrant, uri: str, seed: int, given: Conditions, fields: Mapping[str, Any]
) -> Record:
    target, budget = given.target, Budget(given.trials[-1], given.seconds)
    order = Order(
        row.name,
        row.options,
        uri,
        target,
        seed,
        budget,
        given.memory_bytes,
        given.file_bytes,
        str(given.keep.resolve()) if given.keep else "",
        _stem(row, uri, seed),
    )
    limit_s = (given.seconds or 0.0) + given.hard_limit_s
    player = AgentApart(order, row.kind, limit_s)
    with closing(given.make_evaluator(target, seed)) as evaluator, player:
        start = backend(target.backend).start(load_workload(uri), target)
        vocabulary = default_vocabulary(target.backend)
        run = SearchRun(start, vocabulary, StaticCostModel(), evaluator, budget, seed)
        began = time.monotonic()
        if run.run(player) is Stopped.INTERRUPTED:
            raise KeyboardInterrupt  # half a run is no run
        wall_s = time.monotonic() - began
        answers = _answers(given, run.trials, start, evaluator, player.schedules)
        choice_s = time.monotonic() - began - wall_s
    return Record(
        outcome=player.outcome,
        message=player.message,
        saw=row.saw(player.saw),
        stopped=run.stopped.value,
        answers=tuple(answers),
        curve=tuple(_point(trial) for trial in run.trials),
        used=replace(_used(run, player, wall_s, choice_s), concurrent=given.jobs - 1),
        **fields,
    )


def _stem(row: Entrant, uri: str, seed: int) -> str:
    """A file name for one run, without its suffix; no two runs of a board share one."""
    name = load_workload(uri).kernel.name
    digest = hashlib.sha256(f"{row.label} {uri}".encode()).hexdigest()[:8]
    return re.sub(r"[^\w.-]+", "-", f"{row.name}-{name}-{digest}-seed{seed}")


def _answers(
    given: Conditions,
    curve: Sequence[Trial],
    start: Program,
    evaluator: Evaluator,
    schedules: Mapping[str, str],
) -> list[Answer]:
    """The best of the first trials, for each of `given.trials`, chosen by measuring the best three
    again in full; equal choices are made once."""
    chosen: dict[tuple[str, ...], Candidate] = {}
    answers = []
    for trials in given.trials:
        ranked = best_within(curve, trials)
        key = tuple(candidate.program.ir_key for candidate in ranked)
        if key not in chosen:
            chosen[key] = verify_best(ranked, start, evaluator, sessions=given.sessions).candidate
        program, found = chosen[key].program, chosen[key].evaluation
        recipe = recipe_of(program, start, schedules)
        answers.append(Answer(trials, recipe, program.ir_key, found.code_key, _claim(found)))
    return answers


def _claim(found: Evaluation) -> Claim:
    measured = found.measurement
    if measured is None:
        return Claim(found.status.value)
    return Claim(found.status.value, measured.speedup, measured.speedup_ci, measured.latency_us)


def _point(trial: Trial) -> Point:
    found = trial.candidate.evaluation
    return Point(
        trial.number,
        trial.charged,
        found.status.value,
        found.speedup,
        trial.best_speedup,
        round(trial.elapsed_s, 3),
        found.code_key,
        len(trial.candidate.program.steps),
    )


def _used(run: SearchRun, player: AgentApart, wall_s: float, choice_s: float) -> Used:
    return Used(
        trials=run.used,
        failures=sum(t.charged and not t.candidate.evaluation.passed for t in run.trials),
        compiles=sum(bool(t.candidate.evaluation.code_key) for t in run.trials),
        steps=sum(len(t.candidate.program.steps) for t in run.trials),
        tokens=player.tokens,
        wall_s=round(wall_s, 3),
        evaluator_s=round(run.evaluator_s, 3),
        start_s=round(player.start_s, 3),
        choice_s=round(choice_s, 3),
    )


def run_board(
    folder: BoardFolder, given: Conditions, on_row: Callable[[Finished], None] = lambda row: None
) -> list[str]:
    """Run what the plan of `folder` lacks; answers the problems of the lines that are there.

    Killed at any moment and called again, it goes on after the last whole line. A row whose
    measurement fails, as opposed to its agent, is a problem, and is run by the next call. So is
    one whose process was killed, which ends this call.
    """
    plan = folder.plan()
    if plan is None:
        return []
    given = replace(given, keep=given.keep or folder.path / "transcripts")
    records, problems = folder.records()
    known = {record.key for record in records}
    waiting = [key for key in plan.rows() if key not in known]
    total, clock = len(known) + len(waiting), _Clock(_searches(waiting))
    over: list[_Key] = []
    try:
        with closing(parallel_map(_Row(given), waiting, given.jobs)) as results:
            for key, record in results:
                over.append(key)
                if isinstance(record, str):
                    problems.append(record)
                    continue
                append_line(folder.records_path, record.to_json())
                left_s = clock.left_s(_searches(over))
                on_row(Finished(record, len(known) + len(over), total, left_s))
    except EvaluationError as error:
        problems.append(f"{len(waiting) - len(over)} rows not run, try again: {error}")
    return problems


@dataclass(frozen=True)
class _Row:
    """Runs rows, in any process; answers why where one could not be run."""

    given: Conditions

    def __call__(self, key: _Key) -> Record | str:
        agent, uri, seed = key
        try:
            return run_row(entrant(agent), uri, seed, self.given)
        except EvaluationError as error:
            return f"{agent} on {uri}, seed {seed}: not run, try again: {error}"


def _searches(keys: Sequence[_Key]) -> int:
    """Rows that take time; references answer at once."""
    return sum(kind_of(agent) in (Kind.AGENT, Kind.PEER) for agent, _, _ in keys)


class _Clock:
    """How long `total` searches take, as far as can be seen."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock, self._began = total, clock, clock()

    def left_s(self, done: int) -> float | None:
        """Wall seconds for those that are left, None if none was done and some are left."""
        if self._total == done:
            return 0.0
        if not done:
            return None
        return (self._clock() - self._began) / done * (self._total - done)
