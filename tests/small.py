"""Small programs and a small action table for tests of spaces and environments."""

from __future__ import annotations

from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.transforms.base import SlotLimits
from tirgym.kernels_suite.registry import load_workload
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["LIMITS", "SMALL", "TARGET", "make", "small_actions"]

TARGET = Target("llvm", "skylake-avx512", 1)
LIMITS = SlotLimits(max_loops=12, max_blocks=5, max_reads=2, factors=(2, 4))
SMALL = {
    "add": "tirgym://core-v0/add?m=8&n=16&dtype=float32",
    "matmul": "tirgym://core-v0/matmul?m=16&n=24&k=32&dtype=float32",
    "softmax": "tirgym://core-v0/softmax?m=8&n=16&dtype=float32",
}
"""Workload URIs by kernel."""


def make(uri: str, *steps: str) -> TensorIRProgram:
    """The program of `uri` after `steps`."""
    program = TensorIRProgram.start(load_workload(uri), TARGET)
    for step in steps:
        program = program.apply(parse_transform(step))
    return program


def small_actions(limits: SlotLimits = LIMITS) -> TransformSpace:
    """Actions of the default vocabulary with few slots."""
    return TransformSpace(default_vocabulary(limits=limits))
