"""The one definition of legality: the vocabulary rules pass and the compiler accepts on a copy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule

from tirgym.errors import IllegalTransformError
from tirgym.harness.macros.draft import legal_macros
from tirgym.harness.target import Target
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.node_cache import NodeCache
from tirgym.harness.tensorir.row_plans import (
    RowPlan,
    Scheme,
    asked_nodes,
    content_rows,
    decide,
    nest_rows,
    plan_of,
    scheme_of,
)
from tirgym.harness.tensorir.rule_limits import EVERYTHING
from tirgym.harness.tensorir.rule_storage import meaningful
from tirgym.harness.tensorir.rules import first_refusal, node_bit
from tirgym.harness.transforms.base import ScheduleTransform, Transform
from tirgym.harness.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["apply", "defined_mask", "is_legal", "legal_nodes", "mask"]


def apply(program: TensorIRProgram, transform: Transform) -> Schedule:
    """The schedule after `transform`; raises IllegalTransformError. `program` does not change."""
    if not isinstance(transform, ScheduleTransform):
        reason = f"it changes {transform.dialect} programs, and this is TensorIR"
        raise IllegalTransformError(str(transform), "dialect", reason)
    rule = None if _known(program, transform) else first_refusal(program.facts, transform)
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
    return new_schedule(schedule.mod) if transform.rebuilds else schedule


def _known(program: TensorIRProgram, transform: Transform) -> bool:
    """Whether a mask of `program` says already that `transform` is legal."""
    for vocabulary, legal in program.masks.values():
        action = vocabulary.find(transform)
        if action is not None and legal[action]:
            return True
    return False


def _place(program: TensorIRProgram, transform: Transform) -> str:
    """The node in words, by its number and its name where it exists."""
    kind, index = transform.node
    nest = program.nest
    if kind == "loop" and 0 <= index < len(nest.loops):
        return f"loop {index} ({nest.loops[index].node.loop_var.name})"
    if kind == "block" and 0 <= index < len(nest.blocks):
        return f"block {index} ({nest.blocks[index].facts.name})"
    return f"{kind} {index}"


_MASKS: OrderedDict[tuple[str, Target, str], NDArray[np.bool_]] = OrderedDict()
_MAX_MASKS = 4096


def mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Shape (len(vocabulary),), read-only: which transforms are legal, equal to the definition.

    Masks are shared by IR key, target and vocabulary where the key is known already: hashing costs
    a tenth of a mask, and random episodes hardly ever meet a state twice.
    """
    if "ir_key" not in program.__dict__:
        return _make_mask(program, vocabulary)
    key = (program.ir_key, program.target, vocabulary.digest)
    found = _MASKS.get(key)
    if found is None:
        found = _MASKS[key] = _make_mask(program, vocabulary)
        if len(_MASKS) > _MAX_MASKS:
            _MASKS.popitem(last=False)
    return found


def _make_mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Rules and shortcuts decide by rows; what is left is tried on copies."""
    facts, scheme = program.facts, scheme_of(vocabulary)
    contents = content_rows(facts, scheme)
    legal, undecided = nest_rows(facts, scheme)
    legal, undecided = legal | contents.legal, undecided | contents.open
    if undecided:
        legal |= _tried_rows(program, scheme, undecided)
    size = scheme.width // 8
    table = bytearray(legal.to_bytes(scheme.rows * size + 1, "little"))
    most = (1 << scheme.width) - 1
    for (plan, _), rows in zip(scheme.late_plans, contents.late, strict=True):
        asked = asked_nodes(facts, plan) if rows else 0
        if not asked:
            continue
        movers = facts.all_blocks if plan.movers is None else plan.movers(facts)
        for at, possible in rows:
            number, row = plan.rows[at]
            if possible & asked and (row.block < 0 or movers >> row.block & 1):
                nodes = _legal_nodes(program, plan, row.prototype, row.actions, possible & asked)
                if nodes:
                    here = number * size
                    table[here : here + size] = (nodes & most).to_bytes(size, "little")
    bitmap = np.unpackbits(np.frombuffer(table, dtype=np.uint8), bitorder="little")
    found = bitmap.take(scheme.place).view(np.bool_)
    if scheme.macros:
        found[legal_macros(program, vocabulary)] = True
    found.setflags(write=False)
    return found


def _tried_rows(program: TensorIRProgram, scheme: Scheme, undecided: int) -> int:
    """Those of the `undecided` nodes, in a table of rows, that the compiler accepts."""
    found = 0
    for plan in scheme.plans:
        for number, row in plan.rows:
            asked = undecided >> number * scheme.width & (1 << scheme.width) - 1
            if asked:
                legal = _accepted(program, plan, row.prototype, row.actions, asked)
                found |= legal << number * scheme.width
    return found


def _legal_nodes(
    program: TensorIRProgram,
    plan: RowPlan,
    prototype: Transform,
    known: Container[int],
    asked: int,
) -> int:
    """The nodes among `asked` whose transform is legal.

    Of those that must be tried only the `known` are answered.
    """
    legal, undecided = decide(program.facts, plan, prototype, asked)
    if undecided:
        legal |= _accepted(program, plan, prototype, known, undecided)
    return legal


def _accepted(
    program: TensorIRProgram,
    plan: RowPlan,
    prototype: Transform,
    known: Container[int],
    undecided: int,
) -> int:
    """Those of the `undecided` nodes that are `known` and that the compiler accepts."""
    found = 0
    for node in bits(undecided):
        if node in known and _tried(program, _member(plan, prototype, node)):
            found |= 1 << node
    return found


def _member(plan: RowPlan, prototype: Transform, node: int) -> Transform:
    """The transform like `prototype` that acts on `node`."""
    if not plan.node_field:
        return prototype
    return replace(prototype, **{plan.node_field: node})  # type: ignore[type-var]


def is_legal(program: TensorIRProgram, transform: Transform) -> bool:
    """Whether `apply` would accept `transform`, without a trial where that is clear."""
    here = node_bit(program.facts, transform)
    return here != 0 and legal_nodes(program, transform, here) != 0


def legal_nodes(program: TensorIRProgram, prototype: Transform, among: int = EVERYTHING) -> int:
    """The nodes `among` which a transform like `prototype` is legal, as bits; its own is not asked.

    What one row of a mask says, for a transform that need not be in any vocabulary.
    """
    if not meaningful(prototype):
        return 0
    plan, facts = plan_of(type(prototype)), program.facts
    block = getattr(prototype, "block", -1) if plan.node_field == "loop" else -1
    if plan.movers is not None and not (block >= 0 and plan.movers(facts) >> block & 1):
        return 0
    asked = asked_nodes(facts, plan._replace(prototype=prototype)) & among
    return _legal_nodes(program, plan, prototype, range(asked.bit_length()), asked)


_TRIALS = NodeCache()


def _tried(program: TensorIRProgram, transform: Transform) -> bool:
    """Whether the compiler accepts a transform that its shortcut leaves undecided."""
    nodes = _what_decides(program.facts, transform)
    if nodes is None:
        return _trial(program, transform)
    key = (transform.name, *map(hash, nodes))
    hit = _TRIALS.entries.get(key)
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    return _TRIALS.put_at(key, nodes, _trial(program, transform))  # type: ignore[no-any-return]


def _what_decides(facts: Facts, transform: Any) -> tuple[Any, Any] | None:
    """The two nodes on which the compiler's answer depends, once a shortcut has left it open.

    Shortcuts look at everything that lies further away: order, writers, outputs, flags. What is
    open is whether the regions inside the loop determine the block's domain (`ComputeAt`), or
    whether the block's indices invert those of its producer (`ReverseComputeInline`).
    """
    if facts.bound:
        return None  # the compiler relaxes regions over thread axes that lie further out
    if transform.name == "ComputeAt":
        return facts.placed[transform.block].realize, facts.loops[transform.loop].node
    if transform.name == "ReverseComputeInline" and len(facts.producers[transform.block]) == 1:
        producer = facts.producers[transform.block][0]
        return facts.placed[transform.block].realize, facts.placed[producer].realize
    return None


def _trial(program: TensorIRProgram, transform: Transform) -> bool:
    if not isinstance(transform, ScheduleTransform):
        return False
    schedule = program.schedule
    try:
        transform.apply_to(schedule, Handles(schedule, program.nest))
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def defined_mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """The mask by the bare definition: every rule and a trial for every action. Slow; for tests."""
    found = np.zeros(len(vocabulary), dtype=np.bool_)
    known, program.masks = program.masks, {}  # rules are asked again even where a mask said yes
    for action, transform in enumerate(vocabulary):
        try:
            program.apply(transform)
        except IllegalTransformError:
            continue
        found[action] = True
    program.masks = known
    return found
