"""The store that ships: what the docs say of it, and that the compiler still asks its questions."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tirgym.envs.decision import DecisionEnv
from tirgym.envs.replay import replay_workloads
from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.decisions import design_space
from tirgym.harness.shipped_store import shipped_store
from tirgym.harness.store import SETTLED, Store, open_store
from tirgym.harness.store_contents import Contents, cpu_note, read_contents
from tirgym.kernels_suite.registry import list_kernels, load_workload, split_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store() -> Store:
    """`core-v0`."""
    return Store(shipped_store("core-v0"), read_only=True)


@pytest.fixture(scope="module")
def contents(store: Store) -> list[Contents]:
    """What it holds."""
    return read_contents(store)


def test_it_is_small_and_says_what_is_in_it(store: Store, contents: list[Contents]) -> None:
    packed = Path(str(files("tirgym") / "data" / "core-v0.sqlite.xz"))
    assert packed.stat().st_size < 10e6
    facts = json.loads(packed.with_name("core-v0.json").read_text())
    counts: Counter[str] = Counter()
    for held in contents:
        counts.update({status.value: number for status, number in held.verdicts.items()})
    assert facts["verdicts"] == dict(counts)
    assert facts["walks"] == sum(held.walks for held in contents)


def test_it_holds_what_the_docs_say(contents: list[Contents]) -> None:
    text = (ROOT / "docs/replay.md").read_text()
    said = re.search(r"([0-9,]+) gated evaluations and ([0-9,]+) walks", text)
    assert said is not None
    claimed = [int(number.replace(",", "")) for number in said.groups()]
    assert sum(sum(held.verdicts.values()) for held in contents) >= claimed[0]
    assert sum(held.walks for held in contents) >= claimed[1]


def test_every_kernel_of_the_suite_is_there_in_its_split(contents: list[Contents]) -> None:
    held = {load_workload(c.context.workload).kernel.name: c for c in contents}
    assert set(held) == {kernel.name for kernel in list_kernels("core-v0")}
    for name, found in held.items():
        assert found.split == split_of(load_workload(found.context.workload).kernel)
        assert found.walks >= 2, name
    train = replay_workloads("core-v0", "train")
    assert {split_of(load_workload(uri).kernel) for uri in train} == {"train"}


def test_machine_cpu_target_and_versions_are_stated(store: Store, contents: list[Contents]) -> None:
    (machine,) = {held.context.machine for held in contents}
    (target,) = {held.context.target for held in contents}
    assert target.num_threads == 1
    assert store.notes()[cpu_note(machine)] not in ("", "unknown")
    assert all("apache-tvm=" in held.context.versions for held in contents)


def test_verdicts_stand_and_programs_are_known(store: Store) -> None:
    made = {program.key for program in store.programs()}
    for record in store.records():
        assert record.status in SETTLED or record.status == "illegal"
        assert record.key in made


@pytest.mark.parametrize("kernel", ["add", "softmax", "matmul", "attention"])
def test_stored_walks_still_lead_to_their_programs(
    store: Store, contents: list[Contents], kernel: str
) -> None:
    (context,) = [c.context for c in contents if f"/{kernel}?" in c.context.workload]
    root = design_space(backend("llvm").start(load_workload(context.workload), context.target))
    for walk in store.walks(context)[:: 1 if kernel == "add" else 8]:
        made = root.finish(dict(walk.path))
        assert tuple((answer.key, answer.value) for answer in made.answers) == walk.path
        assert made.program.ir_key == walk.ir_key


def test_agents_train_on_it_without_measuring() -> None:
    env = DecisionEnv(replay_workloads("core-v0", "train"), reward="replay", store="core-v0")
    rng = np.random.default_rng(0)
    for seed in range(4):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            action = rng.choice(np.flatnonzero(info["action_mask"]))
            _, _, over, _, info = env.step(action)
        assert info["replayed_from"]
        assert info["status"] in ("passed", "too_slow")


def test_it_is_never_written_to() -> None:
    with pytest.raises(InvalidValueError, match="a store that ships is only read"):
        open_store("core-v0")
