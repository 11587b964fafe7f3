"""`Record`: what one run of one agent on one workload did and claims; one JSON line.

The format is `tirgym-bench-1`: the fields of `Record` as a JSON object, with `format` beside them. Fields
that are not known are ignored; a change of meaning gets a new format name. Nothing in a record is
believed: its programs are made again from their recipes and measured by `tirgym bench verify`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tirgym.harness.target import Target

__all__ = [
    "FORMAT",
    "Answer",
    "Claim",
    "Kind",
    "Machine",
    "Outcome",
    "Point",
    "Recipe",
    "RecipeKind",
    "Record",
    "Saw",
    "SawWhat",
    "Used",
    "one_line",
    "parse_record",
]

FORMAT = "tirgym-bench-1"


def one_line(text: str, most: int = 300) -> str:
    """`text` as a table or a terminal can show it: one line, no control characters, not too long."""
    words = " ".join(text[: 20 * most].split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)[:most]


class Kind(StrEnum):
    """What a row of the board is."""

    AGENT = "agent"
    """searches with transforms of the vocabulary"""
    PEER = "peer"
    """a foreign search, measured and gated by our evaluator at equal trials"""
    REFERENCE = "reference"
    """spends no trial: no-op, the compiler's default, a vendor's library"""
    CONTROL = "control"
    """A/A: the unscheduled program timed against a second build of itself"""


class RecipeKind(StrEnum):
    """How a program is made again."""

    TRANSFORMS = "transforms"
    """transforms of the vocabulary, applied to the unscheduled program"""
    SCHEDULE = "schedule"
    """TVM's own schedule instructions; rows of kind PEER alone"""
    DEFAULT = "default"
    """the compiler's rule-based schedule"""
    LIBRARY = "library"
    """a library's call"""
    CONTROL = "control"
    """the unscheduled program, built twice"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program as data."""

    kind: RecipeKind
    steps: tuple[str, ...] = ()
    """TRANSFORMS: text forms, in order"""
    schedule: str = ""
    """SCHEDULE: instructions and decisions, as the JSON text that TVM writes"""
    vendor: str = ""
    """LIBRARY: name in `tirgym.harness.vendor.LIBRARIES`"""

    @property
    def digest(self) -> str:
        """16 hex digits; equal recipes are measured once for each workload and session."""
        text = json.dumps([self.kind, self.steps, self.schedule, self.vendor])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Claim:
    """What the run measured of its answer, in full, after the choice. Never counts."""

    status: str
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    best_us: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The run's program at one trial count: the best of its first `trials` trials."""

    trials: int
    recipe: Recipe
    ir_key: str = ""
    code_key: str = ""
    claim: Claim | None = None
    """None where the run measures nothing (references)"""


@dataclass(frozen=True, slots=True)
class Point:
    """One answer of the evaluator during the run."""

    trial: int
    """trials spent, this one included; 0 for the unscheduled program"""
    charged: bool
    status: str
    speedup: float | None
    """as measured while searching, at the training level"""
    best_speedup: float
    elapsed_s: float
    code_key: str = ""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    """What a run spent."""

    trials: int = 0
    failures: int = 0
    """trials that did not pass"""
    compiles: int = 0
    """evaluator calls that emitted machine code"""
    steps: int = 0
    """transforms of all programs that were given to the evaluator"""
    tokens: int | None = None
    """of a language model, as the agent counts them; None for agents without one"""
    wall_s: float = 0.0
    """of the search: from the agent's start to its end, its process's start left out"""
    evaluator_s: float = 0.0
    """part of `wall_s` inside the evaluator"""
    start_s: float = 0.0
    """to start the agent's process and make the agent"""
    choice_s: float = 0.0
    """to measure the best candidates again in full, after the search"""
    concurrent: int = 0
    """other searches on this machine at the same time, which make all these seconds longer"""


class SawWhat(StrEnum):
    """What an agent brings along from earlier measurements."""

    NOTHING = "nothing"
    MODEL = "model"
    """a model or checkpoint that was fitted on measurements"""
    STORE = "store"
    """measurements themselves"""
    UNKNOWN = "unknown"
    """an agent that does not say, or a language model, whose training data nobody can list"""


@dataclass(frozen=True, slots=True)
class Saw:
    """What the agent saw before the run."""

    what: SawWhat = SawWhat.NOTHING
    families: tuple[str, ...] = ()
    """kernel families whose measurements it saw"""
    source: str = ""
    """file or name of it"""

    def admits(self, family: str) -> bool:
        """Whether the agent surely saw no measurement of `family`."""
        return self.what is not SawWhat.UNKNOWN and family not in self.families


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a run took place."""

    fingerprint: str
    """see `tirgym.harness.hardware.fingerprint`"""
    cpu: str
    cores: int


class Outcome(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    NOT_APPLICABLE = "not_applicable"
    """the reference has nothing for this workload"""
    CRASH = "crash"
    """the agent's process died or raised; what it had found counts"""
    TIMEOUT = "timeout"
    """the agent's process was killed at the time limit; what it had found counts"""


@dataclass(frozen=True, slots=True)
class Record:
    """One (agent, workload, seed)."""

    agent: str
    """name on the board, options included"""
    kind: Kind
    workload: str
    """workload URI"""
    seed: int
    trials: tuple[int, ...]
    """trial counts that have an answer, ascending; the last is the budget"""
    outcome: Outcome
    machine: Machine
    target: Target
    versions: dict[str, str]
    protocol: int
    """version of the measuring protocol"""
    saw: Saw = Saw()
    message: str = ""
    stopped: str = ""
    """why the search ended"""
    seconds: float | None = None
    """time limit of the search"""
    answers: tuple[Answer, ...] = ()
    curve: tuple[Point, ...] = ()
    used: Used = field(default_factory=Used)
    made: str = ""
    """UTC time, ISO 8601"""

    @property
    def key(self) -> tuple[str, str, int]:
        """What is unique on a board."""
        return self.agent, self.workload, self.seed

    def answer(self, trials: int) -> Answer | None:
        """The answer at one trial count."""
        return next((a for a in self.answers if a.trials == trials), None)

    def to_json(self) -> str:
        """One line, without a newline."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"))


@lru_cache(maxsize=1)
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Record)


def parse_record(text: str) -> Record:
    """The record of one line; raises ValueError with one line that says what is wrong."""
    from pydantic import ValidationError

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object: damaged or half-written") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ValueError(f"format {found!r}, expected {FORMAT!r}")
    try:
        record: Record = _adapter().validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"field {place}: {first['msg']}") from None
    return record
