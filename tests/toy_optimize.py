"""`main`: runs on the toy compiler, for tests across processes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from toy import ToyCost, ToyEvaluator, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import optimize
from tirgym.harness.backend import BACKENDS
from tirgym.harness.decisions import SPACES
from tirgym.harness.target import Target
from tirgym.spaces.graph import ENCODERS


def main(agents: list[str]) -> None:
    """One run of each agent; prints its trace."""
    BACKENDS["toy"] = "toy:ToyBackend"
    ENCODERS["toy"] = "toy:ToyEncoder"
    SPACES["toy"] = "toy:ToySpace"
    with tempfile.TemporaryDirectory() as folder:
        for agent in agents:
            out = Path(folder) / f"{agent}.json"
            optimize(
                toy_workload(),
                agent,
                trials=25,
                seed=7,
                target=Target("toy", "dials", 1),
                evaluator=ToyEvaluator(),
                vocabulary=toy_vocabulary(),
                cost=ToyCost(),
                out=out,
            )
            print(out.read_text())
