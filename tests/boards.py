"""Small boards for tests: records and sessions made by hand, agents that misbehave, a fake clock."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tirgym.benchmarks.leaderboard.entrants import kind_of
from tirgym.benchmarks.leaderboard.measuring import NOT_MEASURED, Job
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Claim,
    Outcome,
    Point,
    Recipe,
    RecipeKind,
    Record,
)
from tirgym.benchmarks.leaderboard.running import machine, versions
from tirgym.benchmarks.leaderboard.verdicts import Session
from tirgym.harness.agent import Search
from tirgym.harness.hardware import fingerprint
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.transforms import parse_transform

__all__ = [
    "ADD",
    "SUM",
    "TARGET",
    "Babbler",
    "Crasher",
    "Deaf",
    "Eater",
    "Failing",
    "Forger",
    "Gusher",
    "Idle",
    "Mute",
    "Sleeper",
    "Stepper",
    "TorchUser",
    "claimed",
    "measured",
    "point",
    "record",
    "session",
]

ADD = "tirgym://core-v0/add?m=8&n=16&dtype=float32"
SUM = "tirgym://core-v0/row_sum?m=8&n=16&dtype=float32"
TARGET = Target("llvm", "skylake-avx512", 1)


def point(trial: int, speedup: float = 1.0, code: str = "code") -> Point:
    """A passed trial; trial 0 is the unscheduled program."""
    return Point(trial, trial > 0, "passed", speedup, max(1.0, speedup), float(trial), code, 1)


def claimed(trials: int, speedup: float | None, *steps: str, code: str = "code") -> Answer:
    """An answer of transforms that says what it is worth."""
    claim = None if speedup is None else Claim("passed", speedup)
    return Answer(trials, Recipe(RecipeKind.TRANSFORMS, steps), "", code, claim)


def record(agent: str = "beam", uri: str = ADD, seed: int = 0, **fields: Any) -> Record:
    """A finished run of 2 and 4 trials that split a loop."""
    values: dict[str, Any] = {
        "trials": (2, 4),
        "answers": tuple(claimed(n, 2.0, "Split(loop=0, factor=2)") for n in (2, 4)),
        "curve": (point(0), point(1, 2.0)),
        **fields,
    }
    return Record(
        agent,
        kind_of(agent),
        uri,
        seed,
        outcome=values.pop("outcome", Outcome.FINISHED),
        machine=values.pop("machine", machine()),
        target=values.pop("target", TARGET),
        versions=versions(),
        protocol=PROTOCOL_VERSION,
        **values,
    )


def session(speedup: float | None = 2.0, number: int = 0, **fields: Any) -> Session:
    """What one process measured; `job` names the recipe."""
    values: dict[str, Any] = {
        "workload": ADD,
        "recipe": claimed(2, None, "Split(loop=0, factor=2)").recipe.digest,
        "status": "passed" if speedup is not None else "wrong_result",
        "best_us": None if speedup is None else 100.0 / speedup,
        "naive_us": None if speedup is None else 100.0,
        "code_key": "code",
        **fields,
    }
    return Session(
        session=number,
        speedup=speedup,
        machine=fingerprint(),
        target=str(TARGET),
        versions=versions(),
        protocol=PROTOCOL_VERSION,
        **values,
    )


def measured(
    worth: Callable[[Recipe, int], float | None] = lambda recipe, session: 2.0,
) -> Callable[[str, Target, Sequence[Job], int], list[Session]]:
    """A stand-in for clean processes: `worth` answers the speedup of a recipe in a session."""

    def measure(uri: str, target: Target, jobs: Sequence[Job], number: int) -> list[Session]:
        return [
            replace(
                session(worth(job.recipe, number), number), workload=uri, recipe=job.recipe.digest
            )
            for job in jobs
        ]

    return measure


@dataclass(frozen=True)
class Failing:
    """Clean processes, in any process, that fail for a reason of the machine on one workload."""

    uri: str
    reason: str

    def __call__(self, uri: str, target: Target, jobs: Sequence[Job], number: int) -> list[Session]:
        if uri != self.uri:
            return measured()(uri, target, jobs, number)
        status, reason = NOT_MEASURED, self.reason
        made = session(None, number, workload=uri, status=status, message=reason)
        return [replace(made, recipe=job.recipe.digest) for job in jobs]


# -- agents of third parties, played in processes of their own --------------------------------


class Idle:
    """Does nothing."""

    name = "idle"

    def run(self, search: Search) -> None:
        """Return."""


class TorchUser(Idle):
    """Says whether its process had loaded torch before it did."""

    def run(self, search: Search) -> None:
        before = "torch" in sys.modules
        self.failure = f"loaded before: {before}, now: {import_module('torch').__name__}"


class Stepper(Idle):
    """Splits a loop in ever smaller tiles, for as long as it is answered; says what it saw."""

    saw = {"what": "model", "families": ["matmul"], "source": "tiles.model"}  # noqa: RUF012
    tokens = 123

    def run(self, search: Search) -> None:
        """Five programs, then one more."""
        print("an agent may print what it likes")
        programs = [
            search.start.apply(parse_transform(f"Split(loop={loop}, factor={factor})"))
            for loop, factor in ((0, 2), (1, 2), (0, 4), (1, 4), (1, 8))
        ]
        for _ in search.evaluate_many(programs):
            assert search.remaining_trials() >= 0
        assert search.evaluate(programs[-1]) is None


class Deaf(Stepper):
    """Goes on asking when the budget is spent."""

    def run(self, search: Search) -> None:
        """Ask for ever."""
        program = search.start
        while True:
            for loop in (0, 1):
                made = program.apply(parse_transform(f"Split(loop={loop}, factor=2)"))
                search.evaluate(made)


class Forger(Stepper):
    """Changes what it can reach: numbers, budget, and the classes that hold them."""

    def run(self, search: Search) -> None:
        """Play honestly once, then lie about it."""
        from tirgym.harness import evaluation, search_run

        evaluation.Evaluation.speedup = property(lambda self: 1000.0)  # type: ignore[assignment]
        search_run.SearchRun._spent = lambda self: None  # type: ignore[method-assign]
        super().run(search)
        for candidate in search.history:
            object.__setattr__(candidate.evaluation, "measurement", None)


class Crasher(Stepper):
    """Finds something, then ends its process."""

    def run(self, search: Search) -> None:
        """Leave without a word."""
        if os.environ.get("BOARDS_CRASH_FIRST") != "1":
            search.evaluate(search.start.apply(parse_transform("Split(loop=0, factor=2)")))
        os.abort()


class Eater(Idle):
    """Takes all the memory that it gets."""

    def run(self, search: Search) -> None:
        """Fill it."""
        held = []
        while True:
            held.append(bytearray(64 << 20))


class Sleeper(Idle):
    """Never comes back, and leaves children behind that would not either."""

    def run(self, search: Search) -> None:
        """Sleep in two processes."""
        os.fork()
        time.sleep(1000)
        sys.exit(0)


def _said(search: Search, text: bytes) -> None:
    """Write to the run what no honest agent does."""
    line: Any = search.evaluate.__self__  # type: ignore[attr-defined]
    line._line._questions.write(text)
    line._line._questions.flush()


class Babbler(Stepper):
    """Plays honestly, then asks for a batch of nothing."""

    def run(self, search: Search) -> None:
        """Ask, and wait for an answer."""
        search.evaluate(search.start.apply(parse_transform("Split(loop=0, factor=2)")))
        _said(search, b'{"op": "batch"}\n')
        time.sleep(1000)


class Gusher(Idle):
    """Asks and never reads an answer, so that the pipe to it is full."""

    def run(self, search: Search) -> None:
        """Ask for ever."""
        while True:
            _said(search, b'{"op": "state"}\n')


class Mute(Idle):
    """Closes every pipe and lives on, with a child."""

    def run(self, search: Search) -> None:
        """Sleep unseen."""
        os.fork()
        os.closerange(0, 1024)
        time.sleep(1000)
