"""Speed of the decision environments: `python -m tirgym.benchmarks.decision_steps --json`.

Random episodes of `tirgym/DecisionStatic-v0` (dict observation), first without and then with the
static cost of every candidate; CPU time of this process, since wall time says little on a busy
machine. Aims: the space in under 1 s, a step in under 2 ms, with candidate costs under 20 ms.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from tirgym.benchmarks.command_line import print_rows
from tirgym.envs.decision import DecisionEnv

__all__ = ["KERNELS", "StepReport", "main", "steps"]

KERNELS = ("matmul", "softmax", "conv2d", "layernorm", "attention")


@dataclass(frozen=True, slots=True)
class StepReport:
    """One kernel; CPU milliseconds."""

    kernel: str
    episodes: int
    candidate_costs: bool
    steps_per_episode: float
    options_per_step: float
    first_reset_ms: float
    """start of the program, generation of the space and the first question"""
    step_mean_ms: float
    step_median_ms: float
    step_p95_ms: float


def steps(kernel: str, episodes: int, candidate_costs: bool) -> StepReport:
    """Random episodes of one kernel."""
    env = DecisionEnv(kernel, reward="static", candidate_costs=candidate_costs)
    rng = np.random.default_rng(0)
    began = time.thread_time()
    _, info = env.reset(seed=0)
    first_ms = (time.thread_time() - began) * 1e3
    times: list[float] = []
    options = 0
    for number in range(episodes):
        _, info = env.reset(seed=number)
        over = False
        while not over:
            count = int(info["action_mask"].sum())
            action = int(rng.integers(count))
            began = time.thread_time()
            _, _, terminated, truncated, info = env.step(action)
            times.append((time.thread_time() - began) * 1e3)
            options += count
            over = terminated or truncated
    env.close()
    return StepReport(
        kernel,
        episodes,
        candidate_costs,
        round(len(times) / episodes, 1),
        round(options / len(times), 1),
        round(first_ms, 2),
        round(float(np.mean(times)), 3),
        round(float(np.median(times)), 3),
        round(float(np.percentile(times, 95)), 3),
    )


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each kernel.")] = 20,
    kernels: Annotated[str, typer.Option(help="Names with commas.")] = ",".join(KERNELS),
) -> None:
    """Measure and print."""
    names: Sequence[str] = kernels.split(",")
    reports = [steps(name, episodes, costs) for costs in (False, True) for name in names]
    print_rows("decision_steps", reports, as_json)


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
