"""Macro actions: several transforms of the Schedule environment in one; the tables of vocabularies.

Entries are lazy `"module:Class"` strings, so that importing this package imports no compiler. A
macro is in vocabularies and in no trace: programs record the transforms that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from tirgym.errors import UnknownNameError

if TYPE_CHECKING:
    from tirgym.harness.macros.base import Macro
    from tirgym.harness.transforms.base import SlotLimits
    from tirgym.harness.vocabulary import Vocabulary

__all__ = [
    "MACROS",
    "MACRO_VOCABULARIES",
    "SCHEDULE_VOCABULARIES",
    "VOCABULARY_NAMES",
    "load_macro",
    "named_vocabulary",
]

MACROS: Mapping[str, str] = {
    "MultiLevelTile": "tirgym.harness.macros.multi_level_tile:MultiLevelTile",
    "CacheWriteAt": "tirgym.harness.macros.cache_write_at:CacheWriteAt",
    "CacheReadAt": "tirgym.harness.macros.cache_read_at:CacheReadAt",
    "PackRead": "tirgym.harness.macros.pack_read:PackRead",
    "PartialSums": "tirgym.harness.macros.partial_sums:PartialSums",
    "FuseProducers": "tirgym.harness.macros.fuse_producers:FuseProducers",
    "InlineAll": "tirgym.harness.macros.inline_all:InlineAll",
    "FuseParallel": "tirgym.harness.macros.fuse_parallel:FuseParallel",
    "VectorizeInner": "tirgym.harness.macros.vectorize_inner:VectorizeInner",
    "UnrollBudget": "tirgym.harness.macros.unroll_budget:UnrollBudget",
    "DecomposeAll": "tirgym.harness.macros.decompose_all:DecomposeAll",
}
"""Name → "module:Class"."""

MACRO_VOCABULARIES: Mapping[str, tuple[str, ...]] = {"llvm": tuple(MACROS)}
"""Names of the macros in the action table, in order, by backend."""

OPTION_BACKENDS = ("llvm",)
"""Backends whose compiler has options that programs can carry."""

VOCABULARY_NAMES = ("primitive", "macro", "both", "options", "primitive+options")
"""Single transforms, macros, macros after single transforms, options of the compiler alone, and options
after single transforms."""
SCHEDULE_VOCABULARIES = VOCABULARY_NAMES[:3]
"""Those whose actions cost models see: a search that goes by predictions is blind to options."""
_OPTIONS = "Configure"


@cache
def load_macro(name: str) -> type[Macro]:
    """The macro class called `name`; raises UnknownNameError listing the names that exist."""
    if name not in MACROS:
        raise UnknownNameError("macro", name, MACROS)
    module, _, attribute = MACROS[name].partition(":")
    return cast("type[Macro]", getattr(import_module(module), attribute))


def named_vocabulary(
    name: str, backend: str = "llvm", *, limits: SlotLimits | None = None
) -> Vocabulary:
    """The action table called `name`, one of VOCABULARY_NAMES, of a backend.

    Raises UnknownNameError for an unknown name, and for a backend without such a table.
    """
    from tirgym.harness.transforms import default_vocabulary, load_transform
    from tirgym.harness.vocabulary import Vocabulary

    if name not in VOCABULARY_NAMES:
        raise UnknownNameError("vocabulary", name, VOCABULARY_NAMES)
    primitive = default_vocabulary(backend, limits=limits)
    if name == "primitive":
        return primitive
    if name.endswith("options"):
        if backend not in OPTION_BACKENDS:
            raise UnknownNameError("backend with options of the compiler", backend, OPTION_BACKENDS)
        kinds = primitive.kinds if name != "options" else ()
        return Vocabulary([*kinds, load_transform(_OPTIONS)], limits)
    if backend not in MACRO_VOCABULARIES:
        raise UnknownNameError("backend with macros", backend, sorted(MACRO_VOCABULARIES))
    macros = [load_macro(macro) for macro in MACRO_VOCABULARIES[backend]]
    return Vocabulary([*(primitive.kinds if name == "both" else ()), *macros], limits)
