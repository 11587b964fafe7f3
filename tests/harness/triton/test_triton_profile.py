"""The static profile and cost model of compiled kernels, and what single accesses look like."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tirgym.errors import BackendUnavailableError, IllegalTransformError, InvalidValueError
from tirgym.harness import buffers, gate, judge
from tirgym.harness.backend import backend
from tirgym.harness.target import Target
from tirgym.harness.transforms import load_transform
from tirgym.harness.transforms.split import Split
from tirgym.harness.triton import cost
from tirgym.harness.triton.amdgcn import amd_instructions
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.cost import TritonCostModel
from tirgym.harness.triton.executor import executable
from tirgym.harness.triton.kept import sources
from tirgym.harness.triton.memory_facts import MemoryFacts
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.profile import triton_profile
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import CompileRequest
from tirgym.harness.triton.resources import resources_of
from tirgym.harness.triton.sass import hot_loop, mix_of
from tirgym.harness.triton.work import work_of
from tirgym.kernels_suite import problem
from tirgym.kernels_suite.families import reduction
from tirgym.kernels_suite.registry import load_workload

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

SOFTMAX = load_workload("triton-v0/softmax", {"m": 512, "n": 1024})
MATMUL = load_workload("triton-v0/matmul", {"m": 256, "n": 256, "k": 256})
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64}
FACTS = "tirgym.harness.triton.memory_facts:memory_facts"


@pytest.fixture(scope="module")
def softmax() -> TritonProgram:
    return TritonProgram.start(SOFTMAX, Target("triton", "sm_90"))


def test_a_profile_counts_what_can_be_counted_by_hand(softmax: TritonProgram) -> None:
    profile = triton_profile(softmax)
    matrix = 512 * 1024 * 4
    assert profile.programs == 512
    assert profile.compulsory_bytes == 2 * matrix
    assert (profile.work.read_bytes, profile.work.written_bytes) == (matrix, matrix)
    assert profile.work.matrix_flops == {}
    assert profile.work.special == 2 * 512 * 1024
    assert profile.work.trips == 1
    assert profile.resources.spill_stores == 0
    assert 0 < profile.resources.registers <= 255
    assert profile.resources.occupancy.blocks * 8 == profile.resources.occupancy.warps
    assert profile.roofline.bound == "memory"
    assert profile.roofline.floor_us == pytest.approx(2 * matrix / 3350e3)
    assert profile.predicted.total_us >= profile.roofline.memory_us
    assert profile.mix["LDG"] > 0
    load, store = profile.accesses
    assert (load.operation, load.tensor, load.nbytes) == ("tt.load", "x", 4096)
    assert (load.vector_bytes, load.efficiency) == (16, 1.0)
    assert (store.operation, store.tensor) == ("tt.store", "out")
    assert json.loads(json.dumps(asdict(profile)))["programs"] == 512


def test_the_work_of_a_matmul_is_its_tiles() -> None:
    request = CompileRequest.of(MATMUL, "sm_80", SMALL, until="ttgir")
    work = work_of(compile_here(request).texts["ttir"], request.launch)
    assert work.matrix_flops == {"f16": 2 * 256**3}
    assert work.trips == 256 // 32
    assert work.read_bytes == 16 * 8 * (64 * 32 + 32 * 64) * 2
    assert work.written_bytes == 256 * 256 * 2


def test_tensor_memory_bounds_the_blocks_of_a_unit() -> None:
    request = CompileRequest.of(MATMUL, "sm_100", {**SMALL, "BLOCK_M": 128, "BLOCK_N": 256})
    held = resources_of(compile_here(request), request.gpu)
    assert held.tmem_columns >= 256  # one column of 128 rows for each of the tile's
    assert 0 < held.occupancy.blocks <= 512 // held.tmem_columns
    hopper = CompileRequest.of(MATMUL, "sm_90", SMALL)
    assert resources_of(compile_here(hopper), hopper.gpu).tmem_columns == 0


def test_scattered_accesses_and_bank_conflicts_show() -> None:
    stock = CompileRequest.of(MATMUL, "sm_80", SMALL, until="ttgir")
    whole = stock.changed(pipeline=stock.passes.without("ttgpuir.prefetch"))
    text = compile_here(whole).texts["ttgir"]
    plain = text.replace("maxPhase = 4", "maxPhase = 1").replace("maxPhase = 8", "maxPhase = 1")
    assert plain != text
    loose = stock.changed(pipeline=stock.passes.without("ttgpuir.coalesce"))
    with CompilePool(2) as pool:
        swizzled, unswizzled, scattered = pool.call_many(
            FACTS, [whole, whole.changed(ir=("ttgir", plain)), loose]
        )
    for facts in (swizzled, unswizzled, scattered):
        assert isinstance(facts, MemoryFacts), facts
    assert {access.conflicts for access in swizzled.shared} == {0}
    assert max(access.conflicts or 0 for access in unswizzled.shared) > 0
    assert {access.vector_bytes for access in swizzled.accesses} == {16}
    assert min(access.efficiency for access in swizzled.accesses) == 1.0
    assert min(access.vector_bytes for access in scattered.accesses) < 16


def test_amd_kernels_have_resources_and_a_mix() -> None:
    request = CompileRequest.of(SOFTMAX, "gfx942")
    compiled = compile_here(request)
    held = resources_of(compiled, request.gpu)
    assert 0 < held.registers <= 512
    assert held.scalar_registers > 0
    assert held.spill_stores == 0
    assert held.occupancy.blocks > 0
    instructions, _ = amd_instructions(compiled.texts["amdgcn"])
    assert mix_of(instructions)["v_exp_f32"] > 0


def test_the_hot_loop_of_an_amd_kernel_has_its_matrix_instructions() -> None:
    instructions, labels = amd_instructions(
        "f:\n\ts_load_dwordx2 s[0:1], s[2:3], 0x0\n.LBB0_1:\n\tv_add_f32_e32 v0, v1, v2 ; note\n"
        "\ts_cbranch_scc1 .LBB0_1\n.LBB0_2:\n\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0\n"
        "\ts_nop 1\n\ts_cbranch_scc0 .LBB0_2\n\ts_endpgm\n\t.section .rodata\n\tnot_code\n"
    )
    assert [i.base for i in instructions][1] == "v_add_f32"
    assert len(instructions) == 7
    loop = hot_loop(instructions, labels)
    assert loop is not None
    assert (loop.first, loop.instructions) == (3, 3)


def test_the_cost_model_tells_candidates_apart(softmax: TritonProgram) -> None:
    model = TritonCostModel()
    one = model.predict_us(softmax)
    assert one == model.predict_us(softmax.with_config({"num_warps": 8}))
    matmul = TritonProgram.start(MATMUL, Target("triton", "sm_80")).with_config(SMALL)
    tiny = matmul.with_config({"BLOCK_M": 32, "BLOCK_N": 32})
    assert model.predict_us(matmul) != model.predict_us(tiny)
    with pytest.raises(InvalidValueError, match="triton"):
        model.predict_us(backend("llvm").start(load_workload("add"), backend("llvm").target()))


def test_the_backend_compiles_and_says_that_it_does_not_run(softmax: TritonProgram) -> None:
    triton = backend("triton")
    built = triton.build(triton.module_json(softmax), softmax.target)
    assert "EXIT" in triton.ir_level(softmax, "sass")
    assert len(built.code_key) == 16
    with pytest.raises(BackendUnavailableError, match="compiles and profiles without running"):
        built.load()
    assert triton.why_cannot_run(softmax.target) is not None
    with pytest.raises(InvalidValueError, match="num_threads of backend triton"):
        triton.target("sm_90", 2)


def test_programs_are_changed_by_configuration_alone(softmax: TritonProgram) -> None:
    other = softmax.with_config({"ROWS": 2})
    assert other.ir_key != softmax.ir_key
    assert other.with_config({"ROWS": 1}).ir_key == softmax.ir_key
    assert load_transform("Split") is Split
    with pytest.raises(IllegalTransformError, match="meta-parameters and passes"):
        softmax.apply(Split(0, 2))
    assert "def softmax(" in softmax.text()


def test_what_is_kept_depends_on_everything_that_it_follows_from() -> None:
    found = {path.resolve() for path in sources()}
    for module in (buffers, gate, judge, cost, executable, problem, reduction):
        assert Path(str(module.__file__)).resolve() in found, module.__name__
