"""`python toy_optimize.py AGENT TRACE`: one run on the toy compiler, for tests across processes."""

from __future__ import annotations

import sys

from toy import ToyCost, ToyEvaluator, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import optimize
from tirgym.harness.backend import BACKENDS
from tirgym.harness.target import Target

if __name__ == "__main__":
    BACKENDS["toy"] = "toy:ToyBackend"
    optimize(
        toy_workload(),
        sys.argv[1],
        trials=25,
        seed=7,
        target=Target("toy", "dials", 1),
        evaluator=ToyEvaluator(),
        vocabulary=toy_vocabulary(),
        cost=ToyCost(),
        out=sys.argv[2],
    )
