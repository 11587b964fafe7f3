"""What the tools of the MCP server answer: pydantic models, whose schemas clients read.

Every result has a text too: short, and enough to go on with for a client that shows only text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = [
    "Actions",
    "Applied",
    "BaselineEntry",
    "Baselines",
    "Change",
    "Closed",
    "Evaluated",
    "Exported",
    "History",
    "HistoryEntry",
    "IRText",
    "KernelEntry",
    "Kernels",
    "Loaded",
    "Profile",
    "Quantity",
    "Result",
    "RooflinePlace",
    "Snapshot",
    "State",
]

Interval = tuple[float, float]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Result(_Model):
    """An answer of a tool."""

    def text(self) -> str:
        """The answer in a few lines."""
        raise NotImplementedError


class State(_Model):
    """What a session holds now."""

    session: str
    """handle that every other tool takes; whoever has it has the session"""
    workload: str
    """URI of the kernel at its shape"""
    target: str
    transforms: list[str]
    """applied since the unscheduled program, in order"""
    nest: list[str]
    """loops and blocks, numbered as actions address them"""
    predicted_us: float
    """time of one call by the static cost model, in µs; no measurement"""
    trials_used: int
    trials_left: int
    seconds_left: float
    """until the session ends"""

    def lines(self) -> Iterator[str]:
        """The state as text."""
        count = len(self.transforms)
        yield f"session {self.session}: {self.workload} for {self.target}, {count} transforms"
        yield from self.nest
        yield (
            f"predicted {self.predicted_us:,.2f} µs; {self.trials_left} trials and "
            f"{self.seconds_left:.0f} s left"
        )


class KernelEntry(_Model):
    """A kernel that `load` takes."""

    kernel: str
    suite: str
    family: str
    split: str
    """train, val or test; "" outside the suites"""
    dtype: str
    shape: dict[str, int]
    """default sizes"""
    uri: str


class Kernels(Result):
    """The kernels there are."""

    kernels: list[KernelEntry]

    def text(self) -> str:
        """One line each."""
        return "\n".join(
            f"{k.kernel}: {', '.join(f'{name}={size}' for name, size in k.shape.items())}"
            for k in self.kernels
        )


class Loaded(Result):
    """A new session with the unscheduled program of a kernel."""

    state: State
    levels: list[str]
    """IR levels that `get_ir` takes"""
    kinds: list[str]
    """kinds of actions that `legal_actions` and `apply` take"""

    def text(self) -> str:
        """State, then what can be asked for."""
        lines = [*self.state.lines(), f"IR levels: {', '.join(self.levels)}"]
        return "\n".join([*lines, f"kinds of actions: {', '.join(self.kinds)}"])


class IRText(Result):
    """The current program at one IR level."""

    level: str
    ir: str
    lines: int
    """of the whole text"""
    clipped: bool
    """lines in the middle are left out; a line in their place says how many"""

    def text(self) -> str:
        """The IR."""
        return self.ir


class Actions(Result):
    """A page of the actions that are legal on the current program."""

    actions: list[str]
    """text forms, as `apply` takes them"""
    short: list[str]
    """all that fit the filters, alike ones as one: Split(loop=0|1, factor=2|4) are four"""
    offset: int
    total: int
    """legal actions that fit the filters"""
    next_offset: int | None
    """of the next page; null on the last one"""
    kinds: dict[str, int]
    """legal actions by kind, whatever the filters"""

    def text(self) -> str:
        """All that fit in short form, then how many there are."""
        counts = ", ".join(f"{kind} {count}" for kind, count in self.kinds.items())
        return "\n".join([*self.short, f"{self.total} actions; legal by kind: {counts}"])


class Change(_Model):
    """A quantity of the static profile that an action changed."""

    quantity: str
    before: float
    after: float
    unit: str
    exact: bool
    """counted in the IR; false: estimated by a model"""


class Applied(Result):
    """The program after an action."""

    action: str
    changes: list[Change]
    sentences: list[str]
    """the changes in words"""
    predicted_us_before: float
    state: State

    def text(self) -> str:
        """What changed, then the new loop nest."""
        return "\n".join(
            [f"applied {self.action}", *self.sentences, *self.state.lines()],
        )


class Evaluated(Result):
    """The verdict of the evaluator on the current program. A number exists only with a pass."""

    status: str
    """passed, or why there is no number: wrong_result, compile_error, too_slow, …"""
    message: str
    """what was wrong, in one line; "" after a pass"""
    level: str
    speedup: float | None
    """over the unscheduled program"""
    speedup_ci: Interval | None
    """95 % interval"""
    latency_us: float | None
    """time of one call, in µs"""
    baseline_us: float | None
    """time of one call of the unscheduled program, in µs"""
    best_speedup: float
    """of the session so far; 1 at least, since the unscheduled program can be kept"""
    charged: bool
    """this was a trial: machine code that the session had not met before"""
    reused: bool
    """the measurement comes from the store, since this machine code was measured earlier"""
    code_key: str
    regimes: list[str]
    """kinds of inputs that the gate checked"""
    worst_error: float | None
    """in units of the tolerance"""
    rolled_back: bool
    """the program did not hold, and the session went back to the newest one that did"""
    evaluated: list[str]
    """transforms of the program that was judged"""
    state: State

    def text(self) -> str:
        """The verdict in one line, and where the session stands."""
        if self.speedup is not None and self.latency_us is not None:
            low, high = self.speedup_ci or (self.speedup, self.speedup)
            verdict = (
                f"passed: {self.speedup:.3f}x over unscheduled ({low:.3f} to {high:.3f}), "
                f"{self.latency_us:,.2f} µs a call"
            )
        else:
            verdict = f"{self.status}: {self.message}"
        kind = "a trial" if self.charged else "no trial: this machine code was met before"
        lines = [verdict, f"{kind}; best so far {self.best_speedup:.3f}x"]
        if self.rolled_back:
            lines += ["the session went back to the newest program that holds:"]
            return "\n".join([*lines, *self.state.lines()])
        return "\n".join([*lines, f"{self.state.trials_left} trials left"])


class Quantity(_Model):
    """One figure of a profile."""

    name: str
    value: float
    unit: str
    exact: bool
    """counted in the IR; false: estimated by a model"""
    means: str
    """how it is found"""


class RooflinePlace(_Model):
    """Where a measured time stands against what this machine can do."""

    achieved_gflops: float
    attainable_gflops: float
    fraction: float
    bound: str
    """compute or memory"""
    level: str
    """nearest memory that holds the data"""
    floor_us: float


class Profile(Result):
    """What the current program does: by static analysis, and measured where asked."""

    quantities: list[Quantity]
    sentences: list[str]
    instructions: dict[str, float]
    """of the machine code; empty where it is not read"""
    evaluation: Evaluated | None
    roofline: RooflinePlace | None
    counters: dict[str, float]
    """hardware events of one call"""
    counters_unavailable: str
    """why there are none, "" if there are"""

    def text(self) -> str:
        """Figures in words."""
        lines = list(self.sentences)
        if self.evaluation is not None:
            lines.append(self.evaluation.text())
        if self.roofline is not None:
            place = self.roofline
            lines.append(
                f"roofline: {place.fraction:.1%} of the limit by {place.bound} ({place.level}), "
                f"where a call would take {place.floor_us:.2f} µs"
            )
        lines += [f"{name}: {value:,.0f} a call" for name, value in self.counters.items()]
        return "\n".join(lines)


class BaselineEntry(_Model):
    """One way to compute the kernel without tirgym."""

    name: str
    """naive, default, or vendor"""
    what: str
    """the schedule or library behind it"""
    status: str
    message: str
    latency_us: float | None
    speedup: float | None
    """over naive"""
    speedup_ci: Interval | None
    gflops: float | None
    roofline_fraction: float | None


class Baselines(Result):
    """What the kernel takes unscheduled, by the compiler's default, and from vendors' libraries."""

    workload: str
    baselines: list[BaselineEntry]

    def text(self) -> str:
        """One line each."""
        return "\n".join(
            f"{row.name} ({row.what}): {row.latency_us:,.2f} µs, {row.speedup:.2f}x"
            if row.latency_us is not None and row.speedup is not None
            else f"{row.name} ({row.what}): {row.status}: {row.message}"
            for row in self.baselines
        )


class Snapshot(Result):
    """A state that `rollback` restores, or the one that it restored."""

    snapshot: str
    """"start" is the unscheduled program"""
    state: State

    def text(self) -> str:
        """Its name, and the state."""
        return "\n".join([f"snapshot {self.snapshot}", *self.state.lines()])


class HistoryEntry(_Model):
    """One thing that was done in the session."""

    number: int
    action: str
    """load, transform, evaluate, snapshot or rollback"""
    subject: str
    why: str
    """the reason that was given with `apply`"""
    verdict: str
    message: str
    change: dict[str, Interval]
    """figures of the static profile that it changed: before, after"""
    latency_us: float | None
    speedup: float | None
    code_key: str
    ir_key: str
    elapsed_ms: float


class History(Result):
    """A page of the decision log, oldest first."""

    entries: list[HistoryEntry]
    offset: int
    total: int
    next_offset: int | None

    def text(self) -> str:
        """One line each."""
        return "\n".join(_entry_text(entry) for entry in self.entries)


def _entry_text(entry: HistoryEntry) -> str:
    parts = [f"{entry.number}. {entry.action} {entry.subject}: {entry.verdict}"]
    if entry.speedup is not None:
        parts.append(f"{entry.speedup:.3f}x")
    if entry.message:
        parts.append(entry.message)
    if entry.why:
        parts.append(f"because {entry.why}")
    return ", ".join(parts)


class Exported(Result):
    """A trace: everything that is needed to make and verify a program again."""

    trace: dict[str, Any]
    """content of a trace file; `tirgym verify` takes it once it is saved as JSON"""
    status: str
    """passed: measured anew for this export; unverified: the number of the search, or none; noisy:
    right, and too few processes could be measured for a number; or what was found wrong"""
    speedup: float | None
    speedup_ci: Interval | None
    file: str | None
    """where the server saved it (tirgym mcp --out)"""

    def text(self) -> str:
        """Its number, where it lies, and its steps."""
        number = "no number" if self.speedup is None else f"{self.speedup:.3f}x"
        where = f"saved as {self.file}" if self.file else "save `trace` as a .json file"
        steps = [str(step) for step in self.trace["transforms"]]
        return "\n".join([f"{self.status}: {number}; {where}; tirgym verify checks it", *steps])


class Closed(Result):
    """A session that ended."""

    session: str

    def text(self) -> str:
        """Its name."""
        return f"session {self.session} is closed"
