"""`GnnLearner`: message passing over the graph of a program, one set of weights for each edge type.

Relational graph convolutions (Schlichtkrull et al., "Modeling Relational Data with Graph
Convolutional Networks", ESWC 2018) with edge features, in plain PyTorch: graphs have some forty nodes,
and every edge is read in both directions. Blocks carry their row of store features. The readout pools
by node type and weighs blocks by their share of the work, as the static cost sees it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tirgym.performance_model.learner import Examples
from tirgym.performance_model.one_thread import one_thread
from tirgym.performance_model.view import ProgramView
from tirgym.spaces.graph import EDGE_FEATURES, EdgeType, NodeType

__all__ = ["Args", "GnnLearner", "GnnMember", "GraphInput"]

_TYPES = len(EdgeType)
_BATCH = 128
"""Programs in one forward pass when predicting."""
_CLIP = 6.0
"""Inputs beyond this many standard deviations say no more."""
_POOLED = (NodeType.LOOP, NodeType.BLOCK, NodeType.BUFFER)


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the network and its training.

    The defaults were chosen on families that the models in question had not learned from. Which ones was
    not recorded, and what judges models here (`report.held_out`) takes the val and the test families
    together: count both as used.
    """

    width: int = 48
    layers: int = 2
    epochs: int = 12
    workloads: int = 4
    """workloads in a batch"""
    programs: int = 16
    """programs of each workload in a batch"""
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    input_dropout: float = 0.3
    dropout: float = 0.2


class GraphInput(NamedTuple):
    """One program as arrays."""

    counts: tuple[int, ...]
    """nodes of each `NodeType`, in that order"""
    nodes: NDArray[np.float32]
    """(nodes, features): those of the graph, then the store features, which only blocks have"""
    shares: NDArray[np.float32]
    """(nodes,): share of the work, 0 for all but blocks"""
    edges: NDArray[np.float32]
    """(edges, len(EDGE_FEATURES))"""
    types: NDArray[np.int64]
    """(edges,): `EdgeType`, plus `len(EdgeType)` for the way back"""
    links: NDArray[np.int64]
    """(2, edges): source and target"""
    cost: NDArray[np.float32]
    """(cost features,)"""


class _Batch(NamedTuple):
    """Several graphs as one, its edges sorted by type."""

    nodes: Tensor
    shares: Tensor
    edges: Tensor
    sizes: list[int]
    """edges of each type"""
    source: Tensor
    target: Tensor
    kinds: Tensor
    """(nodes,): `NodeType`"""
    graph: Tensor
    """(nodes,): number of the graph"""
    cost: Tensor


def _batch(graphs: Sequence[GraphInput]) -> _Batch:
    ends = np.cumsum([0, *(len(graph.nodes) for graph in graphs)])
    types = np.concatenate([graph.types for graph in graphs])
    order = np.argsort(types, kind="stable")
    links = np.concatenate(
        [graph.links + first for graph, first in zip(graphs, ends, strict=False)], axis=1
    )[:, order]
    edges = np.concatenate([graph.edges for graph in graphs])[order]
    kinds = [np.repeat(np.arange(4), graph.counts) for graph in graphs]
    return _Batch(
        nodes=torch.from_numpy(np.concatenate([graph.nodes for graph in graphs])),
        shares=torch.from_numpy(np.concatenate([graph.shares for graph in graphs])),
        edges=torch.from_numpy(edges),
        sizes=np.bincount(types, minlength=2 * _TYPES).tolist(),
        source=torch.from_numpy(links[0]),
        target=torch.from_numpy(links[1]),
        kinds=torch.from_numpy(np.concatenate(kinds)),
        graph=torch.from_numpy(np.repeat(np.arange(len(graphs)), np.diff(ends))),
        cost=torch.from_numpy(np.stack([graph.cost for graph in graphs])),
    )


def _sums(values: Tensor, places: Tensor, number: int) -> Tensor:
    """(number, width): sums of the rows of `values` by place."""
    return torch.zeros(number, values.shape[1]).index_add(0, places, values)


class _Layer(nn.Module):  # type: ignore[misc]
    """Messages along every edge, summed over the square root of their number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.relations = nn.Parameter(torch.randn(2 * _TYPES, width, width) * 0.7 * width**-0.5)
        self.edge = nn.Linear(len(EDGE_FEATURES), width)
        self.own = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor, batch: _Batch) -> Tensor:
        """(nodes, width)."""
        received = torch.zeros_like(hidden)
        told = self.edge(batch.edges)
        first = 0
        for kind, size in enumerate(batch.sizes):
            part = slice(first, first + size)
            first += size
            sent = hidden[batch.source[part]] @ self.relations[kind] + told[part]
            received = received.index_add(0, batch.target[part], torch.relu(sent))
        ones = torch.ones(len(batch.target), 1)
        degree = _sums(ones, batch.target, len(hidden)).clamp(min=1.0)
        new = self.norm(self.own(hidden) + received / degree.sqrt())
        return hidden + self.out(torch.relu(new))


class _Network(nn.Module):  # type: ignore[misc]
    """A graph to one number: how much faster than its static cost, up to a constant."""

    def __init__(self, features: int, costs: int, args: Args) -> None:
        super().__init__()
        width = args.width
        self.register_buffer("node_scale", torch.ones(features))
        self.register_buffer("cost_scale", torch.ones(costs))
        self.enter = nn.Sequential(
            nn.Dropout(args.input_dropout),
            nn.Linear(features, width),
            nn.ReLU(),
            nn.Dropout(args.dropout),
        )
        self.layers = nn.ModuleList(_Layer(width) for _ in range(args.layers))
        self.leave = nn.Sequential(
            nn.Dropout(args.dropout),
            nn.Linear((len(_POOLED) + 2) * width + costs, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, batch: _Batch) -> Tensor:
        """(graphs,)."""
        hidden = self.enter((batch.nodes / self.node_scale).clamp(-_CLIP, _CLIP) * 0.5)
        for layer in self.layers:
            hidden = layer(hidden, batch)
        graphs = len(batch.cost)
        pooled = []
        for kind in _POOLED:
            of_it = batch.kinds == kind
            places = batch.graph[of_it]
            number = _sums(torch.ones(len(places), 1), places, graphs).clamp(min=1.0)
            pooled.append(_sums(hidden[of_it], places, graphs) / number)
        pooled.append(_sums(hidden * batch.shares[:, None], batch.graph, graphs))
        pooled.append(hidden[batch.kinds == NodeType.HARDWARE])
        return self.leave(torch.cat([*pooled, batch.cost / self.cost_scale], dim=1))[:, 0]


@contextmanager
def _alone(seed: int | None = None) -> Iterator[None]:
    """`one_thread`, and a random state of its own; the caller's is as before afterwards."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None), one_thread():
        if seed is not None:
            torch.manual_seed(seed)
        yield


class GnnMember:
    """One trained network; a `Member`."""

    def __init__(self, network: _Network) -> None:
        self._network = network.eval()

    def predict(self, programs: Sequence[GraphInput]) -> NDArray[np.float64]:
        """(len(programs),), to five decimals: the last bits depend on what shares a batch."""
        made = [np.zeros(0, np.float32)]
        with _alone(), torch.no_grad():
            for first in range(0, len(programs), _BATCH):
                made.append(self._network(_batch(programs[first : first + _BATCH])).numpy())
        return np.concatenate(made).astype(np.float64).round(5)

    def files(self) -> dict[str, bytes]:
        """Each array in NumPy's own format, which holds no code."""
        files = {}
        for name, value in self._network.state_dict().items():
            packed = io.BytesIO()
            np.save(packed, value.numpy(), allow_pickle=False)
            files[f"{name}.npy"] = packed.getvalue()
        return files


class GnnLearner:
    """A `Learner` on the CPU, in one thread."""

    def __init__(self, args: Args | None = None) -> None:
        self.args = args or Args()

    def encode(self, view: ProgramView, start: ProgramView) -> GraphInput:
        """The graph with a row of store features for each block, its edges in both directions."""
        graph = view.graph
        first = graph.offsets[NodeType.BLOCK]
        blocks = slice(first, first + graph.counts[NodeType.BLOCK])
        stores = np.zeros((len(graph.nodes), view.stores.shape[1]), np.float32)
        stores[blocks] = view.stores
        shares = np.zeros(len(graph.nodes), np.float32)
        shares[blocks] = view.shares
        types = graph.edge_types.astype(np.int64)
        return GraphInput(
            counts=graph.counts,
            nodes=np.concatenate([graph.nodes, stores], axis=1),
            shares=shares,
            edges=np.concatenate([graph.edges, graph.edges]),
            types=np.concatenate([types, types + _TYPES]),
            links=np.concatenate([graph.links, graph.links[::-1]], axis=1).astype(np.int64),
            cost=view.cost.astype(np.float32),
        )

    def fit(self, examples: Examples, seed: int) -> GnnMember:
        """Fitted to the targets as differences between a program and its start (Huber loss)."""
        with _alone(seed):
            return GnnMember(_fit(examples, self.args, np.random.default_rng(seed)))

    def load(self, files: Mapping[str, bytes]) -> GnnMember:
        """The member of `files`; raises ValueError for damaged ones. Draws nothing at random."""
        state = {name.removesuffix(".npy"): _weights(name, data) for name, data in files.items()}
        try:
            width, features = state["enter.1.weight"].shape
            layers = sum(name.endswith(".relations") for name in state)
            with torch.device("meta"):  # takes no memory and no random numbers
                network = _Network(
                    features, len(state["cost_scale"]), Args(width=width, layers=layers)
                )
            network.load_state_dict(state, assign=True)
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"weights of another network ({str(error).splitlines()[0]})") from None
        return GnnMember(network)


def _weights(name: str, data: bytes) -> Tensor:
    """The array of a file that `GnnMember.files` made; raises ValueError for another."""
    try:
        values = np.load(io.BytesIO(data), allow_pickle=False)
    except (EOFError, MemoryError) as error:
        raise ValueError(f"{name}: {error}") from None
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or not values.size:
        raise ValueError(f"{name}: no array of float32 numbers")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: not all of its numbers are finite")
    return torch.from_numpy(values)


def _fit(examples: Examples, args: Args, rng: np.random.Generator) -> _Network:
    programs, starts = examples.programs, examples.starts
    network = _Network(programs[0].nodes.shape[1], len(programs[0].cost), args)
    nodes = np.concatenate([program.nodes for program in programs])
    network.node_scale.copy_(torch.from_numpy(nodes.std(axis=0) + 1e-3))
    costs = np.stack([program.cost for program in programs])
    network.cost_scale.copy_(torch.from_numpy(costs.std(axis=0) + 1e-3))
    targets = torch.from_numpy(examples.targets.astype(np.float32))
    steps = args.epochs * (1 + len(programs) // (args.workloads * args.programs))
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, total_steps=steps)
    members = {int(w): np.flatnonzero(examples.workloads == w) for w in set(examples.workloads)}
    for _ in range(steps):
        picked, places, chosen = _draw(sorted(members), members, args, rng)
        said = network(_batch([starts[w] for w in picked] + [programs[i] for i in chosen]))
        predicted = said[len(picked) :] - said[: len(picked)][places]
        loss = nn.functional.huber_loss(predicted, targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return network


def _draw(
    workloads: list[int], members: Mapping[int, Any], args: Args, rng: np.random.Generator
) -> tuple[list[int], list[int], list[int]]:
    """Workloads of a batch, and its programs: the place of each one's workload, and its index."""
    number = min(args.workloads, len(workloads))
    picked = [workloads[i] for i in rng.choice(len(workloads), number, replace=False)]
    places: list[int] = []
    chosen: list[int] = []
    for place, workload in enumerate(picked):
        own = members[workload]
        drawn = rng.choice(own, min(args.programs, len(own)), replace=False)
        places += [place] * len(drawn)
        chosen += [int(i) for i in drawn]
    return picked, places, chosen
