"""What the installed Triton makes of the suite, with stock and with shuffled passes, is executed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

pytest.importorskip("triton")

from tirgym.errors import CompileFailedError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.executor.gate import SemanticGate
from tirgym.harness.triton.pipeline import PassCall, Pipeline
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel, load_workload
from tirgym.kernels_suite.triton.sources import SOURCES

ARCHITECTURES = ("sm_80", "sm_90")
RAGGED = {
    "matmul": "tirgym://triton-v0/matmul?m=80&n=48&k=112&dtype=float16",
    "attention": "tirgym://triton-v0/attention?heads=2&n=112&d=48&dtype=float16",
    "layernorm": "tirgym://triton-v0/layernorm?m=5&n=200&dtype=float32",
}
BLOCKS = {
    "matmul": {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32},
    "attention": {"BLOCK_M": 64, "BLOCK_N": 32},
    "layernorm": {},
}


def require_right(workload: Workload, arch: str, level: Level) -> None:
    request = CompileRequest.of(workload, arch, until="ttgir")
    texts = compile_here(request).texts
    gate = SemanticGate(workload, request.launch, texts["ttir"], secret=b"tests")
    for ir in ("ttir", "ttgir"):
        report = gate.check(texts[ir], level, number=0)
        assert report.status is Status.SEMANTIC_ONLY, (workload, arch, ir, report.message)


@pytest.mark.parametrize("kernel", ["add", "layernorm", "cross_entropy", "int8_gemm"])
def test_kernels_are_covered_and_right(kernel: str) -> None:
    found = load_kernel(f"triton-v0/{kernel}")
    require_right(Workload.of(found, found.tiny_shape), "sm_90", Level.TRAINING)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", SOURCES)
def test_every_kernel_is_covered_and_right(kernel: str, arch: str) -> None:
    found = load_kernel(f"triton-v0/{kernel}")
    for shape in (found.tiny_shape, *found.holdout[:1]):
        require_right(Workload.of(found, shape), arch, Level.FULL)


def shuffled(pipeline: Pipeline, draw: random.Random) -> Pipeline:
    """`pipeline` with passes of the second level dropped, swapped, repeated or shuffled."""
    first, *rest = pipeline.ttgir
    kind = draw.choice(["drop", "drop3", "swap", "swap5", "insert", "tail", "all"])
    if kind.startswith("drop"):
        for _ in range(3 if kind == "drop3" else 1):
            rest.pop(draw.randrange(len(rest)))
    elif kind.startswith("swap"):
        for _ in range(5 if kind == "swap5" else 1):
            i, j = draw.sample(range(len(rest)), 2)
            rest[i], rest[j] = rest[j], rest[i]
    elif kind == "insert":
        for _ in range(3):
            rest.insert(draw.randrange(len(rest)), draw.choice(rest))
    else:
        start = len(rest) // 2 if kind == "tail" else 0
        tail: list[PassCall] = rest[start:]
        draw.shuffle(tail)
        rest[start:] = tail
    return replace(pipeline, ttgir=(first, *rest))


def judge_shuffled(kernel: str, arch: str, seeds: range) -> int:
    """How many shuffled pipelines compile; all of those must be right."""
    workload = load_workload(RAGGED[kernel])
    compiled = 0
    gates: dict[int, SemanticGate] = {}
    for seed in seeds:
        draw = random.Random(f"{kernel} {arch} {seed}")
        stages = draw.choice([1, 3, 4]) if BLOCKS[kernel] else 1
        config = {**BLOCKS[kernel], **({"num_stages": stages} if BLOCKS[kernel] else {})}
        request = CompileRequest.of(workload, arch, config, until="ttgir")
        if stages not in gates:
            trusted = compile_here(request).texts["ttir"]
            gates[stages] = SemanticGate(workload, request.launch, trusted, secret=b"tests")
        try:
            made = compile_here(request.changed(pipeline=shuffled(request.passes, draw)))
        except CompileFailedError:
            continue
        compiled += 1
        report = gates[stages].check(made.texts["ttgir"], Level.TRAINING, seed)
        assert report.status is Status.SEMANTIC_ONLY, (kernel, arch, seed, report.message)
    return compiled


def test_some_shuffled_pipelines_keep_the_meaning() -> None:
    assert judge_shuffled("matmul", "sm_90", range(2)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", RAGGED)
def test_shuffled_pipelines_keep_the_meaning(kernel: str, arch: str) -> None:
    assert judge_shuffled(kernel, arch, range(3, 23)) >= 10
