"""The design space: every kernel has one, every walk through it is legal and replays."""

from __future__ import annotations

import pytest
from hash_seeds import Alike

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.decisions import DecisionKind, RandomAgent, StaticAgent, Walk, design_space
from tirgym.harness.decisions.cpu import CpuSpace
from tirgym.harness.decisions.walk import MAX_OPTIONS
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rule_moves import MAX_WORK
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.suites import CORE_V0

TARGET = Target("llvm", "skylake-avx512", 1)
KERNELS = sorted(CORE_V0.kernels)
MATMUL = "tirgym://core-v0/matmul?m=16&n=48&k=32&dtype=float32"


def start(kernel: str, target: Target = TARGET) -> TensorIRProgram:
    return TensorIRProgram.start(load_workload(kernel), target)


def replayed(program: TensorIRProgram) -> TensorIRProgram:
    again = TensorIRProgram.start(program.workload, program.target)
    for step in program.steps:
        again = again.apply(parse_transform(str(step)))
    return again


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_has_a_space_whose_walks_are_legal_and_replay(kernel: str) -> None:
    walk = design_space(start(kernel))
    assert not walk.done
    agents = (StaticAgent(), RandomAgent(1))
    for agent in agents:
        done = walk.follow(agent)
        program = done.program
        assert isinstance(program, TensorIRProgram)
        assert program.facts.work <= MAX_WORK * program.facts.domain
        assert replayed(program).ir_key == program.ir_key
        keys = [answer.key for answer in done.answers]
        assert len(set(keys)) == len(keys)
    assert walk.finish({}).program.ir_key == walk.follow(StaticAgent()).program.ir_key


@pytest.mark.parametrize("kernel", ["matmul", "softmax", "attention"])
def test_threads_add_questions_about_parallel_loops(kernel: str) -> None:
    target = Target("llvm", "skylake-avx512", 4)
    for seed in range(3):
        walk = design_space(start(kernel, target)).follow(RandomAgent(seed))
        assert replayed(walk.program).ir_key == walk.program.ir_key  # type: ignore[arg-type]
    static = design_space(start(kernel, target)).finish()
    assert any(answer.kind is DecisionKind.PARALLEL for answer in static.answers)
    assert any(str(step).startswith("Parallel") for step in static.program.steps)


def test_every_question_is_well_formed_and_has_few_options() -> None:
    kinds = set()
    for kernel in ("matmul", "matmul_bias_gelu", "softmax", "conv2d_padded", "transpose"):
        walk, agent = design_space(start(kernel)), RandomAgent(3)
        while walk.question is not None:
            question = walk.question
            kinds.add(question.kind)
            assert 2 <= len(question.options) <= MAX_OPTIONS
            assert 0 <= question.default < len(question.options)
            values = [option.value for option in question.options]
            assert len(set(values)) == len(values)
            walk = walk.answer(agent.decide(walk.point()).option)
    assert kinds == set(DecisionKind) - {DecisionKind.PARALLEL}


def test_tiles_are_perfect_and_stand_in_the_order_of_the_layout() -> None:
    values = {"c.sketch": 1, "c.tile.j.5": 8, "c.tile.i.5": 4, "c.tile.r.4": 8, "c.tile.j.3": 3}
    walk = design_space(start(MATMUL))
    values |= {"c.tile.i.3": 1, "c.tile.i.1": 2, "c.tile.j.1": 1, "c.vector": 1, "c.init": 0}
    done = walk.finish(values)
    nest = done.program.nest  # type: ignore[attr-defined]
    # i0 j0 i1 r0 j2 r1 i3 j3
    assert [loop.extent for loop in nest.loops] == [2, 2, 2, 4, 3, 8, 4, 8]
    assert len(nest.blocks) == 1


def test_a_write_cache_is_copied_out_inside_the_tile() -> None:
    values = {"c.sketch": 2, "c.tile.j.5": 16, "c.tile.i.5": 4, "c.tile.i.3": 1, "c.tile.i.1": 2}
    done = design_space(start(MATMUL)).finish(values)
    nest = done.program.nest  # type: ignore[attr-defined]
    names = [block.facts.name for block in nest.blocks]
    assert names[-1] == "c_global"
    shared = set(nest.blocks[-1].chain) & set(nest.blocks[-2].chain)
    assert shared


def test_powers_of_two_are_an_option() -> None:
    program = start("matmul")
    walk = Walk.begin(program, CpuSpace(powers=True).tasks(program))
    seen = []
    while walk.question is not None:
        if walk.question.kind is DecisionKind.TILE:
            seen += [option.value for option in walk.question.options]
        walk = walk.answer(walk.question.default)
    assert seen
    assert all(value & (value - 1) == 0 for value in seen)


def test_walks_are_immutable() -> None:
    walk = design_space(start("matmul"))
    before, question = walk.program.ir_key, walk.question
    for option in range(2):
        walk.answer(option).finish()
    assert (walk.program.ir_key, walk.question, walk.answers) == (before, question, ())


def test_options_out_of_range_are_refused_in_one_line() -> None:
    walk = design_space(start("add"))
    for option in (-1, 99):
        with pytest.raises(InvalidValueError, match="option"):
            walk.answer(option)
    done = walk.finish()
    with pytest.raises(InvalidValueError, match="everything is decided"):
        done.answer(0)
    with pytest.raises(InvalidValueError, match="finished"):
        done.point()


def test_values_that_are_no_option_give_way_to_the_nearest() -> None:
    walk = design_space(start("matmul"))
    done = walk.finish({"c.pad.j": 1, "c.sketch": 1, "c.tile.j.5": 23})
    assert next(a.value for a in done.answers if a.key == "c.tile.j.5") == 22


def test_a_backend_without_a_space_is_named() -> None:
    program = start("add", Target("abacus", "beads", 1))
    with pytest.raises(UnknownNameError, match="design space 'abacus'"):
        design_space(program)


_RUN = """
from tirgym.harness.decisions import RandomAgent, design_space
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload
for kernel in ("softmax", "attention", "matmul_bias_gelu"):
    program = TensorIRProgram.start(load_workload(kernel), Target("llvm", "skylake-avx512", 2))
    walk, agent = design_space(program), RandomAgent(4)
    while walk.question is not None:
        point = walk.point()
        print(point.to_json())
        walk = walk.answer(agent.decide(point).option)
    print(walk.program.ir_key, *walk.program.steps)
"""


def test_every_process_asks_the_same_questions(alike: Alike) -> None:
    assert alike(_RUN).count("\n") > 30


def unroll_limits(kernel: str, values: dict[str, int]) -> list[int]:
    """The limits that are offered once everything before is answered by `values`."""
    walk = design_space(start(kernel))
    while walk.question is not None and walk.question.kind is not DecisionKind.UNROLL:
        wanted = values.get(walk.question.key)
        options = [option.value for option in walk.question.options]
        walk = walk.answer(walk.question.default if wanted is None else options.index(wanted))
    assert walk.question is not None
    return [option.value for option in walk.question.options]


def test_unrolling_that_keeps_the_compiler_busy_is_not_offered() -> None:
    assert unroll_limits("row_sum", {}) == [0, 16, 64, 512]
    # a chain of 31 comparisons through memory, one of 16 partial maxima: two minutes in LLVM
    chain = {"top.rfactor": 16, "top_rf.location": 2, "top.location": 0}
    assert unroll_limits("softmax", chain) == [0, 16]


def test_vector_lanes_are_powers_of_two() -> None:
    walk = design_space(start("matmul"))
    while walk.question is not None:
        question = walk.question
        if question.kind is DecisionKind.VECTOR:
            values = [option.value for option in question.options]
            assert values == [2**i for i in range(len(values))]
        walk = walk.answer(question.default)
    assert any(answer.kind is DecisionKind.VECTOR for answer in walk.answers)
