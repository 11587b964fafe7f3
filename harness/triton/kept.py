"""`kept`: what was found out about compiled kernels, on disk beside them, by what it follows from.

The key holds this package's own code: another executor or cost model finds everything out anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tirgym.harness.triton.compiling import triton_cache
from tirgym.harness.whole_file import write_whole

__all__ = ["kept", "sources"]


def kept(
    kind: str, parts: Sequence[object], make: Callable[[], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """What `make` answered for equal `parts` before, else what it answers now; None is not kept.

    `parts` are written with `repr`; answers are JSON objects. A damaged file counts as none.
    """
    text = repr((kind, _code(), *parts))
    path = triton_cache() / kind / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    try:
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict):
            return found
    except (OSError, ValueError):
        pass
    made = make()
    if made is not None:
        write_whole(path, json.dumps(made, sort_keys=True))
    return made


@cache
def _code() -> str:
    """Hash of the modules that answers follow from."""
    found = hashlib.sha256()
    for path in sources():
        found.update(path.read_bytes())
    return found.hexdigest()


def sources() -> list[Path]:
    """Files of those modules: compiler and executor, the gate, and the kernels with their references."""
    here = Path(__file__).parent
    harness, kernels = here.parent, here.parent.parent / "kernels_suite"
    gate = (harness / f"{name}.py" for name in ("buffers", "gate", "judge"))
    return sorted([*here.rglob("*.py"), *gate, *kernels.rglob("*.py")])
