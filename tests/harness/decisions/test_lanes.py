"""Which loop runs along the lanes, and what is copied, packed and padded for it."""

from __future__ import annotations

import pytest

from tirgym.harness.decisions import Question, Walk, design_space
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

TARGET = Target("llvm", "skylake-avx512", 1)


def walk_of(kernel: str) -> Walk:
    return design_space(TensorIRProgram.start(load_workload(kernel), TARGET))


def question(walk: Walk, key: str) -> Question | None:
    """The question of that key on the way of static choices, None if it is not asked."""
    while walk.question is not None and walk.question.key != key:
        walk = walk.answer(walk.question.default)
    return walk.question


def static(kernel: str) -> dict[str, int]:
    return {answer.key: answer.value for answer in walk_of(kernel).finish().answers}


def matmul(m: int, n: int, k: int) -> str:
    return f"tirgym://core-v0/matmul?m={m}&n={n}&k={k}&dtype=float32"


def test_a_convolution_with_short_rows_runs_over_its_filters() -> None:
    uri = "tirgym://core-v0/conv2d?c=32&h=30&w=30&o=32&k=3&dtype=float32"
    asked = question(walk_of(uri), "out.lanes")
    assert asked is not None
    assert asked.options[asked.default].label == "f of 32, a copy of weight, out across"
    program = walk_of(uri).finish().program
    layouts = [str(step) for step in program.steps if str(step).startswith("TransformLayout")]
    assert len(layouts) == 2
    wide = "tirgym://core-v0/conv2d?c=12&h=30&w=50&o=24&k=3&dtype=float32"
    asked = question(walk_of(wide), "out.lanes")
    assert asked is not None
    assert asked.options[asked.default].label == "j of 48"


def test_a_transposed_operand_is_copied_once_even_if_it_is_read_twice() -> None:
    program = walk_of("syrk").finish().program
    steps = [str(step).split("(")[0] for step in program.steps]
    assert steps[:2] == ["CacheRead", "TransformLayout"]
    assert steps.count("CacheRead") == 1


@pytest.mark.parametrize("kernel", ["attention", "batch_matmul", "conv2d", "syrk"])
def test_what_a_lane_promises_to_copy_is_copied(kernel: str) -> None:
    walk, asked = walk_of(kernel), 0
    while walk.question is not None:
        question = walk.question
        if question.key.endswith(".lanes"):
            asked += 1
            for number, option in enumerate(question.options):
                _, _, copied = option.label.partition("a copy of ")
                wanted = len(copied.removesuffix(" across").split(", ")) if copied else 0
                made = walk.answer(number).program.steps[len(walk.program.steps) :]
                swaps = [step for step in made if str(step).startswith("TransformLayout")]
                assert len(swaps) == wanted, (question.key, option.label)
        walk = walk.answer(question.default)
    assert asked


def test_asking_for_costs_does_not_change_what_comes_of_an_answer() -> None:
    plain, costed = walk_of("attention"), walk_of("attention")
    model = StaticCostModel()
    while plain.question is not None:
        assert costed.question == plain.question
        option = len(plain.question.options) - 1
        assert len(costed.costs(model)) == option + 1
        plain, costed = plain.answer(option), costed.answer(option)
        assert costed.program.steps == plain.program.steps
        assert costed.program.ir_key == plain.program.ir_key
    assert costed.done


def test_the_lanes_are_innermost_whatever_else_is_answered() -> None:
    for values in ({"c.lanes": 0}, {"c.lanes": 0, "c.sketch": 2}, {"c.lanes": 0, "c.sketch": 1}):
        walk = walk_of(matmul(64, 48, 32))
        program = walk.finish(values).program
        assert isinstance(program, TensorIRProgram)
        update = next(b for b in program.nest.blocks if b.facts.name == "c_update")
        innermost = program.nest.loops[update.chain[-1]]
        (iterator,) = [i for i, b in enumerate(update.bindings) if innermost.var in b.coefficients]
        assert iterator == 0


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((250, 264, 240), {"c.pad.j": 32}),
        ((256, 256, 256), {}),
        ((127, 131, 113), {"c.pad.j": 16, "c.pad.i": 4}),
        ((64, 100, 64), {"c.pad.j": 16}),
    ],
)
def test_padding_is_asked_where_vectors_or_rows_do_not_divide(
    shape: tuple[int, int, int], expected: dict[str, int]
) -> None:
    answers = static(matmul(*shape))
    assert {key: value for key, value in answers.items() if ".pad." in key} == expected


def test_padding_can_be_refused_and_changes_the_extent() -> None:
    walk = walk_of(matmul(64, 100, 64))
    kept = walk.finish({"c.pad.j": 1}).program
    padded = walk.finish({"c.pad.j": 16}).program
    assert not any(str(step).startswith("PadAxis") for step in kept.steps)
    assert any(str(step) == "PadAxis(block=0, axis=1, factor=16)" for step in padded.steps)


def test_the_crop_of_padding_is_read_through_by_what_follows() -> None:
    uri = "tirgym://core-v0/matmul_bias_gelu?m=64&n=100&k=64&dtype=float32"
    program = walk_of(uri).finish().program
    assert isinstance(program, TensorIRProgram)
    names = [block.facts.name for block in program.nest.blocks]
    assert "b_pad" in names
    assert "product_pad" not in names


def test_large_operands_are_packed_panel_by_panel() -> None:
    assert static(matmul(512, 512, 512))["c.pack"] == 1
    assert static(matmul(128, 128, 128))["c.pack"] == 0
    program = walk_of(matmul(512, 512, 512)).finish().program
    assert isinstance(program, TensorIRProgram)
    copy = next(b for b in program.nest.blocks if b.facts.name == "b_global")
    update = next(b for b in program.nest.blocks if b.facts.name == "c_update")
    assert set(copy.chain) & set(update.chain)


def test_contractions_with_many_results_are_not_asked_for_partial_sums() -> None:
    assert "c.rfactor" not in static(matmul(64, 48, 32))
    assert "c.rfactor" in static(matmul(4, 8, 256))


def test_sums_over_a_single_element_can_be_decided() -> None:
    uri = "tirgym://core-v0/conv2d?c=1&h=5&w=4&o=1&k=1&dtype=float32"
    assert walk_of(uri).finish().done


def test_a_contraction_keeps_its_loops_and_what_it_reads_is_computed_once() -> None:
    answers = static("attention")
    assert answers["dot.location"] == 0
    assert answers["share.inline"] == 0
    assert answers["score.inline"] == 1  # no contraction reads it


def test_the_longest_sum_leaves_its_loops_first_where_blocks_are_scarce() -> None:
    answers = [answer.key for answer in walk_of("attention").finish().answers]
    inits = [key for key in answers if key.endswith(".init")]
    assert set(inits[:2]) == {"dot.init", "out.init"}
