"""Decision points: the compiler's open choices, asked one at a time; who may answer them."""

from __future__ import annotations

from tirgym.harness.decisions.agents import (
    BatchAgent,
    CallbackAgent,
    DecisionAgent,
    ModelAgent,
    RandomAgent,
    StaticAgent,
)
from tirgym.harness.decisions.guard import Guard, GuardReport
from tirgym.harness.decisions.point import DecisionKind, DecisionPoint, Option, Recommendation
from tirgym.harness.decisions.policy import PolicyAgent
from tirgym.harness.decisions.space import SPACES, DesignSpace, design_space
from tirgym.harness.decisions.walk import Question, Walk

__all__ = [
    "SPACES",
    "BatchAgent",
    "CallbackAgent",
    "DecisionAgent",
    "DecisionKind",
    "DecisionPoint",
    "DesignSpace",
    "Guard",
    "GuardReport",
    "ModelAgent",
    "Option",
    "PolicyAgent",
    "Question",
    "RandomAgent",
    "Recommendation",
    "StaticAgent",
    "Walk",
    "design_space",
]
