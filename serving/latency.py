"""What a question costs over the wire: `python -m tirgym.serving.latency`.

The same questions, those of one walk, are put to the static agent in this process, in another over
stdin and stdout, and in another over HTTP, in turns, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from tirgym.benchmarks.command_line import print_rows, run_command
from tirgym.errors import AgentError
from tirgym.harness.decisions import DecisionAgent, DecisionPoint, StaticAgent, design_space
from tirgym.serving.compile_guard import compile_guard
from tirgym.serving.extra import require_serve

__all__ = ["Latency", "main", "measure", "serving"]

_SERVE = (sys.executable, "-m", "tirgym", "serve", "--agent", "static")
_LIMIT_S = 60.0
"""Seconds that an answer may take here: what is late is measured too."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Round trips of one transport."""

    transport: str
    median_ms: float
    p95_ms: float
    ratio: float
    """median by that of the call in this process"""
    batch_ms: float
    """median for one of the questions of a batch of 16"""
    guarded_ms: float
    """median behind the guard of a compiler, without its cache"""


def measure(points: Sequence[DecisionPoint], rounds: int) -> list[Latency]:
    """Ask every transport every question `rounds` times; raises MissingExtraError."""
    require_serve("the benchmark of latency")
    with ExitStack() as stack:
        agents = {name: stack.enter_context(start()) for name, start in _TRANSPORTS.items()}
        single: dict[str, list[float]] = {name: [] for name in agents}
        batch: dict[str, list[float]] = {name: [] for name in agents}
        guarded: dict[str, list[float]] = {name: [] for name in agents}
        guards = {n: compile_guard(a, 1000 * _LIMIT_S, cache=0) for n, a in agents.items()}
        for _ in range(rounds + 1):  # the first round warms up
            for point in points:
                for name, agent in agents.items():
                    single[name].append(_seconds(agent, [point]))
                    guarded[name].append(_seconds(guards[name], [point]))
            sixteen = [points[i % len(points)] for i in range(16)]
            for name, guard in guards.items():
                batch[name].append(_seconds(guard, sixteen) / 16)
    warm = len(points)
    median = {name: _ms(seconds[warm:], 50) for name, seconds in single.items()}
    return [
        Latency(
            name,
            median[name],
            _ms(single[name][warm:], 95),
            round(median[name] / median["in process"], 1),
            _ms(batch[name][1:], 50),
            _ms(guarded[name][warm:], 50),
        )
        for name in agents
    ]


def _seconds(agent: DecisionAgent, points: Sequence[DecisionPoint]) -> float:
    began = time.perf_counter()
    if len(points) == 1:
        agent.decide(points[0])
    else:
        agent.decide_many(points)  # type: ignore[attr-defined]
    return time.perf_counter() - began


def _ms(seconds: Sequence[float], percentile: float) -> float:
    return round(1000 * float(np.percentile(seconds, percentile)), 3)


# -- transports -------------------------------------------------------------------------------


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`tirgym serve` with further arguments, on a port that is free: its URL and its process."""
    command = [*_SERVE, "--port", "0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise AgentError(f"{' '.join(command)} has ended (status {process.wait()})")
            yield json.loads(line)["url"], process
        finally:
            process.terminate()


@contextmanager
def _in_process() -> Iterator[DecisionAgent]:
    yield StaticAgent()


@contextmanager
def _over_stdio() -> Iterator[DecisionAgent]:
    from tirgym.serving.stdio_agent import StdioAgent

    with StdioAgent([*_SERVE, "--stdio"], _LIMIT_S) as agent:
        yield agent


@contextmanager
def _over_http() -> Iterator[DecisionAgent]:
    from tirgym.serving.remote import RemoteAgent

    with serving() as (url, _), RemoteAgent(url, _LIMIT_S) as agent:
        yield agent


_TRANSPORTS = {"in process": _in_process, "stdio": _over_stdio, "http": _over_http}


# -- command line -----------------------------------------------------------------------------


def _points(kernel: str) -> list[DecisionPoint]:
    """The questions of the static walk."""
    from tirgym.harness.backend import backend
    from tirgym.harness.target import Target
    from tirgym.kernels_suite.registry import load_workload

    target = Target("llvm", "skylake-avx512", 1)
    walk = design_space(backend("llvm").start(load_workload(kernel), target))
    points = []
    while walk.question is not None:
        points.append(walk.point())
        walk = walk.answer(walk.question.default)
    return points


def main(
    kernel: Annotated[str, typer.Option("--kernel", help="Whose questions are asked.")] = "softmax",
    rounds: Annotated[int, typer.Option("--rounds", help="How often each is asked.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the latency of a decision, by transport."""
    print_rows("transports", measure(_points(kernel), rounds), as_json)


if __name__ == "__main__":
    run_command("tirgym.serving.latency", main)
