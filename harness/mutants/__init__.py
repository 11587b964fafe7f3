"""Mutants: programs that look like a kernel and compute something else, for the gate's own tests.

Each mutator is a pure function from an IRModule to a mutated one, or None where it makes no sense
on that program. Every mutant of the literal table in `tirgym.benchmarks.mutant_table` differs in
meaning from its kernel, so a gate that lets one pass is broken.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tirgym.errors import UnknownNameError

__all__ = ["KINDS", "mutate"]

KINDS: dict[str, str] = {
    "store_deleted": "structure",
    "stale_output": "structure",
    "constant_output": "structure",
    "reduction_halved": "structure",
    "loop_short": "structure",
    "loop_long": "structure",
    "init_dropped": "structure",
    "row_skipped": "structure",
    "last_element_unwritten": "structure",
    "transposed_write": "structure",
    "one_element_wrong": "structure",
    "input_modified": "structure",
    "operator_changed": "values",
    "operands_swapped": "values",
    "constant_changed": "values",
    "epilogue_skipped": "values",
    "accumulate_float16": "values",
    "inputs_float16": "values",
    "read_offset": "values",
    "edge_read": "values",
    "index_off_by_one": "values",
    "unsafe_dtype": "compiler",
    "layout_not_injective": "compiler",
    "wrong_regions": "compiler",
}
"""Kind of mutation → module of this package that defines a function of that name."""


def mutate(kind: str, mod: Any) -> Any | None:
    """The IRModule `mod` (one function "main") with one defect of `kind`; None where it has none.

    `mod` does not change. Raises UnknownNameError for a kind that is not in the table.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of mutation", kind, sorted(KINDS))
    return getattr(import_module(f"{__name__}.{KINDS[kind]}"), kind)(mod)
