"""Macros as actions of the Schedule environments."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import FakeCost
from schedule_envs import SPLIT, legal, static
from small import SMALL

from tirgym.harness.macros import VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform


@pytest.mark.parametrize("name", VOCABULARY_NAMES)
def test_vocabularies_by_name_fix_the_action_table(name: str) -> None:
    env = static(vocabulary=name)
    table = named_vocabulary(name)
    assert env.action_space.n == len(table) + 1
    assert env.vocabulary_digest == table.digest
    observation, _ = env.reset(seed=0)
    assert observation["action_node"].shape == observation["action_mask"].shape == (len(table) + 1,)


def test_a_macro_is_one_step_of_several_transforms() -> None:
    env = static(vocabulary="both", cost=FakeCost())
    env.reset(seed=0)
    before = env.program
    observation, reward, _, _, info = env.apply(
        "MultiLevelTile(block=0, rows=4, columns=16, terms=4)"
    )
    assert (info["steps"], info["legal"]) == (1, 1)
    assert info["transform"] == "MultiLevelTile(block=0, rows=4, columns=16, terms=4)"
    made = [str(step) for step in env.program.steps]
    assert len(made) > 4
    assert reward == pytest.approx(np.log(1 / 0.9) * len(made))  # paid for what they are made of
    trace = env.trace()
    assert list(trace.transforms) == made
    assert env.observation_space.contains(observation)
    again = before
    for text in trace.transforms:
        again = again.apply(parse_transform(text))
    assert again.ir_key == trace.ir_key


def test_the_key_of_the_final_program_stands_in_the_last_info() -> None:
    env = static()
    _, info = env.reset(seed=0)
    assert info["ir_key"] == ""
    _, _, _, _, info = env.apply(SPLIT)
    assert info["ir_key"] == ""
    _, _, terminated, _, info = env.step(env.action_space.stop)
    assert terminated
    assert info["ir_key"] == env.program.ir_key


def test_an_illegal_macro_is_a_penalised_no_op() -> None:
    env = static(vocabulary="macro")
    env.reset(seed=0)
    key = env.program.ir_key
    _, reward, terminated, _, info = env.apply("FuseParallel(block=0, count=1)")
    assert reward < 0
    assert (terminated, info["legal"], env.program.ir_key) == (False, 0, key)
    assert "one thread" in info["message"]


def test_macros_target_the_node_that_they_are_about() -> None:
    env = static(vocabulary="macro", observation="graph")
    _, info = env.reset(seed=0)
    nodes = info["action_node"]
    blocks = [env.action_space.from_text(f"VectorizeInner(block={b}, lanes=8)") for b in (0, 1)]
    whole = env.action_space.from_text("DecomposeAll()")
    program = env.program
    assert isinstance(program, TensorIRProgram)
    assert nodes[blocks[0]] == 1 + len(program.nest.loops)
    assert nodes[blocks[1]] == -1  # there is one block
    assert nodes[whole] == nodes[-1] == 0  # the program, as STOP


@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_masks_agree_with_step_for_macros(kernel: str) -> None:
    env = static(kernel=SMALL[kernel], vocabulary="macro", max_steps=1000)
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(3):
        state, masks = env.state, env.action_masks()
        for action in rng.permutation(env.action_space.n - 1)[:80]:
            env.set_state(state)
            assert env.step(action)[4]["legal"] == masks[action]
        env.set_state(state)
        env.step(rng.choice(legal(env)))
