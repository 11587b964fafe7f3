"""`CheckpointHeader`: what a policy was trained on; digests of what it sees and does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gymnasium.spaces import Space

from tirgym import __version__
from tirgym.harness.decisions.point import DecisionKind
from tirgym.spaces.decision_space import OPTION_FEATURES
from tirgym.spaces.features import FEATURE_NAMES
from tirgym.spaces.graph import EDGE_FEATURES, NODE_FEATURES, EdgeType
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["FORMAT", "CheckpointHeader", "actions_digest", "layout_digest"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """Facts about a trained policy. `save_policy` fills in those after `seed`."""

    agent: str
    """ppo-gnn, ppo-gnn-shuffled or ppo-mlp"""
    environment: str
    """id that it was trained in"""
    suite: str
    split: str
    kernels: tuple[str, ...]
    """that it was trained on"""
    steps: int
    reward: str
    seed: int
    backend: str = "llvm"
    candidate_costs: bool = False
    """whether options were shown with their static cost"""
    max_steps: int = 32
    """most transforms of a program, where actions are transforms"""
    observation: str = ""
    """form: "dict" or "features" """
    vocabulary: str = ""
    """name of the action table, "" for decisions"""
    network: Mapping[str, Any] = field(default_factory=dict)
    """arguments of the policy"""
    layout: str = ""
    """digest of the observation space and of the names of its features"""
    actions: str = ""
    """digest of the action table"""
    weights: str = ""
    """digest of the arrays"""
    version: str = ""
    """of tirgym"""

    def to_json(self) -> str:
        """Canonical text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CheckpointHeader:
        """The header whose `to_json` is `text`; raises ValueError with what is wrong."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT}, which tirgym {__version__} reads")
        expected = {f.name: str(f.type) for f in fields(cls)}
        if set(data) != set(expected):
            odd = ", ".join(sorted(set(expected) ^ set(data)))
            raise ValueError(f"missing or unexpected fields: {odd}")
        for name, kind in expected.items():
            if type(data[name]).__name__ != _JSON_TYPES.get(kind, kind):
                raise ValueError(f"{name} is {data[name]!r}")
        return cls(**{**data, "kernels": tuple(map(str, data["kernels"]))})


_JSON_TYPES = {"tuple[str, ...]": "list", "Mapping[str, Any]": "dict"}
"""Annotation of a field → the type that JSON gives it, where the names differ."""


def layout_digest(space: Space[Any]) -> str:
    """16 hex digits of the shapes, types and bounds of an observation and of its features' names."""
    parts: Mapping[str, Any] = getattr(space, "spaces", {"": space})
    shapes = [
        (name, part.shape, part.dtype.str, float(part.low.min()), float(part.high.max()))
        for name, part in sorted(parts.items())
    ]
    names = (NODE_FEATURES, EDGE_FEATURES, tuple(EdgeType.__members__), FEATURE_NAMES)
    options = (OPTION_FEATURES, tuple(DecisionKind))
    return hashlib.sha256(repr((shapes, names, options)).encode()).hexdigest()[:16]


def actions_digest(space: Space[Any]) -> str:
    """The digest of the action table, or the number of options."""
    if isinstance(space, TransformSpace):
        return space.vocabulary.digest
    return f"{getattr(space, 'n', 0)} options"
