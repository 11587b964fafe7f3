"""Private buffers have the sizes that TVM's own passes leave them."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import apply_all, begin

from tirgym.harness.decisions import RandomAgent, design_space
from tirgym.harness.static_accesses import access_plan, bound_accesses
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_lowering import lowered_counts
from tirgym.harness.static_private import compacted, private_buffers
from tirgym.harness.tensorir.program import TensorIRProgram

SHAPE = {"m": 64, "n": 128}


def sizes(program: TensorIRProgram) -> dict[str, int]:
    """Bytes of each intermediate buffer, by name: those of its part, or all."""
    private = private_buffers(program.nest)
    found = {}
    for block in program.nest.blocks:
        for write in block.facts.writes:
            buffer = write.buffer
            if buffer.handle in program.facts.intermediates:
                part = private.get(buffer.handle)
                shape = buffer.shape if part is None else part.shape
                found[buffer.name] = int(np.prod(shape)) * 4
    return found


def allocated(program: TensorIRProgram) -> dict[str, int]:
    return {a.name: a.nbytes for a in lowered_counts(program).allocations}


@pytest.mark.parametrize("kernel", ["softmax", "layernorm", "log_softmax", "row_variance"])
def test_sizes_are_those_of_the_compiler(kernel: str) -> None:
    private = 0
    for seed in range(6):
        walk = design_space(begin(kernel, **SHAPE))
        done = walk.finish() if seed == 0 else walk.follow(RandomAgent(seed))
        program = done.program
        assert isinstance(program, TensorIRProgram)
        assert sizes(program) == allocated(program)
        private += sizes(program) != {
            a.buffer.name: a.buffer.nbytes
            for b in program.nest.blocks
            for a in b.facts.writes
            if a.buffer.handle in program.facts.intermediates
        }
    assert private


def test_a_row_that_is_made_and_used_in_one_iteration_costs_no_memory() -> None:
    """4 MB of intermediate values against rows of 4 KB."""
    apart = begin("softmax", m=1024, n=1024)
    fused = apply_all(apart, "ComputeAt(block=2, loop=6); ComputeAt(block=1, loop=4)")
    model = StaticCostModel()
    before, after = model.parts(apart), model.parts(fused)
    assert after.l2_miss_lines < before.l2_miss_lines - 1024 * 1024 * 4 / 64
    assert after.memory_cycles < before.memory_cycles


def test_lanes_of_partial_sums_become_neighbours() -> None:
    program = apply_all(
        begin("row_sum", **SHAPE),
        "Split(loop=1, factor=16); RFactor(loop=2); ComputeAt(block=0, loop=3)",
    )
    block = program.nest.blocks[0]
    plain = bound_accesses(access_plan(block.facts), block.bindings)
    private = private_buffers(program.nest)
    variables = tuple(program.nest.loops[i].var for i in block.chain)
    small = compacted(plain, variables, private)
    lane = program.nest.loops[block.chain[1]].var
    assert (plain[-1].strides[lane], small[-1].strides[lane]) == (64.0, 1.0)
    assert plain[0] == small[0]
