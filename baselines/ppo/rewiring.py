"""`rewire`: the ablation of the graph: as many edges of each type, between other nodes."""

from __future__ import annotations

import torch

from tirgym.baselines.ppo.graph_batch import GraphBatch
from tirgym.spaces.graph import EdgeType

__all__ = ["rewire"]

_KEYS = 4096


def rewire(batch: GraphBatch, seed: int) -> GraphBatch:
    """Targets permuted among the edges of one type within each graph; the way back follows.

    Every node keeps its number of edges of each type. The permutation is a function of the graph and
    `seed`: it is the same in every batch.
    """
    number = batch.links.shape[1] // 2
    source, target = batch.links[:, :number]
    sizes = torch.tensor(batch.sizes[: len(EdgeType)], device=source.device)
    types = torch.arange(len(EdgeType), device=source.device).repeat_interleave(sizes)
    group = types * batch.graphs + batch.graph[source]
    members = torch.bincount(group, minlength=len(EdgeType) * batch.graphs)
    first = members.cumsum(0) - members
    position = torch.arange(number, device=source.device) - first[group]
    keys = torch.rand(_KEYS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    key = keys.to(source.device)[(position + 31 * members[group]) % _KEYS]
    one_way = torch.stack([source, target[torch.argsort(group + key)]])
    return batch._replace(links=torch.cat([one_way, one_way.flip(0)], dim=1))
