"""`python toy_optimize.py FOLDER AGENT…`: runs on the toy compiler, for tests across processes."""

from __future__ import annotations

import sys
from pathlib import Path

from toy import ToyCost, ToyEvaluator, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import optimize
from tirgym.harness.backend import BACKENDS
from tirgym.harness.decisions import SPACES
from tirgym.harness.target import Target
from tirgym.spaces.graph import ENCODERS


def main(folder: Path, agents: list[str]) -> None:
    """One run of each agent; writes FOLDER/AGENT.json."""
    BACKENDS["toy"] = "toy:ToyBackend"
    ENCODERS["toy"] = "toy:ToyEncoder"
    SPACES["toy"] = "toy:ToySpace"
    for agent in agents:
        optimize(
            toy_workload(),
            agent,
            trials=25,
            seed=7,
            target=Target("toy", "dials", 1),
            evaluator=ToyEvaluator(),
            vocabulary=toy_vocabulary(),
            cost=ToyCost(),
            out=folder / f"{agent}.json",
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
