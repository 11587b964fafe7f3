"""The garbage collector is spared what the compiler's import leaves, unless it is asked not to be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import gc
from tirgym.harness.backend import backend
from tirgym.kernels_suite.registry import load_workload
compiler = backend("llvm")
assert gc.get_freeze_count() == 0
compiler.start(load_workload("add", {"m": 4, "n": 8}), compiler.target())
print(gc.get_freeze_count())
"""


@pytest.mark.parametrize(("setting", "frozen"), [(None, True), ("1", True), ("0", False)])
def test_the_first_program_freezes_what_lives(setting: str | None, frozen: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TIRGYM_GC_FREEZE"}
    if setting is not None:
        environment["TIRGYM_GC_FREEZE"] = setting
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 10_000) == frozen
