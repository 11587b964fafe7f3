"""The walk over loops, blocks and accesses, and the facts that are derived from it."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import apply_all, begin
from tvm.tirx import FloorDiv, FloorMod, IntImm, Var

from tirgym.harness.tensorir.facts import bits
from tirgym.harness.tensorir.nest import REDUCE, SPATIAL, VECTORIZED, linear
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import WEIGHTS, draw_transform, random_program
from tirgym.harness.transforms import TRANSFORMS, default_vocabulary


def _var(name: str) -> Var:
    return Var(name, "int32")


def test_linear_forms() -> None:
    i, j = _var("i"), _var("j")
    found = linear(i * 8 + j * 2 - 3)
    assert found.coefficients == {hash(i): 8.0, hash(j): 2.0}
    assert (found.constant, found.exact, found.fuzzy) == (-3.0, True, frozenset())
    found = linear(FloorDiv(i, IntImm("int32", 4)) + j)
    assert not found.exact
    assert found.coefficients[hash(i)] == 0.25
    assert hash(i) in found.fuzzy
    assert hash(j) not in found.fuzzy
    found = linear(FloorMod(i, IntImm("int32", 4)) * 16)
    assert found.coefficients[hash(i)] == 16.0
    assert not found.indirect


def test_data_dependent_reads_are_indirect() -> None:
    (block,) = begin("gather").nest.blocks
    starts = [start for read in block.facts.reads for start, _ in read.region]
    assert [start.indirect for start in starts].count(True) == 1


def test_loops_and_blocks_come_in_pre_order() -> None:
    nest = apply_all(begin("softmax"), "ComputeAt(block=2, loop=6)").nest
    assert [loop.index for loop in nest.loops] == list(range(len(nest.loops)))
    for loop in nest.loops:
        assert loop.chain[-1] == loop.index
        assert loop.parent == (loop.chain[-2] if len(loop.chain) > 1 else -1)
        assert all(loop.index in nest.blocks[b].chain for b in loop.blocks)
    handles = apply_all(begin("softmax"), "ComputeAt(block=2, loop=6)").schedule
    names = [handles.get(b).name_hint for b in handles.get_child_blocks(handles.get_sblock("root"))]
    assert [block.facts.name for block in nest.blocks] == names


def test_facts_of_a_contraction() -> None:
    program = begin("matmul", m=16, n=24, k=32)
    (block,) = program.nest.blocks
    assert block.facts.iter_types == (SPATIAL, SPATIAL, REDUCE)
    assert block.facts.has_init
    facts = program.facts
    assert list(bits(facts.reduced[0])) == [2]
    assert facts.once == [True]
    assert facts.work == facts.domain == 16 * 24 * 32
    assert list(bits(facts.outputs)) == [0]


def test_facts_of_a_recomputed_block() -> None:
    program = apply_all(begin("softmax", m=8, n=16), "ComputeAt(block=2, loop=7)")
    facts = program.facts
    assert facts.once == [True, True, False, True]
    assert facts.work == 8 * 16 * 3 + 8 * 16 * 16
    assert facts.producers[3] == (1, 2)
    assert facts.consumers[2] == (3,)
    assert list(bits(facts.complete)) == [1, 3]
    assert list(bits(facts.reduction)) == [0, 2]


def test_marks_are_seen() -> None:
    nest = apply_all(begin("chain"), "Vectorize(loop=1); UnrollPragma(loop=2, max_step=16)").nest
    assert nest.loops[1].kind == VECTORIZED
    assert [loop.annotated for loop in nest.loops] == [False, False, True, False]


def test_accumulation_is_told_from_order() -> None:
    update = apply_all(begin("matmul", m=16, n=24, k=32), "DecomposeReduction(loop=2)")
    assert [view.ordered for view in update.facts.views] == [False, False]
    assert [view.ordered for view in begin("prefix").facts.views] == [True]


@pytest.mark.parametrize("kernel", ["softmax", "matmul_bias_gelu"])
def test_random_programs_get_deep_and_repeat(kernel: str) -> None:
    vocabulary = default_vocabulary()
    made = [
        random_program(begin(kernel), np.random.default_rng(3), 14, vocabulary) for _ in range(2)
    ]
    assert made[0].steps == made[1].steps
    assert len(made[0].steps) == 14
    assert made[0].ir_key == made[1].ir_key
    assert set(WEIGHTS) <= set(TRANSFORMS)


def test_a_step_leaves_the_records_of_other_parts_as_they_were() -> None:
    before = begin("softmax")
    assert before.legal_mask(default_vocabulary()).any()
    after = apply_all(before, "Split(loop=2, factor=2)")
    old, new = ([entry.part for entry in p.nest.parts] for p in (before, after))
    assert [one is other for one, other in zip(old, new, strict=True)] == [True, False, True, True]
    assert [loop.index for loop in after.nest.loops] == list(range(after.nest.size))
    assert all(part.facts is not None for part in old)


def test_parts_that_the_compiler_copies_keep_their_record_but_not_their_nodes() -> None:
    """`TransformLayout` rewrites the whole function, also where it does not use the buffer."""
    before = begin("attention")
    assert before.nest.size
    after = apply_all(before, "TransformLayout(block=0, axis=1, factor=1)")
    pairs = list(zip(before.nest.blocks, after.nest.blocks, strict=True))
    copied = [hash(old.realize) != hash(new.realize) for old, new in pairs]
    shared = [old.placement.notes is new.placement.notes for old, new in pairs]
    assert all(copied)
    assert 0 < sum(shared) < len(shared)
    for _, new in pairs:
        assert hash(new.facts.node) == hash(new.realize.block)


def test_handles_find_the_first_block_below_each_loop() -> None:
    nest = apply_all(begin("softmax"), "ComputeAt(block=2, loop=6)").nest
    assert [nest.first_block(loop.index) for loop in nest.loops] == [
        loop.blocks[0] for loop in nest.loops
    ]
    with pytest.raises(IndexError):
        nest.first_block(nest.size)


def test_a_nest_is_the_same_whatever_it_was_made_from() -> None:
    """Records that are taken over say what a fresh look at the same program says."""
    vocabulary = default_vocabulary()
    program = begin("attention")
    rng = np.random.default_rng(5)
    for _ in range(10):
        step = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
        assert step is not None
        program = program.apply(step)
        fresh = TensorIRProgram(program.workload, program.target, (), program.schedule)
        assert (program.legal_mask(vocabulary) == fresh.legal_mask(vocabulary)).all()
        for one, other in zip(program.nest.blocks, fresh.nest.blocks, strict=True):
            assert (one.chain, one.positions) == (other.chain, other.positions)
            assert (one.bindings, one.has_predicate) == (other.bindings, other.has_predicate)
            assert (one.facts.reads, one.facts.writes) == (other.facts.reads, other.facts.writes)
        for mine, theirs in zip(program.nest.loops, fresh.nest.loops, strict=True):
            assert (mine.var, mine.extent, mine.kind) == (theirs.var, theirs.extent, theirs.kind)
            assert (mine.chain, list(mine.blocks)) == (theirs.chain, list(theirs.blocks))
