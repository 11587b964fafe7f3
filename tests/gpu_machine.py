"""Whole commands on a machine whose GPU is a CPU: the driver's library and CuPy are those of
`stand_in_machine`, everything else is the real thing, worker processes among it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

__all__ = ["python_on_gpu", "tirgym_on_gpu"]

_HERE = Path(__file__).parent
_MACHINE = _HERE / "stand_in_machine"


@cache
def _driver() -> Path:
    """Folder of libcuda.so.1, made once for each process of the tests."""
    folder = Path(mkdtemp(prefix="tirgym-driver-"))
    command = ["g++", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    made = [str(_MACHINE / "libcuda.cpp"), "-o", str(folder / "libcuda.so.1"), "-ldl"]
    subprocess.run([*command, *made], check=True)
    return folder


def python_on_gpu(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`python *arguments` on the machine with the GPU."""
    libraries = os.pathsep.join(filter(None, (str(_driver()), os.environ.get("LD_LIBRARY_PATH"))))
    paths = [str(_MACHINE), str(_HERE), *filter(None, sys.path)]
    machine = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **machine, "TIRGYM_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def tirgym_on_gpu(*arguments: str, home: Path) -> dict[str, Any]:
    """The JSON answer of a command that must succeed."""
    done = python_on_gpu("-m", "tirgym", *arguments, "--json", home=home)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
