"""What a compiler writes on file descriptor 2, kept: MLIR, LLVM and ptxas say there what is wrong."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Captured", "captured_stderr", "complaints", "last_line"]

_COMPLAINT = re.compile(
    r"\b(error|warning|fatal)\b\s*:|^LLVM ERROR|^Fatal|Assertion", re.IGNORECASE
)
_LOCATION = re.compile(r"^(?:loc\()?\"?\S*?/(?:tmp\w+\.)?([\w.]+)\"?(:\d+:\d+)\)?:")
_MAX_LINES = 8
_MAX_LINE = 300
_MAX_BYTES = 1 << 20


@dataclass
class Captured:
    """Filled when the block ends."""

    text: str = ""


@contextmanager
def captured_stderr() -> Iterator[Captured]:
    """What this process and its children write on file descriptor 2 inside the block.

    The first MiB is kept. For the whole process: nothing else should write meanwhile.
    """
    captured = Captured()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield captured
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            captured.text = file.read(_MAX_BYTES).decode("utf-8", "replace")


def complaints(text: str) -> str:
    """The lines of compiler output that say what is wrong, without the module that is dumped with
    them and without folders; "" if there are none."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        if _COMPLAINT.search(line) and len(line) < 2000:
            found[_LOCATION.sub(r"\1\2:", line.strip())] = None
    return "\n".join(list(found)[:_MAX_LINES])


def last_line(text: str) -> str:
    """The last line of what a process wrote, its first 300 characters; "" if it wrote nothing."""
    lines = text.strip().splitlines()
    return lines[-1][:_MAX_LINE] if lines else ""
