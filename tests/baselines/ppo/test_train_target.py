"""What a training plays on: this machine's arch, one that is named, or the one of a store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import fill_with_walks
from small import SMALL, TARGET

for package in ("sb3_contrib", "torch_geometric", "safetensors"):
    pytest.importorskip(package)

from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.store import Store

ADD = SMALL["add"]
OTHER = replace(TARGET, arch="x86-64-v2")


@pytest.fixture
def both(tmp_path: Path) -> str:
    """Path of a store with numbers of two archs."""
    path = tmp_path / "both.sqlite"
    with closing(Store(path)) as store:
        for target in (TARGET, OTHER):
            fill_with_walks(store, [ADD], 3, target=target)
    return str(path)


def test_a_named_arch_is_played_on() -> None:
    args = TrainArgs(kernels=("add",), arch=OTHER.arch)
    assert args.target() == OTHER
    assert args.spec().make().target == args.eval_spec().make().target == OTHER
    assert TrainArgs(kernels=("add",)).spec().make().target == backend("llvm").target()


def test_of_two_archs_in_a_store_one_is_named(both: str) -> None:
    args = TrainArgs(kernels=(ADD,), eval_kernels=(ADD,), reward="replay", store=both)
    for target in (TARGET, OTHER):
        named = replace(args, arch=target.arch)
        assert (named.target(), named.spec().make().target) == (target, target)
    with pytest.raises(InvalidValueError, match="x86-64-v2"):
        replace(args, arch="haswell").target()


def test_a_store_without_the_named_arch_is_refused() -> None:
    args = TrainArgs(reward="replay", store="core-v0", arch=OTHER.arch)
    assert replace(args, arch=None).target().arch == "znver3"
    with pytest.raises(InvalidValueError, match="znver3, of which the store has numbers"):
        args.spec()


def test_a_training_of_before_has_no_arch() -> None:
    said = TrainArgs(seed=3).to_dict()
    del said["arch"]
    assert TrainArgs.from_dict(said) == TrainArgs(seed=3)
    for odd in ({**said, "arc": "znver3"}, {name: said[name] for name in said if name != "seed"}):
        with pytest.raises(ValueError, match=r"missing or unexpected: (arc|seed)$"):
            TrainArgs.from_dict(odd)
