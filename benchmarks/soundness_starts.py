"""`tiled_product`: a start of the soundness study from which tensor cores and pipelines are one step away."""

from __future__ import annotations

from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.families.half_precision import MATMUL
from tirgym.kernels_suite.kernel import Workload

__all__ = ["TILED_PRODUCT", "tiled_product"]

TILED_PRODUCT = "tiled_product"
_STEPS = """
    CacheWrite(block=0); Split(loop=0, factor=16); Split(loop=2, factor=16); Split(loop=4, factor=16)
    Reorder(loop=1); Reorder(loop=3); Reorder(loop=2)
    Bind(loop=0, thread='blockIdx.y'); Bind(loop=1, thread='blockIdx.x')
    ReverseComputeAt(block=1, loop=1); ReverseComputeAt(block=2, loop=1); SetScope(block=1, scope='shared')
    CacheRead(block=0, read=0); CacheRead(block=1, read=0)
    ComputeAt(block=1, loop=6); ComputeAt(block=0, loop=4); SetScope(block=0, scope='shared')
    CacheRead(block=2, read=1); CacheRead(block=3, read=1)
    ComputeAt(block=1, loop=6); ComputeAt(block=0, loop=4); SetScope(block=2, scope='shared')
    DecomposeReduction(loop=2)
"""


def tiled_product(target: Target) -> TensorIRProgram:
    """A float16 product of 32 × 32 matrices in tiles of 16 × 16, whose operands are copied to shared memory
    and from there to what may become fragments."""
    program = TensorIRProgram.start(Workload.of(MATMUL, {"m": 32, "n": 32, "k": 32}), target)
    for step in _STEPS.replace("\n", ";").split(";"):
        if step.strip():
            program = program.apply(parse_transform(step.strip()))
    return program
