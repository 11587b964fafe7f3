"""`tirgym mcp`: options, missing parts, and what starting it loads."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from command_line import Cli


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--port", "8000"], "--port: 8000 is not accepted; expected --http beside it"),
        (["--json"], "expected --http: on stdio stdout carries the protocol"),
        (["--http", "--port", "70000"], "expected a free port from 1 to 65535, or 0 for any"),
        (["--http", "--port", "-1"], "expected a free port from 1 to 65535, or 0 for any"),
        (["--sessions", "0"], "--sessions: 0 is not accepted"),
        (["--trials", "0"], "--trials: 0 is not accepted"),
        (["--seconds", "-5"], "--seconds: -5.0 is not accepted"),
        (["--idle", "nan"], "--idle: nan is not accepted"),
        (["--threads", "4096"], "num_threads: 4096 is not accepted"),
        (["--arch", "pentium9"], "expected an LLVM mcpu name"),
        (
            ["--backend", "xyzzy"],
            "unknown backend 'xyzzy'. Accepted: cuda, llvm, opencl, rocm, triton",
        ),
        (["--out", "/proc/nowhere/traces"], "expected a path in a folder that can be written"),
        (["--store", "/proc/nowhere/store.sqlite"], "a path in a folder that can be written"),
        (["stdio"], "unexpected extra argument"),
    ],
)
def test_bad_options_are_one_line(cli: Cli, options: list[str], line: str) -> None:
    done = cli("mcp", *options)
    assert done.code == 2
    assert line in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_a_port_that_is_taken_is_one_line(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = cli("mcp", "--http", "--port", port)
    assert done.code == 2
    assert f"--port: {port} is not accepted; expected a free port" in done.err


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, without input."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize("module", ["mcp", "mcp.server.mcpserver", "mcp_types"])
def test_without_its_extra_it_says_how_to_get_it(module: str) -> None:
    """Also where an older version is installed, which lacks a part."""
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from tirgym.cli import main; sys.exit(main(['mcp']))"
    )
    done = python(code)
    assert done.returncode == 2
    assert done.stderr == (
        "tirgym: error: tirgym mcp needs the package mcp 2.3 or newer, which is not installed; "
        "pip install 'tirgym[mcp]'\n"
    )


def test_the_server_loads_no_compiler_and_ends_with_its_input() -> None:
    """A coding agent starts it with every session; the compiler comes with the first kernel."""
    code = (
        "import sys; from tirgym.cli import main; code = main(['mcp']); "
        "print(code, sorted({'tvm', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    done = python(code)
    assert done.stderr == "0 []\n"
    assert done.stdout == ""
