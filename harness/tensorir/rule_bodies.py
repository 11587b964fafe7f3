"""Rules about what the bodies of blocks hold: calls and named values; see `rules.py`."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits
from tirgym.harness.tensorir.rule_moves import MAX_EXPRESSION
from tirgym.harness.tensorir.vector_calls import body, size_with_vector_math

__all__ = ["copied_names", "no_form", "other_type", "swollen_body"]


def no_form(facts: LoopFacts, t: Any, asked: int) -> int:
    """VectorMath of a block without a call that could be written as arithmetic."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        found = body(facts.placed[i].facts.node)
        if not found.written + found.foreign:
            refused |= 1 << i
    return refused


def other_type(facts: LoopFacts, t: Any, asked: int) -> int:
    """VectorMath of a block whose calls are all in types that have no form."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        if not body(facts.placed[i].facts.node).written:
            refused |= 1 << i
    return refused


def swollen_body(facts: LoopFacts, t: Any, asked: int) -> int:
    """VectorMath that would make a body too large."""
    refused = 0
    for i in bits(asked & facts.all_blocks):
        node = facts.placed[i].facts.node
        if body(node).written and size_with_vector_math(node) > MAX_EXPRESSION:
            refused |= 1 << i
    return refused


def copied_names(facts: Facts, t: Any, asked: int) -> int:
    """Inlining that would define the named values of an expression in several places.

    TVM's verifier wants each variable defined once, and no pass of its schedules renames them.
    """
    named = 0
    for i in range(len(facts.blocks)):
        named |= body(facts.blocks[i].facts.node).names << i
    if not named:
        return 0
    refused = 0
    for i in bits(asked & facts.all_blocks):
        backwards = t.name == "ReverseComputeInline"
        for p in facts.producers[i] if backwards else [i]:
            if named >> p & 1 and _copies(facts, p) > 1:
                refused |= 1 << i
    return refused


def _copies(facts: Facts, producer: int) -> int:
    """How often the value that a block makes is written down in its consumers."""
    buffers = facts.views[producer].writes
    return sum(
        body(facts.blocks[consumer].facts.node).loads.get(buffer, 0)
        for consumer in facts.consumers[producer]
        for buffer in buffers
    )
