"""Tensor cores: products made by transforms alone run on them, mean what they say, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from handmade import quick
from tensor_cores import (
    SM_80,
    SM_90,
    Player,
    needs_toolkit,
    on_tensor_cores,
    player_on_tensor_cores,
    product,
)

from tirgym.errors import IllegalTransformError
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.semantic import semantic_check
from tirgym.harness.static_counts import nest_counts
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.legality import defined_mask
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import SLOTS, default_vocabulary, parse_transform
from tirgym.harness.transforms.base import SlotLimits
from tirgym.kernels_suite.families.half_precision import MATMUL
from tirgym.kernels_suite.kernel import Workload

HALF = Workload.of(MATMUL, {"m": 32, "n": 32, "k": 32})
KINDS = [
    ("float16", "float32", False),
    ("float16", "float32", True),
    ("float16", "float16", False),
    ("int8", "int32", False),
]
VOCABULARY = default_vocabulary(
    "cuda", limits=SlotLimits(max_loops=14, max_blocks=7, factors=(4,), **SLOTS["cuda"])
)


@pytest.fixture(scope="module")
def cpu() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


@pytest.fixture(scope="module")
def states() -> list[TensorIRProgram]:
    """What a float16 product goes through."""
    return player_on_tensor_cores(HALF, SM_80).states


@needs_toolkit
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: target.arch)
def test_a_float16_product_runs_on_tensor_cores(target: Target) -> None:
    program, compiler = on_tensor_cores(HALF, target), backend("cuda")
    source = compiler.ir_level(program, "cuda")
    assert "wmma::mma_sync" in source
    assert "grid (2, 2, 1) block (32, 1, 1)" in source
    assert "wmma.mma.sync" in compiler.ir_level(program, "ptx")
    assert "HMMA.16816.F32" in compiler.ir_level(program, "sass")


@needs_toolkit
@pytest.mark.parametrize(("operand", "total", "transposed"), KINDS)
def test_other_types_and_layouts_do_too(operand: str, total: str, transposed: bool) -> None:
    program = on_tensor_cores(product(operand, total, 32, transposed), SM_80, transposed, False)
    assert ("IMMA" if operand == "int8" else "HMMA") in backend("cuda").ir_level(program, "sass")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("operand", "total", "transposed"), KINDS)
def test_they_mean_the_product(
    cpu: LocalEvaluator, operand: str, total: str, transposed: bool, shared: bool
) -> None:
    workload = product(operand, total, 32, transposed)
    found = semantic_check(
        on_tensor_cores(workload, SM_80, transposed, shared), cpu, Level.TRAINING
    )
    assert found.status is Status.SEMANTIC_ONLY, found.message


def test_half_way_states_are_built_as_loops(
    cpu: LocalEvaluator, states: list[TensorIRProgram]
) -> None:
    """A fragment that ordinary code touches too lies in memory of each thread until then."""
    compiler = backend("cuda")
    for program in states[-5:]:
        assert semantic_check(program, cpu, Level.TRAINING).status is Status.SEMANTIC_ONLY
        source = compiler.ir_level(program, "cuda")
        assert ("wmma::" in source) == (program is states[-1]), str(program.steps[-1])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"row_major")\n', '"col_major")\n'),
        ("T.float32(0.0))", "T.float32(1.0))"),
        (", b_1.data, b_1.elem_offset", ", a_1.data, b_1.elem_offset"),
    ],
)
def test_what_the_instructions_say_is_judged(
    cpu: LocalEvaluator, states: list[TensorIRProgram], old: str, new: str
) -> None:
    """Not the nest that they replaced: a wrong layout, value or operand shows."""
    text = states[-1].text()
    assert old in text
    mod = tvm.script.from_source(text.replace(old, new, 1))
    broken = TensorIRProgram(HALF, SM_80, (), new_schedule(mod))
    assert semantic_check(broken, cpu, Level.TRAINING).status is Status.WRONG_RESULT


def test_a_product_of_what_was_loaded_in_another_layout_is_refused(
    states: list[TensorIRProgram],
) -> None:
    steps = [
        str(step).replace("wmma_load_b", "wmma_load_b_transposed") for step in states[-1].steps
    ]
    program = states[-6]
    for step in steps[len(program.steps) : -2]:
        program = program.apply(parse_transform(step))
    with pytest.raises(IllegalTransformError, match="like the intrinsic"):
        program.apply(parse_transform(steps[-2]))


@pytest.mark.parametrize(("backend_name", "arch"), [("rocm", "gfx942"), ("llvm", "cascadelake")])
def test_other_targets_refuse(backend_name: str, arch: str, states: list[TensorIRProgram]) -> None:
    program = TensorIRProgram(HALF, Target(backend_name, arch, 1), (), states[-6].schedule)
    with pytest.raises(IllegalTransformError, match="the target does not have the instruction"):
        program.apply(states[-5].steps[-1])


def test_float32_is_refused() -> None:
    player = Player(TensorIRProgram.start(product("float32", "float32"), SM_80))
    player.play("CacheRead", "product", read=0)
    for place in (0, 2):
        player.play("Split", "a_global", place, factor=16)
    player.play("Reorder", "a_global", 1)
    with pytest.raises(IllegalTransformError, match="like the intrinsic"):
        player.play("Tensorize", "a_global", -2, intrinsic="wmma_load_a")


@pytest.mark.parametrize(
    ("rule", "kind", "block", "place", "rest"),
    [
        ("fragments stay", "CacheRead", "a_global_global_o", None, {"read": 0}),
        ("fragments stay", "SetScope", "product_global_o", None, {"scope": "local"}),
        ("fragments stay", "StorageAlign", "a_global", None, {"factor": 32, "offset": 8}),
    ],
)
def test_what_instructions_use_stays(
    states: list[TensorIRProgram], rule: str, kind: str, block: str, place: int | None, rest: Any
) -> None:
    with pytest.raises(IllegalTransformError) as caught:
        Player(states[-1]).play(kind, block, place, **rest)
    assert caught.value.rule == rule


def test_rows_may_be_padded_by_whole_tiles(
    cpu: LocalEvaluator, states: list[TensorIRProgram]
) -> None:
    player = Player(states[-1])
    player.play("StorageAlign", "a_global", factor=32, offset=0)
    assert "a_global_shared_ptr[0])), 32)" in backend("cuda").ir_level(player.program, "cuda")
    found = semantic_check(player.program, cpu, Level.TRAINING)
    assert found.status is Status.SEMANTIC_ONLY, found.message


def test_a_warp_has_32_threads_along_its_axis() -> None:
    """Whichever comes first, the threads or the instruction."""
    steps = player_on_tensor_cores(product(), SM_80, False, False).states
    sixteen = "Bind", "product_global", 2
    player = Player(steps[-6])
    player.play(*sixteen, thread="threadIdx.x")
    with pytest.raises(IllegalTransformError, match=r"\[whole warps\]"):
        player.play("Tensorize", "a_global", -2, intrinsic="wmma_load_a")
    with pytest.raises(IllegalTransformError, match=r"\[device limits\]"):
        Player(steps[-2]).play(*sixteen, thread="threadIdx.x")


def test_kernels_without_threads_get_a_warp(cpu: LocalEvaluator) -> None:
    program = on_tensor_cores(product("float16", "float32"), SM_80, False, False)
    assert "threadIdx.x" not in program.text()
    assert completed(program).text().count('thread="threadIdx.x"') == 1
    assert "block (32, 1, 1)" in backend("cuda").ir_level(program, "cuda")


def test_work_is_counted(states: list[TensorIRProgram]) -> None:
    assert nest_counts(states[-1].nest).flops >= 2 * 32**3


def test_masks_equal_the_definition(states: list[TensorIRProgram]) -> None:
    for program in states[-6:]:
        program = TensorIRProgram(HALF, SM_80, (), new_schedule(program.mod))
        mask = program.legal_mask(VOCABULARY)
        wrong = np.flatnonzero(mask != defined_mask(program, VOCABULARY))
        assert not len(wrong), [str(VOCABULARY[int(action)]) for action in wrong]


@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_around_them_are_right(
    cpu: LocalEvaluator, states: list[TensorIRProgram], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    program = states[-int(rng.integers(1, 8))]
    for _ in range(4):
        mask = program.legal_mask(VOCABULARY)
        tensorize = [a for a in np.flatnonzero(mask) if VOCABULARY[int(a)].name == "Tensorize"]
        if tensorize and rng.random() < 0.5:
            step = VOCABULARY[int(rng.choice(tensorize))]
        else:
            step = draw_transform(VOCABULARY, mask, rng)
        assert step is not None
        program = program.apply(step)
    found = semantic_check(program, cpu, Level.TRAINING)
    assert found.status in (Status.SEMANTIC_ONLY, Status.ILLEGAL), (
        "; ".join(map(str, program.steps)) + f": {found.message}"
    )
