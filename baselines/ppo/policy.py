"""`GraphPolicy`: a policy of sb3-contrib's MaskablePPO that reads programs as graphs.

    env = gymnasium.make("tirgym/DecisionStatic-v0", kernel=["matmul", "softmax"])
    model = MaskablePPO(GraphPolicy, env, n_steps=256, seed=0)
    model.learn(10_000)

It plays `observation="dict"` of the Decision and the Schedule environments, on any kernel.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from gymnasium.spaces import Dict, Discrete, Space
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from tirgym.baselines.ppo.encoder import GraphEncoder
from tirgym.baselines.ppo.heads import ActionHead, Head, OptionHead
from tirgym.errors import InvalidValueError
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["GraphPolicy"]


class GraphPolicy(MaskableActorCriticPolicy):  # type: ignore[misc]
    """A `GraphEncoder` and a pointer head over the actions; one value for the graph.

    `width` and `layers` are those of the encoder. `edges="shuffled"` rewires the graph by
    `edges_seed`, for ablations. Other keywords are those of MaskableActorCriticPolicy. Raises
    InvalidValueError for spaces of other environments.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        lr_schedule: Any,
        width: int = 48,
        layers: int = 2,
        edges: str = "true",
        edges_seed: int = 0,
        **keywords: Any,
    ) -> None:
        _require_graph(observation_space, action_space)
        self.network: dict[str, Any] = {
            "width": width, "layers": layers, "edges": edges, "edges_seed": edges_seed,
        }  # fmt: skip
        keywords["features_extractor_class"] = GraphEncoder
        keywords["features_extractor_kwargs"] = dict(self.network)
        super().__init__(observation_space, action_space, lr_schedule, **keywords)

    def _build(self, lr_schedule: Any) -> None:
        """The head, the value, the optimizer; at first every legal action is about as likely."""
        self.mlp_extractor: Head = _head(self.action_space, self.features_dim)
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        if self.ortho_init:
            self.mlp_extractor.apply(partial(self.init_weights, gain=math.sqrt(2)))
            self.init_weights(self.mlp_extractor.score[-1], gain=0.01)
            self.init_weights(self.value_net, gain=1.0)
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._get_constructor_parameters()
        for name in ("features_extractor_class", "features_extractor_kwargs"):
            del parameters[name]
        return {**parameters, **self.network}


def _head(actions: Discrete, width: int) -> Head:
    if isinstance(actions, TransformSpace):
        return ActionHead(actions.vocabulary, width)
    return OptionHead(width)


def _require_graph(observations: Space[Any], actions: Space[Any]) -> None:
    """Raise InvalidValueError unless the spaces are those of an environment that can be played."""
    keys = set(observations.spaces) if isinstance(observations, Dict) else set[str]()
    described = "options" in keys or ("action_node" in keys and isinstance(actions, TransformSpace))
    if not ({"nodes", "edge_index"} <= keys and described):
        raise InvalidValueError(
            "observation space of GraphPolicy",
            type(observations).__name__,
            'that of a Decision or Schedule environment made with observation="dict"',
        )
