"""The environment ids, as one literal table; registered when `tirgym` is imported."""

from __future__ import annotations

from typing import Any

import gymnasium

__all__ = ["ENVIRONMENTS", "register_environments"]

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "tirgym/Schedule-v0": {
        "entry_point": "tirgym.envs.schedule:ScheduleEnv",
        "nondeterministic": True,
        "kwargs": {"reward": "measured"},
    },
    "tirgym/ScheduleStatic-v0": {
        "entry_point": "tirgym.envs.schedule:ScheduleEnv",
        "kwargs": {"reward": "static"},
    },
    "tirgym/Decision-v0": {
        "entry_point": "tirgym.envs.decision:DecisionEnv",
        "nondeterministic": True,
        "kwargs": {"reward": "final"},
    },
    "tirgym/DecisionStatic-v0": {
        "entry_point": "tirgym.envs.decision:DecisionEnv",
        "kwargs": {"reward": "static"},
    },
    "tirgym/Passes-v0": {
        "entry_point": "tirgym.envs.pass_pipeline:PassPipelineEnv",
        "nondeterministic": True,
        "kwargs": {"reward": "measured"},
    },
    "tirgym/Triton-v0": {
        "entry_point": "tirgym.envs.triton:TritonEnv",
        "kwargs": {"reward": "static"},
    },
}
"""Id → arguments of `gymnasium.register`. Entry points are strings, so that nothing is imported and
`spec.to_json()` works. The environments count their own steps (`max_steps`)."""


def register_environments() -> None:
    """Register every id that is not registered yet."""
    for name, arguments in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, **arguments)
