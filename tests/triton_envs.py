"""Triton environments on tiny kernels, and compile pools with scripted faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium

import tirgym  # noqa: F401  registers the ids
from tirgym.envs.triton import TritonEnv
from tirgym.harness.target import Target
from tirgym.harness.triton.evaluator import SemanticEvaluator
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import Compiled, CompileRequest
from tirgym.kernels_suite.registry import load_workload

__all__ = [
    "EDIT",
    "MATMUL",
    "SOFTMAX",
    "WARPS",
    "FaultyPool",
    "drop",
    "faulty",
    "made",
    "started",
    "with_ttgir",
]

SOFTMAX = "tirgym://triton-v0/softmax?m=6&n=20&dtype=float32"
MATMUL = "tirgym://triton-v0/matmul?m=64&n=64&k=64&dtype=float16"
WARPS = "SetMeta(parameter='num_warps', value=4)"
EDIT = "DropPass(level='ttgir', pass_name='ttgpuir.reorder_instructions', nth=0)"


def made(**keywords: Any) -> TritonEnv:
    """`tirgym/Triton-v0` on a tiny softmax."""
    keywords = {"kernel": SOFTMAX, "arch": "sm_90", "disable_env_checker": True, **keywords}
    env = gymnasium.make("tirgym/Triton-v0", **keywords).unwrapped
    assert isinstance(env, TritonEnv)
    return env


def started(kernel: str = SOFTMAX, arch: str = "sm_90") -> TritonProgram:
    """The unchanged program."""
    return TritonProgram.start(load_workload(kernel), Target("triton", arch, 1))


class FaultyPool(CompilePool):
    """What it compiles of edited pipelines goes through `fault`; stock ones are as they are."""

    def __init__(self, fault: Callable[[CompilePool, Any], Any]) -> None:
        super().__init__(1)
        self.fault = fault

    def compile_many(self, requests: Sequence[CompileRequest]) -> list[Any]:
        """As `CompilePool.compile_many`."""
        answers = super().compile_many(requests)
        return [
            answer if request.pipeline is None else self.fault(self, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]


@contextmanager
def faulty(fault: Callable[[CompilePool, Any], Any]) -> Iterator[TritonEnv]:
    """An environment after its reset, whose compiler is at fault in edited pipelines.

    Verdicts on disk are by pipeline: every fault is met under an edit of its own.
    """
    pool = FaultyPool(fault)
    env = made(evaluator=SemanticEvaluator(pool))
    try:
        env.reset(seed=0)
        yield env
    finally:
        env.close()
        pool.close()


def drop(pass_name: str) -> str:
    """The transform that leaves out a pass of TTGIR."""
    return f"DropPass(level='ttgir', pass_name='{pass_name}', nth=0)"


def with_ttgir(old: str, new: str) -> Callable[[CompilePool, Compiled], Compiled]:
    """A compiler that writes `new` for `old` in TTGIR."""

    def fault(_: CompilePool, compiled: Compiled) -> Compiled:
        text = compiled.texts["ttgir"]
        assert old in text
        return replace(compiled, texts={**compiled.texts, "ttgir": text.replace(old, new)})

    return fault
