"""What a graph policy may not depend on, and what it must: padding, order, masks, gradients, seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from policies import Observations, make_policy, observed

pytest.importorskip("sb3_contrib")
pytest.importorskip("torch_geometric")

import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger

from tirgym.baselines.ppo.policy import GraphPolicy
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.transforms.base import SlotLimits
from tirgym.spaces.padded import PaddedGraph
from tirgym.spaces.transform_space import TransformSpace

DECISION, SCHEDULE = "tirgym/DecisionStatic-v0", "tirgym/ScheduleStatic-v0"
EVERY_ENV = pytest.mark.parametrize("environment", [DECISION, SCHEDULE])
KERNELS = ("matmul", "softmax")
SILENT = Logger(folder=None, output_formats=[])


def shown(environment: str) -> Observations:
    return dict(observed(environment, KERNELS, 6))


def opinionated(environment: str, **arguments: Any) -> Any:
    """A policy whose answers differ between actions, as those of a new one hardly do."""
    policy = make_policy("ppo-gnn", environment, **arguments)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in policy.parameters():
            value += 0.1 * torch.randn(value.shape, generator=generator)
    return policy


def judged(policy: Any, observations: Observations) -> tuple[np.ndarray[Any, Any], ...]:
    """Logits of legal actions (the others 0), and values."""
    tensors = {name: torch.as_tensor(value) for name, value in observations.items()}
    with torch.no_grad():
        mask = tensors["action_mask"].bool()
        logits = policy.get_distribution(tensors, mask).distribution.logits
        return torch.where(mask, logits, 0.0).numpy(), policy.predict_values(tensors).numpy()


def assert_same(found: tuple[np.ndarray[Any, Any], ...], expected: Any) -> None:
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_allclose(here, there, atol=2e-5)


@EVERY_ENV
def test_a_policy_tells_states_and_actions_apart(environment: str) -> None:
    observations = shown(environment)
    logits, values = judged(opinionated(environment), observations)
    assert values.std() > 1e-3
    for row, mask in zip(logits, observations["action_mask"] > 0, strict=True):
        assert row[mask].std() > 1e-3


@EVERY_ENV
@pytest.mark.parametrize("edges", ["true", "shuffled"])
def test_padding_changes_nothing(environment: str, edges: str) -> None:
    policy, observations = opinionated(environment, edges=edges), shown(environment)
    padded = dict(observations)
    for name, axis in (("nodes", 1), ("node_mask", 1), ("target", 1)):
        if name in padded:
            padded[name] = grown(padded[name], axis, 17)
    for name in ("edge_index", "edge_type", "edge_attr", "edge_mask"):
        padded[name] = grown(padded[name], 2 if name == "edge_index" else 1, 100)
    padded["nodes"][padded["node_mask"] == 0] = 3.0  # what stands in unused slots is not read
    padded["edge_type"][padded["edge_mask"] == 0] = 1
    assert_same(judged(policy, padded), judged(policy, observations))


def grown(array: np.ndarray[Any, Any], axis: int, by: int) -> np.ndarray[Any, Any]:
    """`array` with `by` zeros more along `axis`."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, by)
    return np.pad(array, widths)


def test_an_action_table_with_more_slots_changes_nothing() -> None:
    small, large = (TransformSpace(default_vocabulary(limits=limits)) for limits in LIMITS)
    policy, observations = opinionated(SCHEDULE), shown(SCHEDULE)
    wide = GraphPolicy(policy.observation_space, large, lambda _: 1e-3)
    wide.load_state_dict(policy.state_dict())
    logits, values = judged(policy, observations)
    moved = in_other_slots(observations, small, large)
    found, found_values = judged(wide, moved)
    places = [large.action(small.transform(action)) for action in range(int(small.n))]
    assert_same((found[:, places], found_values), (logits, values))


LIMITS = (SlotLimits(), SlotLimits(max_loops=60, max_blocks=15))


def in_other_slots(
    observations: Observations, small: TransformSpace, large: TransformSpace
) -> Observations:
    """Observations of one action table as those of another with more slots."""
    from tirgym.spaces.padded import action_slots

    room = [(1, limits.max_loops, limits.max_blocks, 24) for limits in LIMITS]
    starts = [np.concatenate([[0], np.cumsum(counts)[:-1]]) for counts in room]
    slots = np.concatenate(
        [start + np.arange(count) for start, count in zip(starts[1], room[0], strict=True)]
    )
    batch, moved = len(observations["nodes"]), dict(observations)
    total = PaddedGraph(LIMITS[1]).slots
    for name in ("nodes", "node_mask"):
        old = observations[name]
        moved[name] = np.zeros((batch, total, *old.shape[2:]), old.dtype)
        moved[name][:, slots] = old
    moved["edge_index"] = slots[observations["edge_index"]]
    moved["action_node"] = np.tile(action_slots(large.vocabulary), (batch, 1))
    moved["action_mask"] = np.zeros((batch, int(large.n)), np.int8)
    places = [large.action(small.transform(action)) for action in range(int(small.n))]
    moved["action_mask"][:, places] = observations["action_mask"]
    return moved


@EVERY_ENV
def test_the_order_of_nodes_and_edges_does_not_matter(environment: str) -> None:
    policy, observations = opinionated(environment), shown(environment)
    rng = np.random.default_rng(0)
    slots = observations["nodes"].shape[1]
    order = rng.permutation(slots)
    if environment == SCHEDULE:  # its action table names loops and blocks by slot
        buffers = slots - 24
        order = np.concatenate([np.arange(buffers), buffers + rng.permutation(24)])
    place = np.argsort(order)
    edges = rng.permutation(observations["edge_mask"].shape[1])
    moved = dict(observations)
    for name in ("nodes", "node_mask", "target"):
        if name in moved:
            moved[name] = observations[name][:, order]
    moved["edge_index"] = place[observations["edge_index"]][:, :, edges]
    for name in ("edge_type", "edge_attr", "edge_mask"):
        moved[name] = observations[name][:, edges]
    assert_same(judged(policy, moved), judged(policy, observations))


@EVERY_ENV
def test_the_batch_around_an_observation_does_not_matter(environment: str) -> None:
    policy, observations = opinionated(environment), shown(environment)
    whole = judged(policy, observations)
    for number in (0, 7):
        alone = {name: value[number : number + 1] for name, value in observations.items()}
        assert_same(judged(policy, alone), [part[number : number + 1] for part in whole])


@EVERY_ENV
def test_edges_matter_and_shuffled_ones_are_others_but_the_same_each_time(environment: str) -> None:
    true = opinionated(environment)
    shuffled, again = (opinionated(environment, edges="shuffled") for _ in range(2))
    other = opinionated(environment, edges="shuffled", edges_seed=1)
    for policy in (shuffled, again, other):
        policy.load_state_dict(true.state_dict())
    observations = shown(environment)
    logits = [judged(policy, observations)[0] for policy in (true, shuffled, again, other)]
    np.testing.assert_array_equal(logits[1], logits[2])
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    assert np.abs(logits[1] - logits[3]).max() > 1e-3


def test_shuffled_edges_keep_the_degrees_of_every_node() -> None:
    from tirgym.baselines.ppo.graph_batch import RELATIONS, graph_batch
    from tirgym.baselines.ppo.rewiring import rewire

    tensors = {name: torch.as_tensor(value).float() for name, value in shown(DECISION).items()}
    batch = graph_batch(tensors)
    other = rewire(batch, 0)
    relation = torch.repeat_interleave(torch.arange(RELATIONS), torch.tensor(batch.sizes))
    assert not torch.equal(batch.links, other.links)
    assert torch.equal(batch.graph[other.links[0]], batch.graph[other.links[1]])
    for side in (0, 1):
        before = torch.bincount(batch.links[side] * RELATIONS + relation)
        after = torch.bincount(other.links[side] * RELATIONS + relation)
        assert torch.equal(before, after)


@EVERY_ENV
def test_gradients_reach_every_parameter(environment: str) -> None:
    policy = opinionated(environment)
    tensors = {name: torch.as_tensor(value) for name, value in shown(environment).items()}
    mask = tensors["action_mask"].bool()
    actions = policy.get_distribution(tensors, mask).get_actions()
    values, log_probabilities, entropy = policy.evaluate_actions(tensors, actions, mask)
    (values.sum() + log_probabilities.sum() + entropy.sum()).backward()
    still = [n for n, p in policy.named_parameters() if p.grad is None or not p.grad.abs().any()]
    assert still == []


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts steps, and those with a masked action."""

    steps = masked = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.masked += int(not self.env.get_wrapper_attr("action_masks")()[int(action)])
        return self.env.step(action)

    def action_masks(self) -> Any:
        return self.env.get_wrapper_attr("action_masks")()


@EVERY_ENV
def test_masked_actions_are_never_chosen(environment: str) -> None:
    env = Watched(gymnasium.make(environment, kernel="softmax", shape="tiny", max_steps=8))
    model = MaskablePPO(GraphPolicy, env, n_steps=16, batch_size=16, n_epochs=1, seed=0)
    model.set_logger(SILENT)
    model.learn(32)  # training
    evaluate_policy(model, env, n_eval_episodes=2, deterministic=False, warn=False)
    for deterministic in (False, True):  # prediction, even of whoever forgets the mask
        observation, _ = env.reset(seed=0)
        for _ in range(5):
            action, _ = model.predict(observation, deterministic=deterministic)
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
    assert env.steps > 40
    assert env.masked == 0


def trained(seed: int) -> dict[str, Any]:
    env = gymnasium.make(DECISION, kernel="matmul", shape="tiny")
    model = MaskablePPO(
        GraphPolicy, env, n_steps=16, batch_size=8, n_epochs=2, seed=seed, device="cpu"
    )
    model.set_logger(SILENT)
    model.learn(32)
    return dict(model.policy.named_parameters())


def test_the_same_seed_trains_the_same_weights() -> None:
    first, second, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make(DECISION, observation="features"),
        lambda: gymnasium.make(SCHEDULE, observation="graph"),
        lambda: gymnasium.make("CartPole-v1"),
    ],
)
def test_other_spaces_are_refused_with_what_would_be_accepted(make: Callable[[], Any]) -> None:
    env = make()
    with pytest.raises(InvalidValueError, match='observation="dict"'):
        GraphPolicy(env.observation_space, env.action_space, lambda _: 1e-3)


def test_unknown_edges_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="shuffled"):
        make_policy("ppo-gnn", DECISION, edges="shufled")


def test_no_source_is_generated_in_the_temporary_folder() -> None:
    """PyTorch Geometric does so for every class of layers, and leaves the files there."""
    make_policy("ppo-gnn", DECISION)
    assert [name for name in sys.modules if "RelationalConv" in name] == []
