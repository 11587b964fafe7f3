"""The question about calls of the C library; where partial sums land; lanes that LLVM makes itself."""

from __future__ import annotations

from tirgym.harness.decisions import DecisionKind, Walk, design_space
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_ops import block_ops
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

TARGET = Target("llvm", "znver4", 1)
ROWS = "tirgym://core-v0/softmax?m=64&n=1000&dtype=float32"


def start(kernel: str) -> Walk:
    return design_space(TensorIRProgram.start(load_workload(kernel), TARGET))


def finished(kernel: str, values: dict[str, int] | None = None) -> TensorIRProgram:
    program = start(kernel).finish(values).program
    assert isinstance(program, TensorIRProgram)
    return program


def asked(walk: Walk) -> list[str]:
    return [a.key for a in walk.answers if a.kind is DecisionKind.CALLS]


def calls(program: TensorIRProgram) -> int:
    return sum(block_ops(block.facts.node).calls for block in program.nest.blocks)


def extents(program: TensorIRProgram, name: str) -> list[int]:
    block = next(b for b in program.nest.blocks if b.facts.name == name)
    return [program.nest.loops[i].extent for i in block.chain]


def test_asked_of_each_block_that_calls_and_done_unless_refused() -> None:
    assert asked(start(ROWS).finish()) == ["power.calls"]
    assert asked(start("log_softmax").finish()) == ["total.calls", "log.calls"]
    assert asked(start("matmul").finish()) == []
    assert calls(finished(ROWS)) == 0
    assert calls(finished(ROWS, {"power.calls": 0})) == 1


def test_asked_where_inlining_left_the_call() -> None:
    walk = start(ROWS).finish({"power.inline": 1})
    assert asked(walk) == ["total.calls", "out.calls"]


def test_the_static_cost_is_for_it() -> None:
    cost = StaticCostModel()
    for kernel in (ROWS, "log_softmax", "attention", "matmul_bias_gelu", "swiglu"):
        key = next(iter(asked(start(kernel).finish())))
        plain, vectors = (cost.predict_us(finished(kernel, {key: v})) for v in (0, 1))
        assert vectors < plain


def test_partial_sums_move_into_the_row_with_their_lanes_innermost() -> None:
    """All of softmax happens in one loop over the rows, unless asked otherwise."""
    program = finished(ROWS, {"top_rf.vector": 8})
    roots = {block.chain[0] for block in program.nest.blocks}
    assert len(roots) == 1
    assert extents(program, "top_rf_update") == [64, 25, 5, 8]
    assert extents(program, "total_rf_update") == [64, 25, 40]
    apart = finished(ROWS, {"top_rf.location": 0})
    assert len({block.chain[0] for block in apart.nest.blocks}) == 2


def test_sums_in_flight_are_whole_vectors() -> None:
    """As many as there are terms for each, as far as that is a number of vectors."""
    for n, sums in ((1000, 40), (1024, 32), (4096, 64), (496, 16), (624, 16)):
        walk = start(f"tirgym://core-v0/row_sum?m=64&n={n}&dtype=float32").finish()
        assert [a.value for a in walk.answers if a.kind is DecisionKind.RFACTOR] == [sums]


def test_loops_without_whole_vectors_are_left_to_llvm_unless_they_call() -> None:
    def lanes(values: dict[str, int]) -> int:
        walk = start(ROWS).finish(values)
        return next(a.value for a in walk.answers if a.key == "power.vector")

    assert lanes({}) == 1
    assert lanes({"power.calls": 0}) == 8
