"""What code says in two interpreters that iterate sets of strings in another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HASH_SEEDS = ("1", "77")
"""Of the two interpreters, in each as PYTHONHASHSEED."""

_SERVER = """
import json, os, sys, traceback
import tvm, tirgym

for line in sys.stdin:
    code, arguments, path = json.loads(line)
    process = os.fork()
    if process == 0:
        ended = 1
        try:
            for name, fixed in ((path, 1), (path + ".errors", 2)):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fixed)
            sys.argv[1:] = arguments
            exec(compile(code, "code", "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
            ended = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(ended)
    print(os.waitpid(process, 0)[1], flush=True)
"""
"""Imports the compiler once; each request runs in a fork that has imported nothing else."""

Alike = Callable[..., str]


@pytest.fixture(scope="session")
def _interpreters() -> Iterator[tuple[subprocess.Popen[str], ...]]:
    paths = os.pathsep.join(path for path in sys.path if path)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]
    yield tuple(started)
    for process in started:
        process.communicate()


@pytest.fixture
def alike(_interpreters: tuple[subprocess.Popen[str], ...], tmp_path: Path) -> Alike:
    """`alike(code, *arguments)` is what the code prints, which must be the same in both."""

    def run(code: str, *arguments: object) -> str:
        given = [str(argument) for argument in arguments]
        for seed, process in zip(HASH_SEEDS, _interpreters, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps([code, given, str(tmp_path / f"said-{seed}")]) + "\n")
            process.stdin.flush()
        ended = [process.stdout.readline() for process in _interpreters if process.stdout]
        said, errors = (
            [(tmp_path / f"said-{seed}{kind}").read_text() for seed in HASH_SEEDS]
            for kind in ("", ".errors")
        )
        assert ended == ["0\n", "0\n"], errors
        assert said[0] == said[1]
        return said[0]

    return run
