"""What an environment tells about a step when asked, and what it says to an unknown argument."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import FakeCost
from gymnasium.error import ResetNeeded
from gymnasium.vector import SyncVectorEnv
from small import LIMITS, SMALL, TARGET, make

import tirgym
from tirgym.envs import ENVIRONMENTS, DecisionEnv, Explain, ScheduleEnv
from tirgym.errors import UnknownNameError
from tirgym.harness.account import account
from tirgym.harness.transforms import default_vocabulary

SPLIT = "Split(loop=1, factor=4)"


def schedule(**keywords: Any) -> ScheduleEnv:
    made: dict[str, Any] = {
        "kernel": SMALL["matmul"],
        "reward": "static",
        "cost": FakeCost(),
        "vocabulary": default_vocabulary(limits=LIMITS),
        "arch": TARGET.arch,
    }
    return ScheduleEnv(**{**made, **keywords})


def test_a_step_is_explained_when_asked() -> None:
    env = schedule()
    with pytest.raises(ResetNeeded):
        env.explain()
    env.reset(seed=0)
    assert env.explain() is None
    env.apply(SPLIT)
    found = env.explain()
    assert found is not None
    assert found.after.values == account(make(SMALL["matmul"], SPLIT)).values
    assert "loops rise from 3 to 4" in [sentence.text for sentence in found.sentences]
    assert found == tirgym.explain(make(SMALL["matmul"]), make(SMALL["matmul"], SPLIT))


def test_an_illegal_action_changed_nothing() -> None:
    env = schedule()
    env.reset(seed=0)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    env.step(illegal)
    assert env.explain() is None


def test_an_answer_is_explained() -> None:
    env = DecisionEnv(kernel=SMALL["softmax"], reward="static", arch=TARGET.arch)
    env.reset(seed=0)
    while env.explain() is None or not env.explain().changes:  # type: ignore[union-attr]
        point = env.point()
        before = env.program
        env.step(len(point.options) - 1)
    found = env.explain()
    assert found is not None
    assert found.before.values == account(before).values


def test_the_wrapper_tells_each_step() -> None:
    env = Explain(schedule())
    assert env.quantities == ()
    _, info = env.reset(seed=0)
    assert info["explanation"] == ""
    loops = env.quantities.index("loops")
    assert info["account"][loops].tolist() == [3.0, 3.0]
    split = env.unwrapped.action_space.from_text(SPLIT)  # type: ignore[attr-defined]
    info = env.step(split)[4]
    assert info["account"][loops].tolist() == [3.0, 4.0]
    assert "loops rise from 3 to 4" in info["explanation"].splitlines()
    illegal = int(np.flatnonzero(~env.unwrapped.action_masks())[0])  # type: ignore[attr-defined]
    info = env.step(illegal)[4]
    assert info["account"][loops].tolist() == [4.0, 4.0]
    assert info["explanation"] == ""
    assert env.reset(seed=0)[1]["account"][loops].tolist() == [3.0, 3.0]


def test_the_wrapper_keeps_the_shape_of_infos() -> None:
    env = Explain(schedule())
    infos = [env.reset(seed=1)[1]]
    generator = np.random.default_rng(0)
    for _ in range(6):
        legal = np.flatnonzero(infos[-1]["action_mask"][:-1])
        infos.append(env.step(int(generator.choice(legal)))[4])
    assert len({tuple(info) for info in infos}) == 1
    assert {info["account"].shape for info in infos} == {(len(env.quantities), 2)}
    assert {info["account"].dtype for info in infos} == {np.dtype(np.float64)}
    vector = SyncVectorEnv([lambda: Explain(schedule()), lambda: Explain(schedule())])
    stacked = vector.reset(seed=3)[1]
    assert stacked["account"].shape == (2, len(env.quantities), 2)
    vector.close()


def test_nothing_is_analysed_unless_asked() -> None:
    """Neither the account nor what it needs is even imported."""
    code = (
        "import sys, gymnasium, tirgym\n"
        f"env = gymnasium.make('tirgym/ScheduleStatic-v0', kernel={SMALL['matmul']!r})\n"
        "env.reset(seed=0)\n"
        "env.step(0)\n"
        "print([name for name in sys.modules if 'account' in name or 'explain' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_an_unknown_argument_is_answered_with_the_accepted_ones(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        gymnasium.make(name, nope=1)
    text = str(caught.value)
    assert "nope" in text
    assert "\n" not in text
    assert "kernel, shape, backend" in text
    with pytest.raises(UnknownNameError, match="did you mean 'max_steps'"):
        gymnasium.make(name, max_step=3)


def test_type_errors_of_arguments_are_not_swallowed() -> None:
    """Only names are looked at: what goes wrong inside stays what it is."""
    with pytest.raises(TypeError, match="not supported between"):
        schedule(time_limit_s="many")


def test_subclasses_and_copies_still_work() -> None:
    class Own(ScheduleEnv):
        def __init__(self, mine: int, **keywords: Any) -> None:
            self.mine = mine
            super().__init__(**keywords)

    env = Own(3, kernel=SMALL["add"], reward="static", arch=TARGET.arch)
    assert env.mine == 3
    env.reset(seed=0)
    assert env.fork().program is env.program
    with pytest.raises(UnknownNameError, match="recorder"):
        schedule(rewards="static")
