"""The transform table: every transform by name, its text form, and the default vocabularies.

Entries are lazy `"module:Class"` strings, so that importing this package imports no compiler. Third
parties add transforms through the entry point group `tirgym.transforms`; such a transform joins a
vocabulary only when it is named in `extra`.

STOP is no transform: it changes no program, so environments add it to their action table.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.transforms.base import SlotLimits, Transform, parse_call

if TYPE_CHECKING:
    from tirgym.harness.vocabulary import Vocabulary

__all__ = [
    "OPT_IN",
    "TRANSFORMS",
    "VOCABULARIES",
    "default_vocabulary",
    "load_transform",
    "parse_transform",
    "slot_limits",
]

_TABLE: tuple[tuple[str, str], ...] = (
    ("Split", "tirgym.harness.transforms.split:Split"),
    ("Reorder", "tirgym.harness.transforms.reorder:Reorder"),
    ("Fuse", "tirgym.harness.transforms.fuse:Fuse"),
    ("Vectorize", "tirgym.harness.transforms.vectorize:Vectorize"),
    ("Parallel", "tirgym.harness.transforms.parallel:Parallel"),
    ("Unroll", "tirgym.harness.transforms.unroll:Unroll"),
    ("DecomposeReduction", "tirgym.harness.transforms.decompose_reduction:DecomposeReduction"),
    ("RFactor", "tirgym.harness.transforms.rfactor:RFactor"),
    ("CacheRead", "tirgym.harness.transforms.cache_read:CacheRead"),
    ("CacheWrite", "tirgym.harness.transforms.cache_write:CacheWrite"),
    ("ComputeInline", "tirgym.harness.transforms.compute_inline:ComputeInline"),
    (
        "ReverseComputeInline",
        "tirgym.harness.transforms.reverse_compute_inline:ReverseComputeInline",
    ),
    ("ComputeAt", "tirgym.harness.transforms.compute_at:ComputeAt"),
    ("ReverseComputeAt", "tirgym.harness.transforms.reverse_compute_at:ReverseComputeAt"),
    ("UnrollPragma", "tirgym.harness.transforms.unroll_pragma:UnrollPragma"),
    ("SetScope", "tirgym.harness.transforms.set_scope:SetScope"),
    ("StorageAlign", "tirgym.harness.transforms.storage_align:StorageAlign"),
    ("TransformLayout", "tirgym.harness.transforms.transform_layout:TransformLayout"),
    ("PadEinsum", "tirgym.harness.transforms.pad_einsum:PadEinsum"),
    ("PadAxis", "tirgym.harness.transforms.pad_axis:PadAxis"),
    ("Tensorize", "tirgym.harness.transforms.tensorize:Tensorize"),
    ("VectorMath", "tirgym.harness.transforms.vector_math:VectorMath"),
    ("Bind", "tirgym.harness.transforms.bind:Bind"),
    ("SoftwarePipeline", "tirgym.harness.transforms.software_pipeline:SoftwarePipeline"),
    ("Configure", "tirgym.harness.transforms.configure:Configure"),
    ("StorePrecision", "tirgym.harness.transforms.store_precision:StorePrecision"),
    ("SetMeta", "tirgym.harness.triton.transforms.set_meta:SetMeta"),
    ("DropPass", "tirgym.harness.triton.transforms.drop_pass:DropPass"),
    ("RepeatPass", "tirgym.harness.triton.transforms.repeat_pass:RepeatPass"),
    ("MovePass", "tirgym.harness.triton.transforms.move_pass:MovePass"),
    ("InsertPass", "tirgym.harness.triton.transforms.insert_pass:InsertPass"),
    (
        "SetPassArgument",
        "tirgym.harness.triton.transforms.set_pass_argument:SetPassArgument",
    ),
)

_DEVICE_VOCABULARY = (
    "Split",
    "Reorder",
    "Fuse",
    "Bind",
    "Vectorize",
    "Unroll",
    "DecomposeReduction",
    "RFactor",
    "CacheRead",
    "CacheWrite",
    "ComputeInline",
    "ReverseComputeInline",
    "ComputeAt",
    "ReverseComputeAt",
    "SetScope",
    "UnrollPragma",
    "StorageAlign",
    "TransformLayout",
    "PadEinsum",
)
"""Of backends with thread axes. `Parallel` is the CPU's."""
_DEVICE_SCOPES = ("local", "shared")
_WMMA = (
    "wmma_load_a",
    "wmma_load_b",
    "wmma_load_b_transposed",
    "wmma_fill",
    "wmma_mma",
    "wmma_mma_transposed",
    "wmma_store",
)

VOCABULARIES: Mapping[str, tuple[str, ...]] = {
    "llvm": (
        "Split",
        "Reorder",
        "Fuse",
        "Vectorize",
        "Parallel",
        "Unroll",
        "DecomposeReduction",
        "RFactor",
        "CacheRead",
        "CacheWrite",
        "ComputeInline",
        "ReverseComputeInline",
        "ComputeAt",
        "ReverseComputeAt",
        "UnrollPragma",
        "SetScope",
        "StorageAlign",
        "TransformLayout",
        "PadEinsum",
        "Tensorize",
        "VectorMath",
    ),
    "triton": (
        "SetMeta",
        "DropPass",
        "RepeatPass",
        "MovePass",
        "InsertPass",
        "SetPassArgument",
    ),
    "cuda": (*_DEVICE_VOCABULARY, "Tensorize", "SoftwarePipeline"),
    "opencl": _DEVICE_VOCABULARY,
    "rocm": _DEVICE_VOCABULARY,
}
"""Names of the transforms in the default action table, in order, by backend."""

SLOTS: Mapping[str, Mapping[str, Any]] = {
    "cuda": {"scopes": _DEVICE_SCOPES, "intrinsics": _WMMA},
    "opencl": {"scopes": _DEVICE_SCOPES},
    "rocm": {"scopes": _DEVICE_SCOPES},
}
"""Fields of `SlotLimits` that differ from the defaults, by backend."""

OPT_IN: Mapping[str, str] = {
    "PadAxis": "answers of decision points use it; PadEinsum is the action",
    "Configure": "sets options of the compiler, which tirgym/Passes-v0 plays",
    "StorePrecision": "rounds intermediates, so it changes results: "
    "default_vocabulary(extra=['StorePrecision'])",
}
"""Why a transform is in no default vocabulary."""

ENTRY_POINT_GROUP = "tirgym.transforms"


def _lazy_table(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, where in entries:
        if name in table:
            raise InvalidValueError("transform table", name, "each name once")
        table[name] = where
    return table


TRANSFORMS: Mapping[str, str] = _lazy_table(_TABLE)
"""Name to `"module:Class"` of the transforms that tirgym ships."""


@cache
def _installed() -> dict[str, str]:
    """All names: the shipped ones and those of installed packages; duplicates raise."""
    found = sorted((e.name, e.value) for e in entry_points(group=ENTRY_POINT_GROUP))
    return _lazy_table([*_TABLE, *found])


@cache
def load_transform(name: str) -> type[Transform]:
    """The transform class called `name`; raises UnknownNameError listing the names that exist."""
    table = _installed()
    if name not in table:
        raise UnknownNameError("transform", name, sorted(table))
    module, _, attribute = table[name].partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    if not (isinstance(kind, type) and issubclass(kind, Transform)):
        raise InvalidValueError(f"transform {name}", table[name], "a subclass of Transform")
    return kind


def parse_transform(text: str) -> Transform:
    """The transform whose `str` is `text`, such as `Split(loop=2, factor=8)`.

    Raises UnknownNameError for an unknown head, InvalidValueError for any other problem.
    """
    head, arguments = parse_call(text)
    kind = load_transform(head)
    types = {f.name: "string" if f.type in ("str", str) else "integer" for f in fields(kind)}  # type: ignore[arg-type]
    form = f"{head}({', '.join(f'{name}={what}' for name, what in types.items())})"
    if set(arguments) != set(types):
        raise InvalidValueError("transform", text, form)
    for name, value in arguments.items():
        if isinstance(value, str) != (types[name] == "string"):
            raise InvalidValueError("transform", text, form)
    return kind(**arguments)


def slot_limits(backend: str, **fields: Any) -> SlotLimits:
    """The limits of the action table of `backend`, with some `fields` changed."""
    return SlotLimits(**{**SLOTS.get(backend, {}), **fields})


def default_vocabulary(
    backend: str = "llvm", *, limits: SlotLimits | None = None, extra: Iterable[str] = ()
) -> Vocabulary:
    """The action table of `backend`, followed by the transforms named in `extra`.

    A function of its arguments alone: on one thread `Parallel` keeps its actions, masked. Raises
    UnknownNameError for an unknown backend or transform, InvalidValueError for one named twice.
    """
    from tirgym.harness.vocabulary import Vocabulary

    if backend not in VOCABULARIES:
        raise UnknownNameError("backend with a vocabulary", backend, sorted(VOCABULARIES))
    names = (*VOCABULARIES[backend], *extra)
    _lazy_table((name, "") for name in names)
    limits = limits or slot_limits(backend)
    return Vocabulary([load_transform(name) for name in names], limits)
