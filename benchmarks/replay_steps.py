"""Speed of strict replay beside the static reward: `python -m tirgym.benchmarks.replay_steps --json`.

The same random episodes, of stored programs alone, with `reward="replay"` and with `reward="static"`
(dict observation), in alternation, so that a busy machine slows both. CPU time of this process; what is
said is the ratio. The first round of a replay makes its states, later rounds find most of them kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from tirgym.benchmarks.command_line import print_rows
from tirgym.envs.decision import DecisionEnv
from tirgym.envs.replay import replay_workloads
from tirgym.kernels_suite.kernel import Split

__all__ = ["ReplayReport", "main", "replay_steps"]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """One round over all workloads; steps per CPU second, resets included."""

    round: int
    """from 1; the episodes of a round are drawn anew"""
    workloads: int
    steps: int
    replay_per_s: float
    static_per_s: float
    ratio: float
    """replay_per_s / static_per_s"""


class _Pace:
    """Steps and CPU seconds of one environment."""

    def __init__(self, env: DecisionEnv) -> None:
        self.env = env
        self.steps, self.seconds = 0, 0.0

    def play(self, uri: str, choices: list[int] | None, rng: np.random.Generator) -> list[int]:
        """One episode: of `choices`, or at random; answers its choices."""
        began = time.thread_time()
        _, info = self.env.reset(options={"kernel": uri})
        made: list[int] = []
        over = False
        while not over:
            legal = np.flatnonzero(info["action_mask"])
            action = int(legal[rng.integers(len(legal))]) if choices is None else choices[len(made)]
            made.append(action)
            _, _, terminated, truncated, info = self.env.step(action)
            over = terminated or truncated
        self.seconds += time.thread_time() - began
        self.steps += len(made)
        return made


def replay_steps(
    store: str = "core-v0", rounds: int = 3, episodes: int = 4, workloads: int = 12
) -> list[ReplayReport]:
    """`rounds` of `episodes` episodes of each of the first `workloads` training workloads."""
    uris = replay_workloads(store, Split.TRAIN)[:workloads]
    replay = DecisionEnv(uris, reward="replay", store=store, missing="refuse")
    target = replay.target
    static = DecisionEnv(uris, reward="static", arch=target.arch, num_threads=target.num_threads)
    rng = np.random.default_rng(0)
    reports: list[ReplayReport] = []
    for number in range(1, rounds + 1):
        fast, plain = _Pace(replay), _Pace(static)
        for uri in uris:
            for _ in range(episodes):
                plain.play(uri, fast.play(uri, None, rng), rng)
        replayed, predicted = fast.steps / fast.seconds, plain.steps / plain.seconds
        reports.append(
            ReplayReport(
                number,
                len(uris),
                fast.steps,
                round(replayed, 1),
                round(predicted, 1),
                round(replayed / predicted, 2),
            )
        )
    replay.close()
    static.close()
    return reports


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    store: Annotated[str, typer.Option(help="Store file, or core-v0.")] = "core-v0",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 3,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each workload.")] = 4,
    workloads: Annotated[int, typer.Option(min=1, help="Workloads.")] = 12,
) -> None:
    """Measure and print."""
    reports = replay_steps(store, rounds, episodes, workloads)
    print_rows("replay_steps", reports, as_json)


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
