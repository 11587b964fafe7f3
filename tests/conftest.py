"""Shared by all tests: a private data folder, one thread for every maths library."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["command_line", "hash_seeds", "learned_dataset", "toy_compiler", "unpaid"]

for variable in ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# A shell that runs the tests in the background hands down an ignored Ctrl-C, which tests of it send.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or writes the user's measurement store."""
    home = tmp_path_factory.mktemp("home")
    before = os.environ.get("TIRGYM_HOME")
    os.environ["TIRGYM_HOME"] = str(home)
    yield home
    if before is None:
        del os.environ["TIRGYM_HOME"]
    else:
        os.environ["TIRGYM_HOME"] = before
