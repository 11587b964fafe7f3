"""Pointer heads: score every action from the node that it targets, the graph, and its description.

Both give logits of shape (graphs, n), and MASKED for actions that the observation's own mask rules
out: so even a policy that is asked without a mask never chooses one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tirgym.baselines.ppo.action_table import ActionTable
from tirgym.baselines.ppo.encoder import Encoded
from tirgym.harness.decisions.point import DecisionKind
from tirgym.harness.decisions.walk import MAX_OPTIONS
from tirgym.harness.vocabulary import Vocabulary
from tirgym.spaces.decision_space import OPTION_FEATURES

__all__ = ["MASKED", "ActionHead", "Head", "OptionHead"]

MASKED = -1e8
"""Logit of an action that is masked, the value that sb3-contrib uses."""


class Head(nn.Module):  # type: ignore[misc]
    """Stands where SB3 has its `MlpExtractor`: logits for the actor, a state for the critic."""

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = actions, width
        last = nn.Linear(width, 1, bias=False)  # which would shift all actions alike
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)
        self.state = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def forward(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Logits (graphs, n) and state (graphs, width)."""
        return self.forward_actor(encoded), self.forward_critic(encoded)

    def forward_actor(self, encoded: Encoded) -> Tensor:
        """Logits (graphs, n)."""
        mask = encoded.observation["action_mask"] > 0
        graph, action = mask.nonzero(as_tuple=True)
        scores = self.score(self.describe(encoded, graph, action))[:, 0]
        return scores.new_full(mask.shape, MASKED).index_put((graph, action), scores)

    def forward_critic(self, encoded: Encoded) -> Tensor:
        """State (graphs, width)."""
        return self.state(encoded.context)

    def describe(self, encoded: Encoded, graph: Tensor, action: Tensor) -> Tensor:
        """(legal actions, width): each legal action in its graph."""
        raise NotImplementedError


class OptionHead(Head):
    """Options of an open decision: the node and kind of the decision, and the row of the option."""

    def __init__(self, width: int) -> None:
        super().__init__(width, MAX_OPTIONS)
        self.question = nn.Linear(2 * width + len(DecisionKind), width)
        self.option = nn.Linear(len(OPTION_FEATURES), width)

    def describe(self, encoded: Encoded, graph: Tensor, action: Tensor) -> Tensor:
        """(legal actions, width)."""
        observation = encoded.observation
        target = observation["target"]
        slots = torch.where(target.amax(dim=1) > 0, target.argmax(dim=1), -1)
        node = encoded.batch.place[torch.arange(len(slots), device=slots.device), slots]
        parts = [encoded.nodes[node], encoded.context, observation["kind"]]
        question = self.question(torch.cat(parts, dim=1))
        return question[graph] + self.option(observation["options"][graph, action])


class ActionHead(Head):
    """Transforms of a vocabulary: their nodes, kind and parameters."""

    def __init__(self, vocabulary: Vocabulary, width: int) -> None:
        table = ActionTable(vocabulary)
        super().__init__(width, len(table.description))
        for name in ("features", "description", "second"):
            self.register_buffer(name, torch.from_numpy(getattr(table, name)), persistent=False)
        self.node = nn.Linear(width, width)
        self.second_node = nn.Linear(width, width, bias=False)
        self.graph = nn.Linear(width, width, bias=False)
        self.action = nn.Sequential(
            nn.Linear(table.features.shape[1], width), nn.ReLU(), nn.Linear(width, width)
        )

    def describe(self, encoded: Encoded, graph: Tensor, action: Tensor) -> Tensor:
        """(legal actions, width)."""
        place = encoded.batch.place
        slot = encoded.observation["action_node"][graph, action].long()
        node, second = place[graph, slot], place[graph, self.second[action]]
        return (
            self.node(encoded.nodes)[node]
            + self.second_node(encoded.nodes)[second]
            + self.graph(encoded.context)[graph]
            + self.action(self.features)[self.description[action]]
        )
