"""Throughput of the environments: `python -m tirgym.benchmarks.throughput --json`.

Section "static": fresh random episodes of `tirgym/ScheduleStatic-v0` (dict observation, exact mask,
static cost), every state new, against the plain way in the same run: every action of the table
whose nodes exist tried on a copy, and a structural walk over the whole IR. Section "measured":
rounds of build, training gate and timing on one matmul, handed over in batches (the next program is
built while one is timed) and one by one in the same run, and what of a round is overhead. Ratios of
one run mean something on a busy machine; absolute numbers do not.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Protocol, cast

import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table

from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import Transform
from tirgym.spaces.graph import encoder_for

__all__ = ["KERNELS", "MeasuredReport", "StaticReport", "main", "measured", "static"]

KERNELS = ("matmul", "softmax", "conv2d", "layernorm", "attention")
EPISODE_STEPS = 12
_BATCH = 10
"""episodes between two looks at the plain way, so that neither spoils the other's caches much"""
_REFUSED = (RuntimeError, ValueError, TypeError, IndexError, StopIteration)
"""What an impossible transform raises when nothing was asked before."""
MEASURED_BATCH = 20
"""Programs that the measured section hands over together."""
SETTLING = 2
"""Programs for each of two workers before anything is counted."""
PHASES = ("apply", "walk", "mask", "cost", "encode", "observe")


@dataclass(frozen=True, slots=True)
class StaticReport:
    """Static environment, one process, CPU seconds of one core; means over all steps."""

    kernels: tuple[str, ...]
    actions: int
    episodes: int
    steps: int
    mean_loops: float
    mean_blocks: float
    steps_per_s: float
    """steps / CPU seconds, resets included"""
    steps_per_s_wall: float
    collector_share: float
    """part of those CPU seconds that Python's cyclic garbage collector took"""
    plain_steps_per_s: float
    """1 / mean CPU seconds of apply, trials and structural walk; without observation and cost"""
    plain_states: int
    ratio: float
    """steps_per_s / plain_steps_per_s"""
    phases_us: dict[str, float]
    """mean CPU µs of one step by phase, from a second pass over other random episodes"""
    snapshot_us: float
    rollback_us: float
    """`set_state`, observation and info included"""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Resident memory over many short episodes of one environment."""

    episodes: int
    warm_mib: float
    """after a third of the episodes"""
    end_mib: float

    @property
    def growth_mib(self) -> float:
        """What the last two thirds added."""
        return self.end_mib - self.warm_mib


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


class _TensorIR(Protocol):
    """What the plain way needs of a TensorIR program."""

    nest: Any
    schedule: Any
    mod: Any


@dataclass
class _Played:
    """What random episodes went through."""

    steps: int = 0
    loops: int = 0
    blocks: int = 0
    kept: list[tuple[Program, Transform]] = field(default_factory=list)
    """one random state of each episode, with the transform that was chosen there"""


def _play(env: ScheduleEnv, rng: np.random.Generator, seed: int, played: _Played) -> None:
    """One random episode."""
    _, info = env.reset(seed=seed)
    place = int(rng.integers(EPISODE_STEPS))
    for number in range(EPISODE_STEPS):
        legal = np.flatnonzero(info["action_mask"][:-1])
        if not len(legal):
            break
        before = env.program
        _, _, _, truncated, info = env.step(legal[rng.integers(len(legal))])
        nest = cast(_TensorIR, env.program).nest
        played.steps += 1
        played.loops += nest.size
        played.blocks += len(nest.blocks)
        if number == place:
            played.kept.append((before, env.program.steps[-1]))
        if truncated:
            break


@contextmanager
def _collector_clock() -> Iterator[list[float]]:
    """CPU seconds of each garbage collection inside."""
    seconds: list[float] = []
    began = 0.0

    def clock(phase: str, _: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        else:
            seconds.append(time.thread_time() - began)

    gc.callbacks.append(clock)
    try:
        yield seconds
    finally:
        gc.callbacks.remove(clock)


def _exists(transform: Transform, loops: int, blocks: int) -> bool:
    """Whether the nodes that `transform` names are there."""
    loop, block = getattr(transform, "loop", 0), getattr(transform, "block", 0)
    return loop < loops and block < blocks


def _plain_step(env: ScheduleEnv, program: Program, chosen: Transform) -> float:
    """CPU seconds of one step the plain way, at `program`."""
    import tvm_ffi

    from tirgym.harness.tensorir.handles import Handles

    began = time.thread_time()
    program.apply(chosen)
    state = cast(_TensorIR, program)
    loops, blocks = len(state.nest.loops), len(state.nest.blocks)
    for transform in env.vocabulary:
        if not _exists(transform, loops, blocks):
            continue
        schedule = state.schedule
        try:
            transform.apply_to(schedule, Handles(schedule, state.nest))
        except _REFUSED:
            continue
    nodes: list[str] = []
    tvm_ffi.structural_walk(state.mod, lambda node: nodes.append(type(node).__name__))
    return time.thread_time() - began


def _phases(env: ScheduleEnv, kernels: Sequence[str], episodes: int) -> dict[str, float]:
    """Mean CPU µs of the parts of a step over fresh random programs."""
    rng = np.random.default_rng(1)
    spent: dict[str, list[float]] = {name: [] for name in PHASES}

    def clocked(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        answer = call(*arguments)
        spent[name].append((time.thread_time() - began) * 1e6)
        return answer

    cost, form = env.state.reward.cost, env.observation_form  # type: ignore[attr-defined]
    for number in range(episodes):
        env.reset(seed=number, options={"kernel": kernels[number % len(kernels)]})
        program = env.program
        mask = program.legal_mask(env.vocabulary)
        for _ in range(EPISODE_STEPS):
            if not mask.any():
                break
            transform = env.vocabulary[int(rng.choice(np.flatnonzero(mask)))]
            program = clocked("apply", program.apply, transform)
            clocked("walk", getattr, program, "nest")
            mask = clocked("mask", program.legal_mask, env.vocabulary)
            clocked("cost", cost.predict_us, program)
            graph = clocked("encode", encoder_for(program.dialect).encode, program)
            clocked("observe", form.observe, program, graph, env.action_space.mask(mask))
    return {name: round(statistics.fmean(values), 1) for name, values in spent.items()}


def _states_us(env: ScheduleEnv) -> tuple[float, float]:
    """Median µs of a snapshot, and of going back to it."""
    snapshots, rollbacks = [], []
    for _ in range(200):
        began = time.perf_counter()
        state = env.state
        middle = time.perf_counter()
        env.set_state(state)
        snapshots.append((middle - began) * 1e6)
        rollbacks.append((time.perf_counter() - middle) * 1e6)
    return statistics.median(snapshots), statistics.median(rollbacks)


def static(
    episodes: int = 60, plain_states: int = 40, kernels: Sequence[str] = KERNELS
) -> StaticReport:
    """Play `episodes` random episodes; between batches the plain way runs, on some of their states.

    Set-up (unscheduled programs, imports) is left out; resets count.
    """
    env = ScheduleEnv(list(kernels), reward="static", max_steps=EPISODE_STEPS + 1)
    rng = np.random.default_rng(0)
    for kernel in kernels:  # set-up: builds the unscheduled programs, imports what is lazy
        env.reset(options={"kernel": kernel})
    _play(env, rng, 0, _Played())
    cpu_s = wall_s = collector_s = 0.0
    played = _Played()
    plain: list[float] = []
    for first in range(0, episodes, _BATCH):
        numbers = range(first, min(first + _BATCH, episodes))
        began, began_wall = time.thread_time(), time.perf_counter()
        with _collector_clock() as collections:
            for number in numbers:
                _play(env, rng, number, played)
        collector_s += sum(collections)
        cpu_s += time.thread_time() - began
        wall_s += time.perf_counter() - began_wall
        share = round(plain_states * (numbers[-1] + 1) / episodes) - len(plain)
        plain += [_plain_step(env, *state) for state in played.kept[:share]]
        played.kept.clear()
    snapshot_us, rollback_us = _states_us(env)
    steps = played.steps
    fast, slow = steps / cpu_s, 1 / statistics.fmean(plain)
    return StaticReport(
        kernels=tuple(kernels),
        actions=int(env.action_space.n),
        episodes=episodes,
        steps=steps,
        mean_loops=round(played.loops / steps, 2),
        mean_blocks=round(played.blocks / steps, 2),
        steps_per_s=round(fast, 1),
        steps_per_s_wall=round(steps / wall_s, 1),
        collector_share=round(collector_s / cpu_s, 3),
        plain_steps_per_s=round(slow, 2),
        plain_states=len(plain),
        ratio=round(fast / slow, 1),
        phases_us=_phases(env, kernels, max(len(kernels), episodes // 3)),
        snapshot_us=round(snapshot_us, 1),
        rollback_us=round(rollback_us, 1),
    )


def memory(episodes: int = 2000, kernels: Sequence[str] = KERNELS) -> MemoryReport:
    """Play `episodes` episodes of three steps and look at the resident memory."""
    env = ScheduleEnv(list(kernels), shape="tiny", reward="static", max_steps=3)
    rng = np.random.default_rng(2)
    process = psutil.Process()
    warm = 0.0
    for number in range(episodes):
        _play(env, rng, number, _Played())
        if number == episodes // 3:
            gc.collect()
            warm = process.memory_info().rss / 2**20
    gc.collect()
    end = process.memory_info().rss / 2**20
    return MemoryReport(episodes, round(warm, 1), round(end, 1))


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
        program = _random_tiling(env, rng)
        found.setdefault(program.ir_key, program)
    return list(found.values())[1:]


def _random_tiling(env: ScheduleEnv, rng: np.random.Generator) -> Program:
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


def _table(report: dict[str, Any]) -> Table:
    table = Table("section", "figure", "value")
    for section, figures in report.items():
        for name, value in figures.items():
            table.add_row(section, name, str(value))
    return table


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    section: Annotated[str, typer.Option(help="static, memory, measured or all.")] = "all",
    episodes: Annotated[int, typer.Option(min=5, help="Episodes of the static section.")] = 60,
    memory_episodes: Annotated[int, typer.Option(min=3)] = 2000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the measured section.")] = 40,
) -> None:
    """Measure and print."""
    sections: dict[str, Callable[[], Any]] = {
        "static": lambda: static(episodes),
        "memory": lambda: memory(memory_episodes),
        "measured": lambda: measured(rounds),
    }
    if section != "all" and section not in sections:
        raise typer.BadParameter(f"{section!r}: expected all, {', '.join(sections)}")
    report = {}
    for name, make in sections.items():
        if section in ("all", name):
            made = make()
            report[name] = asdict(made)
            if isinstance(made, MemoryReport):
                report[name]["growth_mib"] = round(made.growth_mib, 1)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(_table(report))


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
