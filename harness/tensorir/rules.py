"""The vocabulary rules: what tirgym refuses beyond what the compiler refuses, one function each.

A rule looks at a whole row of transforms at once: those that differ only in the node they act on
(`Split` by 8 of any loop, `ComputeAt` of block 2 at any loop). It gets one of them as a prototype and
answers the set of nodes it refuses, as bits; a single transform is one bit of its row. So the mask
of thousands of actions and the verdict on one of them are the same code.

None of them looks at how the program was made: legality is a function of IR and target. Many exist
because TVM 0.27 accepts, and then silently miscompiles, what they refuse. The classes of holes, each
with a small sequence that shows it:

A  `ReverseComputeAt` of a block without producer moves it past its consumers.
B  a consumer moved into a reduction loop of its producer reads partial sums (softmax).
C  `ReverseComputeAt` of a block that reads with an offset or under a guard shrinks its domain to what
   it reads (padding of conv2d, concat).
D  blocks moved below a vectorized loop, or a loop vectorized around several blocks (softmax).
E  `DecomposeReduction` above a loop that recomputes the block adds sums several times (softmax).
F  `ReverseComputeAt` below a strided tile takes the tile's hull for its region (matmul).
G  `ReverseComputeInline` drops the producer's buffer although another block reads it (silu).
H  `Reorder` of the halves of a loop that was fused from a spatial and a reduction loop and split
   again: the initialisation comes in the middle of the sum (row maximum, matvec).
I  `ComputeAt` of a block that is read at an index that depends on data binds iterators to data, which
   later transforms corrupt (gather).
J  a block moved away from a producer that is recomputed for it: storage rewriting then lets the
   producer overwrite its input in place, and the next round reads the result (attention).
K  `ReverseComputeInline` of a block that crops what its producer padded: the padding is written into
   the smaller buffer, past the end of its rows and of the buffer (skinny matmul after `PadEinsum`).
L  staging what a guarded block reads or writes: the copy runs without the guard, out of bounds (pad).
M  an index that falls while an iterator rises, divided: n-1-i over tiles of 8 becomes 8-i, out of
   bounds. Layout changes divide indices, and inlining puts one index into another (reversed chain).
"""

from __future__ import annotations

from functools import cache

from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.rule import Rule
from tirgym.harness.tensorir.rule_table_loops import LOOP_RULES
from tirgym.harness.tensorir.rule_table_moves import MOVE_RULES
from tirgym.harness.transforms.base import Transform

__all__ = ["RULES", "first_refusal", "node_bit", "rules_for"]

RULES: tuple[Rule, ...] = (*LOOP_RULES, *MOVE_RULES)
"""Every rule, in the order in which they are asked; the first that refuses gives the reason."""


@cache
def rules_for(kind: str, by_row: bool | None = None) -> tuple[Rule, ...]:
    """The rules that judge transforms of class `kind`, or only those that do it by row or not."""
    found = (rule for rule in RULES if not rule.kinds or kind in rule.kinds)
    return tuple(rule for rule in found if by_row is None or rule.by_row == by_row)


def node_bit(facts: Facts, transform: Transform) -> int:
    """The node of `transform` as a mask; 0 where it does not exist, whatever the number: the bit of
    loop 2^36 would fill the memory."""
    axis = transform.node_field()
    if not axis:
        return 1
    node, nodes = getattr(transform, axis), facts.all_loops if axis == "loop" else facts.all_blocks
    return 1 << node if 0 <= node < nodes.bit_length() else 0


def first_refusal(facts: Facts, transform: Transform) -> Rule | None:
    """The first rule that refuses `transform`."""
    here = node_bit(facts, transform)
    if not here:
        return RULES[0]
    rules = rules_for(transform.name)
    return next((r for r in rules if r.refused(facts, transform, here) & here), None)
