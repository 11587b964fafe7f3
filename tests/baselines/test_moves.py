"""Moves and mutations are walks of legal steps; habits favour what helped."""

from __future__ import annotations

import numpy as np
import pytest
from toy import Turn, toy_start, toy_vocabulary

from tirgym.baselines.moves import Habits, moves, mutations, try_apply
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.kernels_suite.registry import load_workload

pytestmark = pytest.mark.usefixtures("toy_compiler")


@pytest.fixture(scope="module")
def matmul() -> Program:
    llvm = backend("llvm")
    return llvm.start(load_workload("matmul"), llvm.target())


def replayed(program: Program, start: Program) -> Program:
    for step in program.steps:
        start = start.apply(step)
    return start


def test_moves_replay_step_by_step_and_some_have_several(matmul: Program) -> None:
    rng = np.random.default_rng(0)
    made = [p for _, p in moves(matmul, default_vocabulary("llvm"), rng, 60, Habits())]
    assert all(replayed(program, matmul).ir_key == program.ir_key for program in made)
    assert max(len(program.steps) for program in made) > 1
    assert {type(program.steps[0]).__name__ for program in made} > {"Split", "Reorder"}


def test_mutations_change_steps_and_stay_legal(matmul: Program) -> None:
    program = matmul
    for text in ("Split(loop=1, factor=8)", "Reorder(loop=2)", "Unroll(loop=3)"):
        program = program.apply(parse_transform(text))
    rng = np.random.default_rng(0)
    made = list(mutations(program, matmul, default_vocabulary("llvm"), rng, 40))
    assert all(replayed(mutant, matmul).ir_key == mutant.ir_key for mutant in made)
    first = {str(mutant.steps[0]) for mutant in made if len(mutant.steps) == 3}
    assert first >= {"Split(loop=1, factor=2)", "Split(loop=1, factor=4)"}
    assert min(len(mutant.steps) for mutant in made) < 3


def test_mutations_leave_the_steps_before_the_start_alone() -> None:
    start = toy_start().apply(Turn(2, 4))
    program = start.apply(Turn(0, 1)).apply(Turn(1, 1))
    rng = np.random.default_rng(0)
    made = list(mutations(program, start, toy_vocabulary(), rng, 30))
    assert {mutant.steps[0] for mutant in made} == {Turn(2, 4)}


def test_a_move_from_a_program_without_legal_steps_is_none() -> None:
    stuck = toy_start()
    for dial in range(3):
        stuck = stuck.apply(Turn(dial, 4)).apply(Turn(dial, 4))
    rng = np.random.default_rng(0)
    assert list(moves(stuck, toy_vocabulary(), rng, 5, Habits())) == []
    assert try_apply(stuck, Turn(0, 1)) is None


def test_habits_prefer_what_helped_and_never_give_anything_up() -> None:
    habits = Habits()
    for _ in range(50):
        habits.note("Split", helped=True)
        habits.note("Unroll", helped=False)
    assert habits.weight("Split") > habits.weight("Fuse") > habits.weight("Unroll") > 0
