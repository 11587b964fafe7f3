"""A toy compiler for tests: programs are three dials, and every verdict is a formula.

No TVM, no clock, no worker: runs are exact and take microseconds. The third dial changes the IR and
not the machine code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import IllegalTransformError, UnknownNameError
from tirgym.harness.backend import Build
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.walk import Next, Question
from tirgym.harness.evaluation import Evaluation, GateReport, Level, Measurement, TimingStats
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.transforms.base import NodeRef, SlotLimits, Transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.spaces.graph import COLUMNS, EDGE_FEATURES, NODE_FEATURES, IRGraph, NodeType

__all__ = [
    "EmptySpace",
    "ToyBackend",
    "ToyCost",
    "ToyEncoder",
    "ToyEvaluator",
    "ToyProgram",
    "ToySpace",
    "Turn",
    "toy_start",
    "toy_vocabulary",
    "toy_workload",
]

TOP = 8
NAIVE_US = 1000.0


@dataclass(frozen=True, slots=True)
class Turn(Transform):
    """Turn dial `dial` by `by`; refused beyond 8."""

    dialect: ClassVar[str] = "toy"

    dial: int
    by: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Turn]:
        """Three dials by 1, 2 and 4."""
        return (cls(dial, by) for dial in range(3) for by in (1, 2, 4))

    @property
    def node(self) -> NodeRef:
        """The dial, as a loop."""
        return NodeRef("loop", self.dial)


@dataclass(frozen=True)
class ToyProgram:
    """Three dials."""

    workload: Workload
    target: Target
    dials: tuple[int, ...] = (0, 0, 0)
    steps: tuple[Transform, ...] = ()
    dialect: str = "toy"

    @property
    def ir_key(self) -> str:
        return hashlib.sha256(repr(self.dials).encode()).hexdigest()[:16]

    def apply(self, transform: Transform) -> ToyProgram:
        error = self.why_illegal(transform)
        if error is not None:
            raise error
        assert isinstance(transform, Turn)
        dials = list(self.dials)
        dials[transform.dial] += transform.by
        return ToyProgram(self.workload, self.target, tuple(dials), (*self.steps, transform))

    def why_illegal(self, transform: Transform) -> IllegalTransformError | None:
        if isinstance(transform, Turn) and self.dials[transform.dial] + transform.by <= TOP:
            return None
        return IllegalTransformError(str(transform), "toy", f"no dial beyond {TOP}")

    def legal_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        return np.array([self.why_illegal(t) is None for t in vocabulary], dtype=np.bool_)

    def text(self) -> str:
        return f"dials {self.dials}"


def toy_workload() -> Workload:
    """A kernel that nothing builds."""
    return Workload.of(
        Kernel("toy", "toy", lambda shape: None, lambda: np.zeros(1), train=({"n": 1},))
    )


def toy_start() -> ToyProgram:
    """All dials at 0."""
    return ToyProgram(toy_workload(), Target("toy", "dials", 1))


def toy_vocabulary() -> Vocabulary:
    """Nine turns."""
    return Vocabulary([Turn])


class ToyBackend:
    """A backend without a compiler; tests put it in the backend table as "toy"."""

    name = "toy"
    levels = ("dials",)

    def why_cannot_run(self, target: Target) -> str | None:
        return None

    def why_unavailable(self) -> str | None:
        return None

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        return Target("toy", arch or "dials", num_threads)

    def start(self, workload: Workload, target: Target) -> ToyProgram:
        return ToyProgram(workload, target)

    def module_json(self, program: Program) -> str:
        return program.text()

    def build(self, module_json: str, target: Target) -> Build:
        raise NotImplementedError

    def ir_level(self, program: Program, level: str) -> str:
        if level not in self.levels:
            raise UnknownNameError("IR level of backend toy", level, self.levels)
        return program.text()

    def describe(self, target: Target) -> dict[str, Any]:
        return {}


class ToyEncoder:
    """Shows dials as loops whose extent is where they stand; tests put it in the encoder table."""

    def encode(self, program: Program) -> IRGraph:
        assert isinstance(program, ToyProgram)
        nodes = np.zeros((4, len(NODE_FEATURES)), np.float32)
        nodes[1:, NODE_FEATURES.index("loop.log_extent")] = np.array(program.dials) / TOP
        # one row for each dial, so that pooling keeps them apart
        for dial, value in enumerate(program.dials):
            nodes[1 + dial, COLUMNS[NodeType.LOOP].start + 1 + dial] = value / TOP
        nothing = np.zeros(0, np.int32)
        edges = np.zeros((0, len(EDGE_FEATURES)), np.float32)
        return IRGraph((1, 3, 0, 0), nodes, edges, nothing, nothing.reshape(2, 0))

    def tree(self, program: Program) -> list[str]:
        return [program.text()]


@dataclass(frozen=True)
class TurnTo:
    """Where one dial stands; a decision of the toy's design space."""

    dial: int

    def ask(self, program: Program) -> Question:
        return Question(
            f"dial{self.dial}.tile",
            DecisionKind.TILE,
            f"where dial {self.dial} stands",
            tuple(Option(str(value), value) for value in range(TOP + 1)),
            0,
            NodeRef("loop", self.dial),
        )

    def take(self, program: Program, value: int | None) -> Next:
        for by in (4, 4, 2, 1):
            if value is not None and value >= by:
                program, value = program.apply(Turn(self.dial, by)), value - by
        return Next(program)


class ToySpace:
    """Three dials, asked one by one; tests put it in the table of design spaces."""

    def tasks(self, program: Program) -> tuple[TurnTo, ...]:
        return tuple(TurnTo(dial) for dial in range(3))

    def snippet(self, program: Program, node: NodeRef) -> str:
        return program.text()


class EmptySpace:
    """Nothing can be decided."""

    def tasks(self, program: Program) -> tuple[TurnTo, ...]:
        return ()

    def snippet(self, program: Program, node: NodeRef) -> str:
        return program.text()


def true_us(dials: tuple[int, ...]) -> float:
    """Best at dials 5 and 3, where it is 11 times faster than at 0 and 0."""
    return NAIVE_US / 34 * (abs(dials[0] - 5) ** 2 + abs(dials[1] - 3) ** 2) + 100


class ToyCost:
    """Right about the first dial, blind to the second."""

    def predict_us(self, program: Program) -> float:
        assert isinstance(program, ToyProgram)
        return true_us((program.dials[0], 3))


def stats(us: float) -> TimingStats:
    """Timing without spread."""
    return TimingStats(us, us, us, us, 20)


@dataclass
class ToyEvaluator(Evaluator):
    """Judges dials by formula; `verdict` can overrule it, `on_call` can raise."""

    verdict: Callable[[ToyProgram, Level], Status] = lambda program, level: Status.PASSED
    on_call: Callable[[int], None] = lambda calls: None
    calls: int = 0
    closed: bool = False

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        assert isinstance(program, ToyProgram)
        self.calls += 1
        self.on_call(self.calls)
        status = self.verdict(program, level)
        code_key = "code" + "".join(map(str, program.dials[:2]))
        if status in (Status.COMPILE_ERROR, Status.ILLEGAL):
            return Evaluation(status, program.ir_key, message="refused", level=level)
        if status is not Status.PASSED:
            return Evaluation(status, program.ir_key, code_key, message="bad", level=level)
        us, naive = true_us(program.dials), true_us((0, 0))
        measured = Measurement(stats(us), stats(naive), naive / us, (naive / us, naive / us))
        gate = GateReport(("normal",), 0.1, True)
        return Evaluation(status, program.ir_key, code_key, measured, gate, level=level)

    def close(self) -> None:
        self.closed = True
