"""Stores that ship with the package: packed for shipping, and unpacked once into the user's cache.

A packed store is an SQLite file under xz, beside a JSON file with its digest. Loading it runs nothing that
stands in it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.errors import DamagedFileError
from tirgym.harness.whole_file import write_whole

__all__ = ["SHIPPED", "SUFFIX", "is_shipped", "pack", "shipped_store", "to_read", "unpack"]

SUFFIX = ".sqlite.xz"
"""What the name of a packed store ends in."""
SHIPPED = ("core-v0",)
"""Names of the stores that ship."""
_WHAT = "packed measurement store"
_LIMIT = 512 << 20
"""Bytes that an unpacked store may have, so that a bad file cannot fill the disk."""


def is_shipped(store: object) -> bool:
    """Whether `store` names a store that ships, and no file (an absolute path would)."""
    return isinstance(store, str | os.PathLike) and os.fspath(store) in SHIPPED


@cache
def shipped_store(name: str) -> Path:
    """The unpacked file of the shipped store called `name`; to be opened read-only.

    Raises DamagedFileError if the packed file, or its digest, is not what it should be.
    """
    packed = Path(str(files("tirgym") / "data" / f"{name}{SUFFIX}"))
    return unpack(packed, settings.cache_dir() / "stores")


def to_read(store: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """The file to read: of a path, of the name of a store that ships, or with None the user's store."""
    if store is None:
        return settings.store_path()
    return shipped_store(str(store)) if is_shipped(store) else store


def pack(store: Path, path: Path, facts: Mapping[str, Any]) -> str:
    """Write a closed store to `path`, and its digest and `facts` beside it; answers the digest."""
    content = store.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    write_whole(path, packed)
    described = {**facts, "sha256": digest, "bytes": len(content)}
    write_whole(_facts_path(path), json.dumps(described, indent=2, sort_keys=True) + "\n")
    return digest


def unpack(path: Path, folder: Path) -> Path:
    """The store packed at `path` as a file in `folder`, which is made once; whole or not at all.

    A file there that is not what it was is made again. Raises DamagedFileError.
    """
    wanted = _expected(path)
    made = folder / f"{path.name.removesuffix(SUFFIX)}-{wanted[:16]}.sqlite"
    if made.exists() and _digest(made) == wanted:
        return made
    try:
        unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        content = unpacker.decompress(path.read_bytes(), max_length=_LIMIT)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise DamagedFileError(str(path), _WHAT, str(error)) from None
    if not unpacker.eof or hashlib.sha256(content).hexdigest() != wanted:
        problem = "its content is not that of its digest; install the package again"
        raise DamagedFileError(str(path), _WHAT, problem)
    write_whole(made, content)
    return made


def _expected(path: Path) -> str:
    """The digest that the unpacked content must have."""
    facts = _facts_path(path)
    try:
        digest = json.loads(facts.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"no digest ({error}); install the package again"
        raise DamagedFileError(str(facts), _WHAT, problem) from None
    if not isinstance(digest, str) or len(digest) != 64:
        raise DamagedFileError(
            str(facts), _WHAT, "a digest that is none; install the package again"
        )
    return digest


def _facts_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX) + ".json")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
