"""Policies that learn from recorded walks before they play."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

for package in ("sb3_contrib", "torch_geometric", "safetensors", "tensorboard"):
    pytest.importorskip(package)

import torch
from recorded import fill_with_walks
from small import SMALL, TARGET
from trainings import SMALLEST

from tirgym.baselines.ppo.checkpoint import read_header
from tirgym.baselines.ppo.demonstrations import Demonstrations, read_demonstrations
from tirgym.baselines.ppo.games import game_of
from tirgym.baselines.ppo.imitation import imitate
from tirgym.baselines.ppo.learner import make_model
from tirgym.baselines.ppo.training import _imitate, train
from tirgym.baselines.ppo.vector_env import GroupedVecEnv
from tirgym.envs.replay import replay_workloads
from tirgym.errors import InvalidValueError, TargetMismatchError
from tirgym.harness.shipped_store import shipped_store
from tirgym.harness.store import Store
from tirgym.kernels_suite.registry import load_workload

GAME = game_of("tirgym/Decision-v0", "features")
KERNELS = ("core-v0/scale_shift", "core-v0/matvec")
SHOWN = replace(SMALLEST, imitate="core-v0", kernels=KERNELS, steps=128)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """The recorded store that ships."""
    opened = Store(shipped_store("core-v0"), read_only=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def uris(store: Store) -> list[str]:
    """The two kernels as the store holds them."""
    held = replay_workloads(store)
    return [uri for uri in held if any(f"/{name}?" in f"tirgym:/{uri}" for name in KERNELS)]


@pytest.fixture(scope="module")
def shown(store: Store, uris: list[str]) -> Demonstrations:
    """What the store shows about them."""
    assert len(uris) == 2
    return read_demonstrations(store, uris, GAME, TARGET)


def best_speedups(store: Store, uri: str) -> float:
    return max(
        record.measurement.speedup
        for record in store.records()
        if record.measurement is not None and record.context.workload.startswith(uri)
    )


def test_states_say_what_good_walks_choose_there(shown: Demonstrations, store: Store) -> None:
    assert shown.walks >= 2
    roots = [state for state in shown.states if math.isclose(state.weight, 1.0)]
    assert len(roots) >= len(shown.workloads) == 2
    ceiling = max(math.log(best_speedups(store, uri)) for uri in shown.workloads)
    for state in shown.states:
        assert state.wanted.sum() == pytest.approx(state.weight)
        assert not state.wanted[~state.mask].any()
        assert 0 < state.weight <= 1 + 1e-6
        assert state.value <= ceiling + 1e-9


def test_reading_twice_is_the_same(shown: Demonstrations, store: Store, uris: list[str]) -> None:
    again = read_demonstrations(store, uris, GAME, TARGET)
    assert again.workloads == shown.workloads
    for one, other in zip(shown.states, again.states, strict=True):
        assert np.array_equal(one.observation, other.observation)
        assert np.array_equal(one.wanted, other.wanted)


def test_a_store_without_walks_of_the_kernels_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValueError, match="has none"):
        read_demonstrations(store, ["tirgym://core-v0/nothing?m=1&dtype=float32"], GAME, TARGET)


def test_walks_of_another_thread_count_are_not_shown(store: Store, uris: list[str]) -> None:
    other = replace(TARGET, num_threads=2)
    with pytest.raises(InvalidValueError, match="llvm/znver3/1 thread"):
        read_demonstrations(store, uris, GAME, other)
    both = Store()
    fill_with_walks(both, [SMALL["add"]], 4)
    alone = read_demonstrations(both, [SMALL["add"]], GAME, TARGET)
    fill_with_walks(both, [SMALL["add"]], 4, target=other)
    for target in (TARGET, other):
        shown = read_demonstrations(both, [SMALL["add"]], GAME, target)
        assert (shown.walks, shown.workloads) == (alone.walks, (SMALL["add"],))


@pytest.mark.parametrize("answers", [(("no.such.question", 1),), ()])
def test_walks_of_another_design_space_are_refused(
    answers: tuple[tuple[str, int], ...], store: Store, uris: list[str], tmp_path: Path
) -> None:
    (context,) = [c for c in store.contexts() if c.workload.startswith(uris[0])]
    record = next(r for r in store.records() if r.context == context and r.measurement is not None)
    made = Store(tmp_path / "odd.sqlite")
    made.put(record)
    made.put_walk(context, answers, "odd", "random 0.0")
    made.put_code_key(context, "odd", record.key)
    error, said = (
        (TargetMismatchError, "record it again") if answers else (InvalidValueError, "none")
    )
    with pytest.raises(error, match=said):
        read_demonstrations(made, uris, GAME, TARGET)
    made.close()


def test_an_imitator_comes_to_choose_as_the_best_walks_did(shown: Demonstrations) -> None:
    env = GroupedVecEnv(SHOWN.spec(), SHOWN.envs, 0)
    try:
        first, later = (
            imitate(make_model(SHOWN, env), shown, epochs=epochs, seed=0, values=True)
            for epochs in (1, 60)
        )
    finally:
        env.close()
    assert later.cross_entropy < 0.7 * first.cross_entropy
    assert later.agreement > max(0.8, first.agreement)


@pytest.mark.parametrize(("reward", "learns"), [("static", False), ("replay", True)])
def test_values_are_learned_only_where_all_is_still_to_be_paid(reward: str, learns: bool) -> None:
    args = replace(SHOWN, reward=reward, store="core-v0", shapes=None, imitation_epochs=1)
    env = GroupedVecEnv(args.spec(), args.envs, 0)
    try:
        model = make_model(args, env)
        actor, critic = model.policy.action_net.weight, model.policy.value_net.weight
        before = actor.detach().clone(), critic.detach().clone()
        _imitate(args, model)
    finally:
        env.close()
    assert not torch.equal(actor, before[0])
    assert torch.equal(critic, before[1]) is not learns


def test_a_training_that_imitates_repeats_and_goes_on(tmp_path: Path) -> None:
    whole = train(replace(SHOWN, out=str(tmp_path / "whole")))
    train(replace(SHOWN, out=str(tmp_path / "parts"), steps=64))
    parts = train(replace(SHOWN, out=str(tmp_path / "parts")))
    assert parts.resumed_from == 64
    assert parts.policy.read_bytes() == whole.policy.read_bytes()
    plain = train(replace(SHOWN, out=str(tmp_path / "plain"), imitate=None))
    assert plain.evaluations[0]["played"] != whole.evaluations[0]["played"]
    assert read_header(whole.policy).kernels == KERNELS


def test_nothing_held_out_is_imitated() -> None:
    every = replace(SHOWN, kernels=())
    families = {load_workload(uri).kernel.family for uri in every.shown_workloads()}
    assert families == {load_workload(name).kernel.family for name in every.spec().kernels}
    assert "softmax" not in families


def test_transforms_have_no_walks_to_imitate() -> None:
    with pytest.raises(InvalidValueError, match="Decision"):
        replace(SHOWN, env="tirgym/Schedule-v0").check()
