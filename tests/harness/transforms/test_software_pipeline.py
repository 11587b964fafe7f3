"""Software pipelines: shared buffers of several stages, asynchronous copies, and the meaning of both."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from device_programs import played, shared_matmul
from handmade import quick
from schedules import begin
from tensor_cores import SM_80, SM_90, Player, needs_toolkit, on_tensor_cores, product, spread

from tirgym.errors import IllegalTransformError
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.semantic import on_cpu, semantic_check
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.legality import defined_mask
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import random_program
from tirgym.harness.transforms import SLOTS, default_vocabulary, parse_transform
from tirgym.harness.transforms.base import SlotLimits

VOCABULARY = default_vocabulary(
    "cuda", limits=SlotLimits(max_loops=12, max_blocks=6, factors=(4,), **SLOTS["cuda"])
)
PIPELINE = "SoftwarePipeline(loop=4, stages={})"


@pytest.fixture(scope="module")
def cpu() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


@pytest.fixture(scope="module")
def tiles() -> TensorIRProgram:
    """A float32 product through shared memory; its loop 4 copies and computes."""
    return shared_matmul(SM_80, 64)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_shared_memory_has_a_buffer_for_each_stage(
    cpu: LocalEvaluator, tiles: TensorIRProgram, stages: int
) -> None:
    program = played(tiles, PIPELINE.format(stages))
    source = backend("cuda").ir_level(program, "cuda")
    assert f"a_shared_ptr[{stages * 256}]" in source
    assert f"% {stages}" in source or "& " in source
    assert source.count("cp.async.commit_group;") == 1
    assert f"wait_group {stages - 1};" in source
    found = semantic_check(program, cpu, Level.TRAINING)
    assert found.status is Status.SEMANTIC_ONLY, found.message


@needs_toolkit
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: target.arch)
def test_copies_run_beside_tensor_cores(cpu: LocalEvaluator, target: Target) -> None:
    program = played(
        on_tensor_cores(product(size=64), target), "SoftwarePipeline(loop=2, stages=3)"
    )
    sass = backend("cuda").ir_level(program, "sass")
    assert "HMMA" in sass
    assert "LDGSTS" in sass
    found = semantic_check(program, cpu, Level.TRAINING)
    assert found.status is Status.SEMANTIC_ONLY, found.message


def test_the_check_runs_the_pipeline(cpu: LocalEvaluator, tiles: TensorIRProgram) -> None:
    """Not the loop: with copies that come after their use the result is wrong."""
    program = played(tiles, PIPELINE.format(2))
    text = program.text()
    right = '"software_pipeline_stage": [0, 0, 1]'
    assert right in text
    assert "software_pipeline_stage" in on_cpu(program).text()
    order = '"software_pipeline_order": [0, 1, 2]'
    wrong = text.replace(right, right.replace("0, 0, 1", "0, 0, 0"))
    wrong = wrong.replace(order, '"software_pipeline_order": [1, 2, 0]')
    broken = TensorIRProgram(
        program.workload, SM_80, (), new_schedule(tvm.script.from_source(wrong))
    )
    found = semantic_check(broken, cpu, Level.TRAINING)
    assert found.status in (Status.WRONG_RESULT, Status.COMPILE_ERROR), found.message


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_what_is_copied_aligned_is_copied_asynchronously(lanes: int) -> None:
    program = _half(lanes)
    source = backend("cuda").ir_level(played(program, PIPELINE.format(2)), "cuda")
    assert re.search(rf"cp_async_legacy_c[ag]_{lanes * 2}", source)
    assert "a_global_shared_ptr[512]" in source


def test_single_halves_are_copied_by_ordinary_means() -> None:
    """cp.async moves 4 bytes at least."""
    program = played(_half(1), PIPELINE.format(2))
    source = backend("cuda").ir_level(program, "cuda")
    assert "cp.async" not in source
    assert "a_global_shared_ptr[512]" in source


def _half(lanes: int) -> TensorIRProgram:
    """A float16 product whose operand a goes through shared memory in tiles of 16 × 16."""
    player = Player(TensorIRProgram.start(product(size=64), SM_80))
    for place in (0, 2, 4):
        player.play("Split", "product", place, factor=16)
    for place in (1, 3, 2):
        player.play("Reorder", "product", place)
    player.play("Bind", "product", 0, thread="blockIdx.y")
    player.play("Bind", "product", 1, thread="blockIdx.x")
    player.play("CacheRead", "product", read=0)
    player.move("ComputeAt", "a_global", "product", 2)
    player.play("SetScope", "a_global", scope="shared")
    player.play("DecomposeReduction", "product", 2)
    if lanes > 1:
        player.play("Split", "a_global", -1, factor=lanes)
        player.play("Vectorize", "a_global", -1)
    return player.program


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ("SoftwarePipeline(loop=0, stages=2)", "serial"),
        ("SoftwarePipeline(loop=9, stages=2)", "copies ahead"),
        ("SoftwarePipeline(loop=4, stages=5)", "parameters"),
        (f"{PIPELINE.format(2)}; {PIPELINE.format(2)}", "pipeline is frozen"),
        (f"{PIPELINE.format(2)}; Split(loop=9, factor=4)", "pipeline is frozen"),
        (f"{PIPELINE.format(2)}; CacheRead(block=3, read=1)", "pipeline stays whole"),
        (f"{PIPELINE.format(2)}; SetScope(block=1, scope='local')", "pipeline stays whole"),
        (f"{PIPELINE.format(2)}; ComputeAt(block=1, loop=7)", "pipeline stays whole"),
    ],
)
def test_refused(tiles: TensorIRProgram, steps: str, rule: str) -> None:
    *before, last = steps.split("; ")
    program = played(tiles, "; ".join(before))
    with pytest.raises(IllegalTransformError) as caught:
        program.apply(parse_transform(last))
    assert caught.value.rule == rule


def test_the_cpu_has_none() -> None:
    with pytest.raises(IllegalTransformError, match=r"\[shared memory\]"):
        begin("matmul").apply(parse_transform("SoftwarePipeline(loop=0, stages=2)"))


def test_masks_equal_the_definition(tiles: TensorIRProgram) -> None:
    for program in (tiles, played(tiles, PIPELINE.format(2)), _half(8)):
        mask = program.legal_mask(VOCABULARY)
        wrong = np.flatnonzero(mask != defined_mask(program, VOCABULARY))
        assert not len(wrong), [str(VOCABULARY[int(action)]) for action in wrong]


@pytest.mark.parametrize("seed", range(6))
def test_random_schedules_around_them_are_right(
    cpu: LocalEvaluator, tiles: TensorIRProgram, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    start = (tiles, _half(2), on_tensor_cores(product(), SM_80))[seed % 3]
    program = random_program(start, rng, int(rng.integers(0, 3)), VOCABULARY)
    mask = program.legal_mask(VOCABULARY)
    ahead = [a for a in np.flatnonzero(mask) if VOCABULARY[int(a)].name == "SoftwarePipeline"]
    if ahead:
        program = program.apply(VOCABULARY[int(rng.choice(ahead))])
    program = random_program(program, rng, 2, VOCABULARY)
    found = semantic_check(program, cpu, Level.TRAINING)
    assert found.status in (Status.SEMANTIC_ONLY, Status.ILLEGAL), (
        "; ".join(map(str, program.steps)) + f": {found.message}"
    )


# --- vectorised copies and padded rows of shared memory -----------------------------------------


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 4), ("float16", 8), ("int8", 16)])
@needs_toolkit
def test_copies_move_16_bytes_at_a_time(dtype: str, lanes: int) -> None:
    player = _copying(dtype)
    spread(player, "a_global", lanes)
    assert "LDG.E.128" in backend("cuda").ir_level(player.program, "sass")


def test_rows_of_shared_memory_may_be_padded(cpu: LocalEvaluator) -> None:
    player = _copying("float32")
    spread(player, "a_global")
    player.play("StorageAlign", "a_global", factor=64, offset=16)
    plain, padded = (backend("cuda").ir_level(p, "cuda") for p in player.states[-2:])
    assert "a_global_shared_ptr[2048]" in plain
    assert "a_global_shared_ptr[2560]" in padded
    found = semantic_check(player.program, cpu, Level.TRAINING)
    assert found.status is Status.SEMANTIC_ONLY, found.message


def test_copies_fill_16_bytes_at_most() -> None:
    """And fill what a copy may move: eight float32 elements are two."""
    player = _copying("float32")
    player.play("Split", "a_global", -1, factor=8)
    with pytest.raises(IllegalTransformError, match=r"\[vector types\]"):
        player.play("Vectorize", "a_global", -1)


def _copying(dtype: str) -> Player:
    """A product whose operand a goes through shared memory, a block of threads for 32 rows."""
    total = {"int8": "int32"}.get(dtype, dtype)
    player = Player(TensorIRProgram.start(product(dtype, total, 64), SM_80))
    player.play("Split", "product", 0, factor=32)
    player.play("Bind", "product", 0, thread="blockIdx.x")
    player.play("CacheRead", "product", read=0)
    player.move("ComputeAt", "a_global", "product", 0)
    player.play("SetScope", "a_global", scope="shared")
    player.play("Bind", "product", 1, thread="threadIdx.x")
    return player
