"""The one definition of legality: the vocabulary rules pass and the compiler accepts on a copy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule

from tirgym.errors import IllegalTransformError
from tirgym.harness.macros.base import Macro
from tirgym.harness.macros.draft import legal_macros
from tirgym.harness.target import Target
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.tensorir.handles import Handles, new_schedule
from tirgym.harness.tensorir.nest import NodeCache
from tirgym.harness.tensorir.rule_limits import missing
from tirgym.harness.tensorir.rule_storage import meaningful, parameters
from tirgym.harness.tensorir.rules import Refusal, first_refusal, rules_for
from tirgym.harness.tensorir.shortcuts import MOVERS, SHORTCUTS, Verdict, always
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Row, Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["apply", "defined_mask", "legal_nodes", "mask"]


def apply(program: TensorIRProgram, transform: Transform) -> Schedule:
    """The schedule after `transform`; raises IllegalTransformError. `program` does not change."""
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


class _Plan(NamedTuple):
    """How one kind of transform is decided, with everything looked up beforehand."""

    node_field: str
    prototype: Any
    group_refusals: tuple[Refusal, ...]
    """rules that look at the node alone"""
    sure: bool
    """the compiler accepts whatever no rule refuses"""
    shortcut: Callable[[Facts, Any, int], Verdict] | None
    row_refusals: tuple[Refusal, ...]
    """rules that look at other parameters too"""
    rows: tuple[tuple[int, Row], ...]
    """those whose parameters mean something, with their number in the vocabulary"""
    movers: Callable[[Facts], int] | None
    """for rows that name a block besides the node: the blocks worth asking about"""


@lru_cache(maxsize=16)
def _plans(vocabulary: Vocabulary) -> tuple[_Plan, ...]:
    found = []
    number = 0
    for kind, group in zip(vocabulary.spans, vocabulary.groups, strict=True):
        rows = tuple((i, r) for i, r in enumerate(group.rows, number) if meaningful(r.prototype))
        number += len(group.rows)
        if rows and not issubclass(kind, Macro):
            found.append(_plan_of(kind)._replace(prototype=rows[0][1].prototype, rows=rows))
    return tuple(found)


@lru_cache(maxsize=64)
def _plan_of(kind: type[Transform]) -> _Plan:
    """How transforms of `kind` are decided; without rows, and so without a prototype."""
    shortcut = SHORTCUTS.get(kind.name)
    sure = shortcut is always
    by_group = tuple(r.refused for r in rules_for(kind.name, by_row=False))
    by_row = tuple(
        r.refused
        for r in rules_for(kind.name, by_row=True)
        if r.refused not in (missing, parameters)
    )
    return _Plan(
        kind.node_field(),
        None,
        by_group,
        sure,
        None if sure else shortcut,
        by_row,
        (),
        MOVERS.get(kind.name),
    )


@lru_cache(maxsize=16)
def _places(vocabulary: Vocabulary) -> tuple[int, int, NDArray[np.intp]]:
    """Number of rows, bytes of a bit set over nodes, and for each action its bit in all of them."""
    rows = [row for group in vocabulary.groups for row in group.rows]
    width = max((node for row in rows for node in row.actions), default=0) // 8 + 1
    place = np.zeros(len(vocabulary), dtype=np.intp)
    for number, row in enumerate(rows):
        for node, action in row.actions.items():
            place[action] = number * width * 8 + node
    return len(rows), width, place


def _make_mask(program: TensorIRProgram, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Rules and shortcuts decide by rows; what is left is tried on copies."""
    facts = program.facts
    count, width, place = _places(vocabulary)
    table = bytearray(count * width)
    most = (1 << 8 * width) - 1
    for plan in _plans(vocabulary):
        asked = _asked(facts, plan)
        if not asked:
            continue
        movers = facts.all_blocks if plan.movers is None else plan.movers(facts)
        for number, row in plan.rows:
            if row.block < 0 or movers >> row.block & 1:
                legal = _legal_nodes(program, plan, row.prototype, row.actions, asked)
                if legal:
                    here = number * width
                    table[here : here + width] = (legal & most).to_bytes(width, "little")
    bitmap = np.unpackbits(np.frombuffer(table, dtype=np.uint8), bitorder="little")
    found = bitmap[place].view(np.bool_)
    if any(issubclass(kind, Macro) for kind in vocabulary.spans):
        found[legal_macros(program, vocabulary)] = True
    found.setflags(write=False)
    return found


def _asked(facts: Facts, plan: _Plan) -> int:
    """The nodes that exist and that no rule refuses whatever the other parameters are."""
    node = plan.node_field
    asked = facts.all_loops if node == "loop" else facts.all_blocks if node == "block" else 1
    for refused in plan.group_refusals:
        if not asked:
            break
        asked &= ~refused(facts, plan.prototype, asked)
    return asked


def _legal_nodes(
    program: TensorIRProgram, plan: _Plan, prototype: Transform, known: Container[int], asked: int
) -> int:
    """The nodes among `asked` whose transform is legal; the cheapest questions come first.

    Of those that must be tried only the `known` are answered.
    """
    facts = program.facts
    accepted = asked if plan.sure else 0
    if plan.shortcut is not None:
        accepted, impossible = plan.shortcut(facts, prototype, asked)
        asked &= ~impossible
    for refused in plan.row_refusals:
        if not asked:
            return 0
        asked &= ~refused(facts, prototype, asked)
    undecided = asked & ~accepted
    if undecided:
        for node in bits(undecided):
            if node not in known or not _tried(program, _member(plan, prototype, node)):
                asked &= ~(1 << node)
    return asked


def _member(plan: _Plan, prototype: Transform, node: int) -> Transform:
    """The transform like `prototype` that acts on `node`."""
    if not plan.node_field:
        return prototype
    return replace(prototype, **{plan.node_field: node})  # type: ignore[type-var]


def legal_nodes(program: TensorIRProgram, prototype: Transform) -> int:
    """The nodes on which a transform like `prototype` is legal, as bits; its own node is not asked.

    What one row of a mask says, for a transform that need not be in any vocabulary.
    """
    if not meaningful(prototype):
        return 0
    plan, facts = _plan_of(type(prototype)), program.facts
    block = getattr(prototype, "block", -1) if plan.node_field == "loop" else -1
    if plan.movers is not None and not plan.movers(facts) >> block & 1:
        return 0
    asked = _asked(facts, plan._replace(prototype=prototype))
    return _legal_nodes(program, plan, prototype, range(asked.bit_length()), asked)


_TRIALS = NodeCache(1 << 11)


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
        return facts.blocks[transform.block].realize, facts.loops[transform.loop].node
    if transform.name == "ReverseComputeInline" and len(facts.producers[transform.block]) == 1:
        producer = facts.producers[transform.block][0]
        return facts.blocks[transform.block].realize, facts.blocks[producer].realize
    return None


def _trial(program: TensorIRProgram, transform: Transform) -> bool:
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
