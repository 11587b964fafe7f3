"""`Rule`: one reason to refuse transforms, and the classes of transforms that rules name together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tirgym.harness.tensorir.facts import Facts

__all__ = [
    "INLINES",
    "MARKS",
    "MOVES",
    "PADDING",
    "STAGES",
    "STORAGE",
    "STRUCTURAL",
    "Refusal",
    "Rule",
]

STRUCTURAL = ("Split", "Reorder", "Fuse")
MARKS = ("Vectorize", "Parallel", "Unroll", "UnrollPragma")
MOVES = ("ComputeAt", "ReverseComputeAt")
INLINES = ("ComputeInline", "ReverseComputeInline")
STAGES = ("CacheRead", "CacheWrite")
PADDING = ("PadEinsum", "PadAxis")
STORAGE = ("SetScope", "StorageAlign", "TransformLayout", "StorePrecision")

Refusal = Callable[[Facts, Any, int], int]


class Rule(NamedTuple):
    """One reason to refuse.

    `refused(facts, prototype, asked)` is a bit set over the row's nodes; only the members of `asked`
    matter, so that a rule need not look at nodes that are illegal anyway.
    """

    name: str
    reason: str
    kinds: tuple[str, ...]
    """class names of the transforms it judges; empty: all"""
    refused: Refusal
    by_row: bool = False
    """the answer depends on more than the node: on a factor, or on the block that is moved"""
    by_extent: bool = False
    """the answer for a loop depends on its extent alone"""
    by_content: bool = False
    """the answer depends on what the blocks hold, read and write: not on loops, guards or target"""
