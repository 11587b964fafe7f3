"""Schedule environments on small kernels, with scripted verdicts and costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from fakes import FakeCost, FakeEvaluator
from small import LIMITS, SMALL, TARGET

from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.transforms import default_vocabulary

__all__ = ["FUSE", "SPLIT", "VOCABULARY", "legal", "measured", "static"]

VOCABULARY = default_vocabulary(limits=LIMITS)
SPLIT = "Split(loop=0, factor=2)"
FUSE = "Fuse(loop=0)"


def static(**keywords: Any) -> ScheduleEnv:
    made: dict[str, Any] = {
        "kernel": SMALL["matmul"],
        "reward": "static",
        "cost": FakeCost(),
        "vocabulary": VOCABULARY,
        "arch": TARGET.arch,
    }
    return ScheduleEnv(**{**made, **keywords})


def measured(*script: Any, **keywords: Any) -> tuple[ScheduleEnv, FakeEvaluator]:
    evaluator = FakeEvaluator(script)
    return static(reward="measured", evaluator=evaluator, **keywords), evaluator


def legal(env: ScheduleEnv) -> np.ndarray:
    return np.flatnonzero(env.action_masks()[:-1])
