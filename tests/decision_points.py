"""A question of the compiler, for tests of what agents are asked."""

from __future__ import annotations

from tirgym.harness.decisions import DecisionKind, DecisionPoint, Option
from tirgym.harness.transforms.base import NodeRef

__all__ = ["POINT"]

POINT = DecisionPoint(
    key="C.tile.j.5",
    kind=DecisionKind.TILE,
    text="factor of j",
    options=tuple(Option(str(value), value, 1.5 * value) for value in (1, 2, 4)),
    default=1,
    node=NodeRef("loop", 3),
    block="C",
    snippet="loop 0: i of 8",
    workload="tirgym://core-v0/matmul?m=8",
    target="llvm/x/1 thread",
    hardware={"cores": 2, "avx512": True, "name": "x", "ghz": 2.0},
    number=1,
    answers=(("C.sketch", 2),),
)
