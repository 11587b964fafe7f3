"""`PolicyKind`: the policies that can be trained, by the name of their agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tirgym.errors import InvalidValueError

__all__ = ["POLICY_KINDS", "PolicyKind"]


@dataclass(frozen=True)
class PolicyKind:
    """A policy of sb3-contrib's MaskablePPO, and what it looks at."""

    observation: str
    policy: str
    """an alias of sb3-contrib, or "module:Class" """
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """of the policy"""

    def require_observation(self, agent: str, name: str) -> None:
        """Raise InvalidValueError unless the policy can look at the observation `name`."""
        if name != self.observation:
            reason = ": Stable-Baselines3 has no place for it" if name in ("graph", "text") else ""
            accepted = f"{self.observation!r}, which is what {agent} looks at{reason}"
            raise InvalidValueError("observation", name, accepted)

    def load(self) -> Any:
        """What MaskablePPO takes as its policy."""
        module, colon, attribute = self.policy.partition(":")
        return getattr(import_module(module), attribute) if colon else self.policy


_GRAPH = "tirgym.baselines.ppo.policy:GraphPolicy"

POLICY_KINDS: Mapping[str, PolicyKind] = {
    "ppo-gnn": PolicyKind("dict", _GRAPH),
    "ppo-gnn-shuffled": PolicyKind("dict", _GRAPH, {"edges": "shuffled"}),
    "ppo-mlp": PolicyKind(
        "features", "MlpPolicy", {"net_arch": {"pi": [128, 128], "vf": [128, 128]}}
    ),
}
"""Name of the agent → kind of its policy; "ppo-gnn-shuffled" is the ablation without true edges."""
