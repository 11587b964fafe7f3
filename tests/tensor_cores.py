"""Products of matrices on tensor cores, made by transforms alone, and the kernels that they are made of."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from tvm import te

from tirgym.harness.cuda.compiling import nvcc_path
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Kernel, Workload

__all__ = [
    "SM_80",
    "SM_90",
    "Player",
    "needs_toolkit",
    "on_tensor_cores",
    "player_on_tensor_cores",
    "product",
    "spread",
]


needs_toolkit = pytest.mark.skipif(
    nvcc_path() is None or find_spec("triton") is None,
    reason="needs nvcc of NVIDIA's CUDA toolkit, and pip install 'tirgym[triton]'",
)
SM_80, SM_90 = Target("cuda", "sm_80", 1), Target("cuda", "sm_90", 1)


class Player:
    """Applies transforms whose blocks and loops are given by name and by place in the block's chain."""

    def __init__(self, program: TensorIRProgram) -> None:
        self.program = program
        self.states: list[TensorIRProgram] = [program]
        """the programs so far"""

    def block(self, name: str) -> int:
        """Number of the one block called `name`."""
        (found,) = [b.index for b in self.program.nest.blocks if b.facts.name == name]
        return found

    def play(self, kind: str, block: str = "", place: int | None = None, **rest: Any) -> None:
        """Apply one transform: to loop `place` of the loops around `block`, else to the block."""
        arguments = dict(rest)
        if block:
            number = self.block(block)
            if place is None:
                arguments = {"block": number, **arguments}
            else:
                arguments = {"loop": self.program.nest.blocks[number].chain[place], **arguments}
        text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        self.program = self.program.apply(parse_transform(f"{kind}({text})"))
        self.states.append(self.program)

    def move(self, kind: str, block: str, under: str, place: int) -> None:
        """`ComputeAt` or `ReverseComputeAt` of `block` at loop `place` of those around `under`."""
        loop = self.program.nest.blocks[self.block(under)].chain[place]
        self.play(kind, block, loop=loop)


def product(
    operand: str = "float16", total: str = "float32", size: int = 32, transposed: bool = False
) -> Workload:
    """c = a b with sums of type `total`, which is that of c; with `transposed` b holds its columns as rows."""

    def build(shape: Any) -> Any:
        a = te.placeholder((size, size), operand, "a")
        b = te.placeholder((size, size), operand, "b")
        r = te.reduce_axis((0, size), "r")

        def term(i: Any, j: Any) -> Any:
            x, y = a[i, r], b[j, r] if transposed else b[r, j]
            return x * y if operand == total else x.astype(total) * y.astype(total)

        c = te.compute((size, size), lambda i, j: te.sum(term(i, j), axis=r), "product")
        return te.create_prim_func([a, b, c])

    def reference(a: Any, b: Any) -> Any:
        wide = np.float64 if total != "int32" else np.int64
        return a.astype(wide) @ (b.T if transposed else b).astype(wide)

    name = f"product_{operand}_{total}_{'nt' if transposed else 'nn'}"
    kernel = Kernel(
        name, "test", build, reference, ({"n": size},), dtype=operand, terms=lambda _: size + 1
    )
    return Workload.of(kernel, {"n": size})


def on_tensor_cores(
    workload: Workload, target: Target, transposed: bool = False, shared: bool = True
) -> TensorIRProgram:
    """See `player_on_tensor_cores`."""
    return player_on_tensor_cores(workload, target, transposed, shared).program


def player_on_tensor_cores(
    workload: Workload, target: Target, transposed: bool = False, shared: bool = True
) -> Player:
    """A product "product", whose sums "c" may round, on tensor cores, one tile of 16 × 16 for each block of
    threads; with `shared` its operands go through shared memory."""
    player = Player(TensorIRProgram.start(workload, target))
    has_cast = len(player.program.nest.blocks) > 1
    suffix = "_transposed" if transposed else ""
    play, move = player.play, player.move
    play("CacheWrite", "product")
    for place in (0, 2, 4):
        play("Split", "product", place, factor=16)
    for place in (1, 3, 2):
        play("Reorder", "product", place)
    play("Bind", "product", 0, thread="blockIdx.y")
    play("Bind", "product", 1, thread="blockIdx.x")
    move("ReverseComputeAt", "product_global", "product", 1)
    if has_cast:
        move("ReverseComputeAt", "c", "product_global", 1)
        play("SetScope", "product_global", scope="shared")
        spread(player, "c")
    loads = {"a": "wmma_load_a", "b": f"wmma_load_b{suffix}"}
    for read, tensor in enumerate(loads):
        copy = f"{tensor}_global"
        play("CacheRead", "product", read=read)
        if shared:
            play("CacheRead", "product", read=read)
            move("ComputeAt", f"{copy}_global", "product", 2)
        move("ComputeAt", copy, "product", 2)
        if shared:
            play("SetScope", copy, scope="shared")
            spread(player, copy)
    play("DecomposeReduction", "product", 2)
    for tensor, load in loads.items():
        play("Tensorize", f"{tensor}_global{'_global' if shared else ''}", -2, intrinsic=load)
    play("Tensorize", "product_init", -2, intrinsic="wmma_fill")
    play("Tensorize", "product_update", -3, intrinsic=f"wmma_mma{suffix}")
    play("Tensorize", "product_global", -2, intrinsic="wmma_store")
    return player


def spread(player: Player, block: str, lanes: int = 4) -> None:
    """Spread the tile that a block goes over in its two innermost loops over the threads of a warp, which
    take vectors of some elements."""
    player.play("Split", block, -1, factor=lanes)
    player.play("Fuse", block, -3)
    vectors = player.program.nest.loops[player.program.nest.blocks[player.block(block)].chain[-2]]
    if vectors.extent > 32:
        player.play("Split", block, -2, factor=32)
    player.play("Vectorize", block, -1)
    player.play("Bind", block, -2, thread="threadIdx.x")
