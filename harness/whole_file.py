"""`write_whole`: replace a file so that whatever happens leaves the old one or the new one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Put `content`, text as UTF-8, into the file at `path`; its folder is made if need be.

    A crash, a kill or a full disk leaves the old file or none, and writers at the same time each
    write a whole one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
