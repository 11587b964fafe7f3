"""The one definition of legality: the vocabulary rules pass and the compiler accepts on a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule

from tirgym.errors import IllegalTransformError
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.handles import Handles
from tirgym.harness.tensorir.rules import first_refusal, rules_for
from tirgym.harness.tensorir.shortcuts import SHORTCUTS
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Row, Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["apply", "defined_mask", "mask"]


def apply(program: TensorIRProgram, transform: Transform) -> Schedule:
    """The schedule after `transform`; raises IllegalTransformError. `program` does not change."""
    rule = first_refusal(program.facts, transform)
    if rule is not None:
        raise IllegalTransformError(
            str(transform), rule.name, rule.reason, _place(program, transform)
        )
    schedule = program.schedule
    at = Handles(schedule, program.nest)
    try:
        transform.apply_to(schedule, at)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = f"the compiler refuses ({type(error).__name__})"
        place = _place(program, transform)
        raise IllegalTransformError(str(transform), "compiler", reason, place) from None
    at.release()
    return schedule


def _place(program: TensorIRProgram, transform: Transform) -> str:
    """The node in words, by its number and its name where it exists."""
    kind, index = transform.node
    nest = program.nest
    if kind == "loop" and 0 <= index < len(nest.loops):
        return f"loop {index} ({nest.loops[index].node.loop_var.name})"
    if kind == "block" and 0 <= index < len(nest.blocks):
        return f"block {index} ({nest.blocks[index].facts.name})"
    return f"{kind} {index}"


def mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Shape (len(vocabulary),), read-only: which transforms are legal, equal to the definition.

    Rules decide by rows, shortcuts decide for the compiler where it is certain, and what is left
    is tried on copies.
    """
    facts = program.facts
    blocks = len(facts.blocks)
    actions: list[int] = []
    for row in vocabulary.rows:
        if row.block < blocks:
            legal = _legal_nodes(program, facts, row)
            while legal:
                low = legal & -legal
                action = row.actions.get(low.bit_length() - 1)
                if action is not None:
                    actions.append(action)
                legal ^= low
    found = np.zeros(len(vocabulary), dtype=np.bool_)
    found[actions] = True
    found.setflags(write=False)
    return found


def _legal_nodes(program: TensorIRProgram, facts: Facts, row: Row) -> int:
    """The nodes of the row whose transform is legal; the cheapest questions are asked first."""
    prototype, axis, name = row.prototype, row.axis, row.prototype.name
    asked = facts.all_loops if axis == "loop" else facts.all_blocks if axis == "block" else 1
    shortcut = SHORTCUTS.get(name)
    accepted = 0
    if shortcut is not None:
        accepted, refused = shortcut(facts, prototype, asked)
        asked &= ~refused
    for rule in rules_for(name):
        if not asked:
            return 0
        asked &= ~rule.refused(facts, prototype, asked)
    for node in bits(asked & ~accepted):
        if node not in row.actions or not _tried(program, _member(row, node)):
            asked &= ~(1 << node)
    return asked


def _member(row: Row, node: int) -> Transform:
    """The transform of `row` that acts on `node`."""
    return replace(row.prototype, **{row.axis: node}) if row.axis else row.prototype  # type: ignore[type-var]


def _tried(program: TensorIRProgram, transform: Transform) -> bool:
    schedule = program.schedule
    try:
        transform.apply_to(schedule, Handles(schedule, program.nest))
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def defined_mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """The mask by the bare definition: every rule and a trial for every action. Slow; for tests."""
    found = np.zeros(len(vocabulary), dtype=np.bool_)
    for action, transform in enumerate(vocabulary):
        try:
            apply(program, transform)
        except IllegalTransformError:
            continue
        found[action] = True
    return found
