"""Rules about software pipelines; see `rules.py`."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits
from tirgym.harness.tensorir.pipelines import pipeline_children
from tirgym.harness.tensorir.rule_limits import EVERYTHING

__all__ = ["moves_in_pipeline", "no_pipeline", "no_pipelines", "pipeline_frozen"]


def no_pipelines(facts: Facts, t: Any, asked: int) -> int:
    """A backend without memory of a block to pipeline through."""
    return EVERYTHING if device_limits(facts.target) is None else 0


def pipeline_frozen(facts: LoopFacts, t: Any, asked: int) -> int:
    """Pipelined loops and what lies in them, and for `Reorder` what is directly around."""
    if not facts.pipelined:
        return 0
    refused = facts.around(facts.pipelined)
    if t.name == "Reorder":
        refused |= refused >> 1 & facts.over_loop
    return refused


def moves_in_pipeline(facts: Facts, t: Any, asked: int) -> int:
    """Moves, inlining and staging of blocks in a pipeline, out of it or into it."""
    if not facts.pipelined:
        return 0
    inside = sum([1 << i for i, chain in enumerate(facts.chain) if chain & facts.pipelined])
    if t.node_field() == "loop":
        return EVERYTHING if inside >> t.block & 1 else facts.around(facts.pipelined)
    refused = inside
    for i in bits(asked & facts.all_blocks & ~inside):
        others = (*facts.consumers[i], *facts.producers[i])
        if any(inside >> other & 1 for other in others):
            refused |= 1 << i
    return refused


def no_pipeline(facts: Facts, t: Any, asked: int) -> int:
    """SoftwarePipeline of a loop whose copies cannot run ahead of what uses them."""
    refused = 0
    for i in bits(asked & facts.all_loops):
        if not _can_pipeline(facts, i, t.stages):
            refused |= 1 << i
    return refused


def _can_pipeline(facts: Facts, loop: int, stages: int) -> bool:
    if facts.loops[loop].body != "sequence" or facts.extents[loop] < stages:
        return False
    if facts.below[loop] & facts.annotated or facts.up[loop] & facts.annotated:
        return False
    children = pipeline_children(facts.nest, loop)
    copies = [i for child in children if child.copies for i in child.blocks]
    others = [i for child in children if not child.copies for i in child.blocks]
    return bool(copies and others) and all(_runs_ahead(facts, i, copies, others) for i in copies)


def _runs_ahead(facts: Facts, copy: int, copies: list[int], others: list[int]) -> bool:
    """Whether block `copy` needs nothing that the loop makes, and what it makes is used in the same
    iteration alone, by `others`, who read no more than it wrote."""
    view, inside = facts.views[copy], {*copies, *others}
    if any(inside & {*facts.writers.get(buffer, ())} for buffer in view.reads):
        return False
    for buffer in view.writes:
        readers = facts.readers.get(buffer, ())
        if facts.writers[buffer] != (copy,) or not {*readers} <= {*others}:
            return False
        if any(facts.uncovered >> reader & 1 for reader in readers):
            return False
    return True
