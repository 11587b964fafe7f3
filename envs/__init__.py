"""Compilers as Gymnasium environments; importing this package imports no compiler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tirgym.envs.registration import ENVIRONMENTS, register_environments

if TYPE_CHECKING:
    from tirgym.envs.decision import DecisionEnv
    from tirgym.envs.schedule import ScheduleEnv
    from tirgym.envs.text_actions import TextActions
    from tirgym.envs.wrappers import EarlyStop, Explain

__all__ = [
    "ENVIRONMENTS",
    "DecisionEnv",
    "EarlyStop",
    "Explain",
    "ScheduleEnv",
    "TextActions",
    "register_environments",
]

_LAZY = {
    "DecisionEnv": "tirgym.envs.decision",
    "EarlyStop": "tirgym.envs.wrappers",
    "Explain": "tirgym.envs.wrappers",
    "ScheduleEnv": "tirgym.envs.schedule",
    "TextActions": "tirgym.envs.text_actions",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tirgym.envs' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
