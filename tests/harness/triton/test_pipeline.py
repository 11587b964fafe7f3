"""The pass pipeline as data: recorded, changed, validated, run."""

from __future__ import annotations

import json

import pytest

from tirgym.errors import CompileFailedError, InvalidValueError, UnknownNameError
from tirgym.harness.triton.compiling import compile_here, request_key
from tirgym.harness.triton.gpus import GPUS, gpu
from tirgym.harness.triton.pipeline import PassCall, Pipeline, pass_registry, stock_pipeline
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.registry import load_workload

pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")

SOFTMAX = load_workload("triton-v0/softmax", {"m": 16, "n": 256})
MATMUL = load_workload("triton-v0/matmul", {"m": 128, "n": 128, "k": 128})
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64}


@pytest.mark.parametrize("arch", GPUS)
def test_the_stock_pipeline_is_a_list_of_known_passes(arch: str) -> None:
    pipeline = stock_pipeline(gpu(arch), 8, 4)
    pipeline.require_known(gpu(arch))
    first = pipeline.ttgir[0]
    assert first.name == "ttir.convert_to_ttgpuir"
    assert first.arguments[1] == 8
    assert any(4 in call.arguments for call in pipeline.ttgir[1:])
    assert Pipeline.from_lists(json.loads(pipeline.key)) == pipeline


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_the_recorded_list_makes_what_triton_makes(arch: str) -> None:
    from triton.compiler.compiler import make_backend

    from tirgym.harness.triton import compiling

    request = CompileRequest.of(SOFTMAX, arch, until="ttgir")
    ours = compile_here(request).texts["ttgir"]
    compiler = make_backend(request.gpu.triton_target())
    options = compiler.parse_options(compiling._options(request))
    module = compiling._front_end(request, compiler, options)(None, {})
    last = (request.gpu.capability,) if arch == "sm_90" else ()
    module = compiler.make_ttir(module, {}, options, *last)
    theirs = compiler.make_ttgir(module, {}, options, *last).str_nodebug()
    assert ours == theirs


def test_passes_of_another_vendor_and_invented_ones_are_refused() -> None:
    assert any(name.startswith("amd.") for name in pass_registry("amd"))
    assert not any(name.startswith("amd.") for name in pass_registry("nvidia"))
    stock = stock_pipeline(gpu("sm_90"), 4, 3)
    wrong = Pipeline(stock.ttir, (*stock.ttgir, PassCall("ttgpuir.coalesc")))
    with pytest.raises(UnknownNameError, match=r"did you mean 'ttgpuir\.coalesce'"):
        CompileRequest.of(SOFTMAX, "sm_90", pipeline=wrong)
    with pytest.raises(InvalidValueError, match=r"namespace\.pass"):
        Pipeline.from_lists({"ttir": [3]})


def test_wrong_arguments_of_a_pass_are_refused() -> None:
    stock = stock_pipeline(gpu("sm_90"), 4, 1)
    wrong = stock.with_arguments("ttgpuir.f32_dot_tc", "yes", 3)
    with pytest.raises(InvalidValueError, match=r"pass ttgpuir.f32_dot_tc: \('yes', 3\)"):
        compile_here(CompileRequest.of(SOFTMAX, "sm_90", pipeline=wrong, until="ttgir"))


def test_another_pipeline_is_another_key_and_other_code() -> None:
    stock = CompileRequest.of(MATMUL, "sm_80", SMALL, until="ttgir")
    loops = ("ttgpuir.assign_latencies", "ttgpuir.schedule_loops", "ttgpuir.pipeline")
    plain = stock.changed(pipeline=stock.passes.without(*loops))
    assert request_key(stock) != request_key(plain)
    assert request_key(stock) == request_key(stock.changed(pipeline=stock.passes))
    assert "async_copy_global_to_local" in compile_here(stock).texts["ttgir"]
    assert "async_copy_global_to_local" not in compile_here(plain).texts["ttgir"]


def test_a_pipeline_that_fails_says_why() -> None:
    stock = CompileRequest.of(MATMUL, "sm_80", SMALL)
    bare = stock.passes.without("ttgpuir.accelerate_matmul")
    with pytest.raises(CompileFailedError) as caught:
        compile_here(stock.changed(pipeline=bare))
    assert caught.value.stage == "llir"
    assert "error:" in caught.value.reason
    assert len(caught.value.reason) < len(caught.value.log)
