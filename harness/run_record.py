"""`RunRecord`: every state that a run visits, as one line of JSON, on disk before the run goes on.

    record = RunRecord("runs/softmax", agent="evolutionary", seed=0)
    optimize("softmax", "evolutionary", seed=0, recorder=record)     # tirgym optimize --record DIR
    gym.make("tirgym/Decision-v0", kernel="softmax", recorder=record)
    harness.search_loop(agent, on_trial=record.on_trial)             # of a CompileHarness
    design_space(program).follow(Guard(agent), on_answer=record.on_answer)

Each run writes a file of its own into the folder and only ever appends whole lines, so that several
processes can share a folder and a killed run loses at most the line it was writing. Every line says
all there is to know about it: lines may be filtered, and files concatenated. `decision_graph` reads
them back.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status
from tirgym.harness.target import Target

if TYPE_CHECKING:
    from tirgym.harness.agent import Candidate
    from tirgym.harness.decisions.point import Recommendation
    from tirgym.harness.decisions.walk import Walk
    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.search_run import Trial

__all__ = ["FORMAT", "SUFFIX", "Choice", "Recorder", "RunRecord", "Visit", "chosen"]

FORMAT = "tirgym-visit-1"
SUFFIX = ".jsonl"
NO_ANSWERS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer that led to a state of a decision episode."""

    point: str
    """key of the question"""
    kind: str
    number: int
    """answers given before"""
    option: int
    options: tuple[str, ...]
    """labels of all that could be answered"""
    costs_us: tuple[float, ...] = ()
    """static cost of the program right after each option; empty if nobody asked"""
    confidence: float | None = None
    """0 to 1; None where whoever answered did not say"""
    predicted_gain: float | None = None
    """speedup over the static choice that was expected"""
    next_point: str = ""
    """key of the question that is open afterwards, "" when everything is decided"""

    @property
    def label(self) -> str:
        """What was answered, in words."""
        return self.options[self.option]


@dataclass(frozen=True, slots=True)
class Visit:
    """One line: a state, the way to it, and what was found there."""

    run: str
    agent: str
    seed: int | None
    workload: str
    """URI"""
    target: Target
    transforms: tuple[str, ...]
    """text forms, from the unscheduled program on"""
    ir_key: str
    before: int | None = None
    """transforms that the state one step before had; None where the way was walked as a whole. All
    of them (and no choice): another verdict on a state, not another visit"""
    choice: Choice | None = None
    answers: tuple[tuple[str, int], ...] = ()
    """key and value of every decision that a way walked as a whole was made with, in order"""
    predicted_us: float | None = None
    """by the cost model of the run"""
    status: str = ""
    """verdict, "" if nobody judged"""
    message: str = ""
    level: str = ""
    latency_us: float | None = None
    speedup: float | None = None
    code_key: str = ""
    elapsed_s: float = 0.0
    """since the record was made"""
    replayed_from: str = ""
    """fingerprint of the machine whose stored verdict it is, "" for one that was made"""

    def to_json(self) -> str:
        """One line of JSON with sorted keys."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, path: str = "<line>") -> Visit:
        """The visit whose `to_json` is `text`; raises DamagedFileError naming `path`."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
                raise ValueError(f"its format field is not {FORMAT!r}")
            answer = data.pop("choice", None)
            answers = data.pop("answers", ())
            made = cls(
                target=Target(**data.pop("target")),
                transforms=tuple(data.pop("transforms")),
                choice=None if answer is None else _choice(answer),
                answers=tuple((key, value) for key, value in answers),
                **data,
            )
            _require_types(made)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedFileError(path, f"visit ({FORMAT})", str(error)) from None
        return made


def _choice(data: dict[str, Any]) -> Choice:
    made = Choice(
        **{**data, "options": tuple(data["options"]), "costs_us": tuple(data["costs_us"])}
    )
    if not 0 <= made.option < len(made.options):
        raise ValueError(f"option {made.option} of {len(made.options)}")
    if len(made.costs_us) not in (0, len(made.options)):
        raise ValueError("costs_us must have one number for each option")
    _require("a string", str, made.point, made.kind, made.next_point, *made.options)
    _require("a number", (int, float), *made.costs_us)
    if not all(cost > 0 for cost in made.costs_us):
        raise ValueError("costs_us must be above 0")
    _require("a number", (int, float, type(None)), made.confidence, made.predicted_gain)
    _require("a whole number", int, made.number)
    return made


def _require_types(visit: Visit) -> None:
    """Raise ValueError unless every field has the type it says, and numbers come with a pass."""
    texts = (visit.run, visit.agent, visit.workload, visit.ir_key, visit.status, visit.message)
    target = visit.target
    _require("a string", str, *texts, visit.level, visit.code_key, *visit.transforms)
    _require("a string", str, visit.replayed_from)
    _require("a string", str, target.backend, target.arch)
    _require("a number", (int, float, type(None)), visit.predicted_us, visit.latency_us)
    _require("a number", (int, float, type(None)), visit.speedup, visit.elapsed_s)
    _require("a whole number", (int, type(None)), visit.seed, visit.before)
    _require("a whole number", int, target.num_threads, *(value for _, value in visit.answers))
    _require("a string", str, *(key for key, _ in visit.answers))
    if visit.before is not None and not 0 <= visit.before <= len(visit.transforms):
        raise ValueError(f"before {visit.before} of {len(visit.transforms)} transforms")
    if visit.status:
        Status(visit.status)
    if visit.level:
        Level(visit.level)
    if (visit.speedup is not None) != (visit.status == Status.PASSED):
        raise ValueError("a speedup and status 'passed' go together")
    if visit.speedup is not None and not visit.speedup > 0:
        raise ValueError(f"speedup {visit.speedup}")


def _require(what: str, kind: type | tuple[type, ...], *values: object) -> None:
    for value in values:
        wrong = isinstance(value, bool) or not isinstance(value, kind)
        if isinstance(value, int | float) and isinstance(kind, tuple) and float in kind:
            wrong = wrong or not _is_finite(value)
        if wrong:
            raise ValueError(f"{value!r:.40} should be {what}")


def _is_finite(value: float) -> bool:
    """Whether `value` is a number that a float holds."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


class Recorder(Protocol):
    """Whoever wants to know what states are visited; environments and `optimize` take one."""

    def record(
        self,
        program: Program,
        evaluation: Evaluation | None = None,
        *,
        before: Program | None = None,
        choice: Choice | None = None,
        answers: Mapping[str, int] = NO_ANSWERS,
        predicted_us: float | None = None,
        seed: int | None = None,
    ) -> None:
        """A visit of `program`, with its verdict if there is one.

        `before` is the state one step earlier, None if the way was walked as a whole; `program`
        itself, without `choice`, for another verdict on a state that was visited before. `answers`
        are the decisions that a program was made with as a whole (`Search.decided`). `seed` is that
        of the episode, where it is not the run's.
        """


def chosen(
    walk: Walk,
    option: int,
    after: Walk,
    advice: Recommendation | None = None,
    costs_us: tuple[float, ...] = (),
) -> Choice:
    """What was answered to the open question of `walk`; `after` is the walk that came of it.

    `advice` is what an agent said about it, `costs_us` what `Walk.costs` says of each option.
    """
    question = walk.question
    if question is None:
        raise InvalidValueError("walk", "finished", "one with an open question")
    return Choice(
        point=question.key,
        kind=question.kind.value,
        number=len(walk.answers),
        option=int(option),
        options=tuple(option.label for option in question.options),
        costs_us=costs_us,
        confidence=_finite(advice.confidence) if advice else None,
        predicted_gain=_finite(advice.predicted_gain) if advice else None,
        next_point=after.question.key if after.question else "",
    )


def _finite(value: object) -> float | None:
    """`value` as a number; None for what is none: agents of others may answer anything here."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class RunRecord:
    """Appends the visits of one run to a new file in `folder`, which is made if need be.

    The file is made at the first visit, named after `agent` and `seed`; one that exists is never
    touched. When the disk is full or the file cannot be written, recording ends with one call of
    `on_problem` (a RuntimeWarning by default) and the run goes on: `problem` then says why.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        agent: str = "",
        seed: int | None = None,
        *,
        on_problem: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.agent, self.seed = Path(folder), agent, seed
        self.path: Path | None = None
        self.lines = 0
        self.problem = ""
        self._on_problem = on_problem or _warn
        self._clock, self._began = clock, clock()
        self._file: int | None = None

    def record(
        self,
        program: Program,
        evaluation: Evaluation | None = None,
        *,
        before: Program | None = None,
        choice: Choice | None = None,
        answers: Mapping[str, int] = NO_ANSWERS,
        predicted_us: float | None = None,
        seed: int | None = None,
    ) -> None:
        """Write one line; see `Recorder`."""
        if self.problem:
            return
        measured = evaluation.measurement if evaluation else None
        self._write(
            lambda name: Visit(
                run=name,
                agent=self.agent,
                seed=self.seed if seed is None else seed,
                workload=program.workload.uri,
                target=program.target,
                transforms=tuple(map(str, program.steps)),
                ir_key=program.ir_key,
                before=None if before is None else len(before.steps),
                choice=choice,
                answers=tuple(answers.items()),
                predicted_us=predicted_us,
                status=evaluation.status.value if evaluation else "",
                message=evaluation.message if evaluation else "",
                level=evaluation.level.value if evaluation else "",
                latency_us=measured.latency_us if measured else None,
                replayed_from=evaluation.replayed_from if evaluation else "",
                speedup=measured.speedup if measured else None,
                code_key=evaluation.code_key if evaluation else "",
                elapsed_s=round(self._clock() - self._began, 3),
            )
        )

    def on_trial(self, trial: Trial) -> None:
        """An answer of the evaluator in a `SearchRun` or `CompileHarness.search_loop`."""
        candidate = trial.candidate
        self.record(
            candidate.program,
            candidate.evaluation,
            answers=trial.answers,
            predicted_us=trial.predicted_us,
        )

    def on_check(self, candidate: Candidate) -> None:
        """Another verdict on a program, such as the full one that `verify_best` asks for."""
        self.record(candidate.program, candidate.evaluation, before=candidate.program)

    def on_answer(self, walk: Walk, given: Recommendation, after: Walk) -> None:
        """An answer in `Walk.follow`."""
        answer = chosen(walk, given.option, after, given)
        self.record(after.program, before=walk.program, choice=answer)

    def close(self) -> None:
        """Close the file. The next visit would begin another one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __getstate__(self) -> dict[str, object]:
        """A copy in another process writes a file of its own."""
        return {**self.__dict__, "_file": None, "path": None, "lines": 0}

    def _write(self, visit: Callable[[str], Visit]) -> None:
        try:
            if self._file is None:
                self.path, self._file = self._create()
            line = (visit(self.path.stem if self.path else "").to_json() + "\n").encode()
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self.problem = (
                f"recording to {self.path or self.folder} ended after {self.lines} lines "
                f"({error.strerror}); the run goes on, and what was recorded is kept"
            )
            self.close()
            self._on_problem(self.problem)
            return
        self.lines += 1

    def _create(self) -> tuple[Path, int]:
        """A new file, named after agent and seed; a number tells runs with the same name apart."""
        self.folder.mkdir(parents=True, exist_ok=True)
        agent = re.sub(r"[^A-Za-z0-9_-]+", "-", self.agent) or "run"
        stem = agent if self.seed is None else f"{agent}-seed{self.seed}"
        number = 1
        while True:
            path = self.folder / f"{stem}{'' if number == 1 else f'-{number}'}{SUFFIX}"
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
                return path, os.open(path, flags, 0o666)
            except FileExistsError:
                number += 1


def _warn(problem: str) -> None:
    warnings.warn(problem, RuntimeWarning, stacklevel=4)
