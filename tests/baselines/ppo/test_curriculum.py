"""Curricula: the same seed draws the same, every kernel has its turn, states go on."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tirgym.baselines.ppo.curriculum import CURRICULA, make_curriculum
from tirgym.envs.strategies import WorkloadSampler
from tirgym.errors import InvalidValueError, UnknownNameError

KERNELS = [f"core-v0/{name}" for name in ("add", "relu", "row_sum", "matmul", "conv2d")]
CHOICES = WorkloadSampler(KERNELS, "train").choices

EVERY_CURRICULUM = pytest.mark.parametrize("name", CURRICULA)


def drawn(curriculum: Any, number: int) -> list[str]:
    """URIs; the return of each episode depends on its kernel alone."""
    uris = []
    for _ in range(number):
        workload = curriculum.draw()
        curriculum.learn(float(len(workload.kernel.name)))
        uris.append(workload.uri)
    return uris


def kernel_of(uri: str) -> str:
    return uri.rpartition("/")[2].partition("?")[0]


@EVERY_CURRICULUM
def test_draws_depend_on_seed_and_environment_alone(name: str) -> None:
    first = drawn(make_curriculum(name, CHOICES, 0, 0), 40)
    assert drawn(make_curriculum(name, CHOICES, 0, 0), 40) == first
    assert drawn(make_curriculum(name, CHOICES, 1, 0), 40) != first
    assert drawn(make_curriculum(name, CHOICES, 0, 1), 40) != first


@EVERY_CURRICULUM
def test_every_kernel_is_drawn_before_any_is_drawn_again(name: str) -> None:
    uris = drawn(make_curriculum(name, CHOICES, 3, 0), len(KERNELS))
    assert len(set(map(kernel_of, uris))) == len(KERNELS)


@EVERY_CURRICULUM
def test_every_shape_has_its_turn(name: str) -> None:
    uris = set(drawn(make_curriculum(name, CHOICES, 0, 0), 400))
    assert uris == {workload.uri for shapes in CHOICES for workload in shapes}


@EVERY_CURRICULUM
@pytest.mark.parametrize("before", [0, 2, 33])
def test_a_state_goes_on_with_the_same_draws(name: str, before: int) -> None:
    curriculum = make_curriculum(name, CHOICES, 5, 2)
    drawn(curriculum, before)
    state = json.loads(json.dumps(curriculum.state()))
    expected = drawn(curriculum, 40)
    again = make_curriculum(name, CHOICES, 0, 0)
    again.restore(state)
    assert drawn(again, 40) == expected


def test_rounds_are_even() -> None:
    uris = drawn(make_curriculum("rounds", CHOICES, 0, 0), 20 * len(KERNELS))
    assert set(Counter(map(kernel_of, uris)).values()) == {20}


def test_progress_prefers_the_kernel_whose_return_moves() -> None:
    curriculum = make_curriculum("progress", CHOICES, 0, 0)
    counts: Counter[str] = Counter()
    for number in range(300):
        name = curriculum.draw().kernel.name
        counts[name] += 1
        curriculum.learn(number / 10 if name == "matmul" else 1.0)
    others = [counts[kernel_of(name)] for name in KERNELS if not name.endswith("/matmul")]
    assert counts["matmul"] > 2 * max(others)
    assert min(others) > 10


def test_unknown_and_empty() -> None:
    with pytest.raises(UnknownNameError, match="rounds, progress"):
        make_curriculum("hardest", CHOICES, 0, 0)
    with pytest.raises(InvalidValueError, match="at least one shape"):
        make_curriculum("rounds", [], 0, 0)
