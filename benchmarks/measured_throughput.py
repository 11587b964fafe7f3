"""`measured`: rounds of build, gate and timing a second, and what of a round is overhead."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import Transform

__all__ = ["MeasuredReport", "measured", "random_tiling"]

MEASURED_BATCH = 20
"""Programs that the measured section hands over together."""
SETTLING = 2
"""Programs for each of two workers before anything is counted."""


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """Measured rounds on one kernel through the local evaluator, the same programs both ways."""

    workload: str
    rounds: int
    passed: int
    rounds_per_s: float
    """`evaluate_many`: the next program is built while one is timed"""
    batch: int
    """programs handed over together"""
    one_by_one_per_s: float
    """`evaluate`, one call after the other"""
    ratio: float
    """rounds_per_s / one_by_one_per_s"""
    overhead_share: float
    """share of a round outside compiler, gate and timed runs, one by one, median"""
    phases_ms: dict[str, float]
    """mean ms of one round by phase, one by one"""


def measured(
    rounds: int = 40, kernel: str = "matmul", batch: int = MEASURED_BATCH
) -> MeasuredReport:
    """Measure random tilings of `kernel` (a matmul), no program twice, in turns with and without a
    pipeline; each way has an evaluator and a store of its own. Set-up is left out."""
    from tirgym.harness.local_evaluator import LocalEvaluator

    env = ScheduleEnv(kernel, reward="static", max_steps=6)
    env.reset(seed=0)
    programs = _random_tilings(env, rounds + 2 * SETTLING)
    warm, programs = programs[rounds:], programs[:rounds]
    with LocalEvaluator(store=":memory:") as many, LocalEvaluator(store=":memory:") as one:
        ways = (_Way(many.evaluate_many), _Way(lambda batch: map(one.evaluate, batch)))
        for way in ways:  # starts the workers, prepares inputs and references
            list(way.evaluate([env.program, *warm]))
        for first in range(0, rounds, batch):
            for way in ways if first // batch % 2 == 0 else ways[::-1]:
                way.play(programs[first : first + batch])
    pipelined, single = ways
    phases = [asdict(e.phases) for e in single.evaluations]
    shares = [e.phases.overhead_s / e.phases.total_s for e in single.evaluations]
    fast, slow = rounds / pipelined.seconds, rounds / single.seconds
    return MeasuredReport(
        workload=env.program.workload.uri,
        rounds=rounds,
        passed=sum(e.passed for e in pipelined.evaluations),
        rounds_per_s=round(fast, 2),
        batch=batch,
        one_by_one_per_s=round(slow, 2),
        ratio=round(fast / slow, 2),
        overhead_share=round(statistics.median(shares), 3),
        phases_ms={
            name: round(1e3 * statistics.fmean(phase[name] for phase in phases), 2)
            for name in phases[0]
        },
    )


@dataclass
class _Way:
    """One way to evaluate programs, its answers and its wall seconds."""

    evaluate: Callable[[Sequence[Program]], Iterator[Evaluation]]
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0

    def play(self, programs: Sequence[Program]) -> None:
        """Evaluate a batch."""
        began = time.perf_counter()
        self.evaluations += self.evaluate(programs)
        self.seconds += time.perf_counter() - began


def _random_tilings(env: ScheduleEnv, number: int) -> list[Program]:
    """`number` different programs."""
    rng = np.random.default_rng(3)
    found: dict[str, Program] = {env.program.ir_key: env.program}
    while len(found) <= number:
        program = random_tiling(env, rng)
        found.setdefault(program.ir_key, program)
    return list(found.values())[1:]


def random_tiling(env: ScheduleEnv, rng: np.random.Generator) -> Program:
    """Three splits, a random order of the six loops, and an inner loop that is vectorized.

    Every transform that the masks allow is taken, so that all programs are legal.
    """
    program = env.program

    def legal(kind: type[Transform], **fields: int) -> list[Transform]:
        first, last = env.vocabulary.spans[kind]
        mask = program.legal_mask(env.vocabulary)
        table = [env.vocabulary[i] for i in range(first, last) if mask[i]]
        return [t for t in table if all(getattr(t, k) == v for k, v in fields.items())]

    kinds = {kind.name: kind for kind in env.vocabulary.kinds}
    for loop in (2, 1, 0):
        options = legal(kinds["Split"], loop=loop)
        program = program.apply(options[int(rng.integers(len(options)))])
    for loop in (1, 3, 2, 4):
        options = legal(kinds["Reorder"], loop=loop)
        if options and (loop == 4 or rng.random() < 0.8):
            program = program.apply(options[0])
    for kind, loop in (("Vectorize", 5), ("Unroll", int(rng.integers(3, 5)))):
        options = legal(kinds[kind], loop=loop)
        if options and rng.random() < 0.9:
            program = program.apply(options[0])
    return program
