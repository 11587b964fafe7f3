"""`PreparedSet`: the prepared kernels of a folder, by name, and a key of all their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tirgym.harness.cuda.prepared import prepared_files

__all__ = ["SHIPPED", "PreparedSet"]

SHIPPED = Path(__file__).parent / "prepared"
"""what comes with the package"""


@dataclass(frozen=True)
class PreparedSet:
    """Files that are read when their row is made, so that a damaged one costs its row alone."""

    files: Mapping[str, Path] = field(default_factory=dict)
    """kernel → path"""
    key: str = ""
    """16 hex digits of names and bytes"""

    @classmethod
    def of(cls, folder: Path = SHIPPED) -> PreparedSet:
        """Raises UsageError for a folder without prepared kernels, or with too many bytes."""
        digest = hashlib.sha256()
        files: dict[str, Path] = {}
        for path in prepared_files(folder):
            files[path.name.split(".")[0]] = path
            digest.update(path.name.encode() + path.read_bytes())
        return cls(files, digest.hexdigest()[:16])
