"""The entry point: help without a compiler, exit codes, one line for every error, quiet pipes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points, version
from typing import Any

import pytest

from tirgym.cli import app, catalog, main
from tirgym.errors import TirgymError, UnknownNameError

Cli = Callable[..., Any]


def tirgym(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m tirgym` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tirgym", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list", "--json"], ["list", "agents"], ["optimize", "--help"]]
)
def test_help_and_lists_import_no_compiler(arguments: list[str]) -> None:
    code = (
        "import sys; from tirgym.cli import main; "
        f"code = main({arguments!r}); "
        "heavy = {'tvm', 'torch', 'triton', 'matplotlib'} & set(sys.modules); "
        "sys.exit(code or ', '.join(sorted(heavy)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_command_is_main() -> None:
    (command,) = [e for e in entry_points(group="console_scripts") if e.name == "tirgym"]
    assert command.load() is main


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"tirgym {version('tirgym')}\n"


def test_without_a_command_the_help_lists_all(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    for command in ("list", "doctor", "show", "optimize", "verify", "replay", "export"):
        assert command in done.out


@pytest.mark.parametrize("command", [c.name for c in app.app.registered_commands])
def test_every_command_has_help_and_json(command: str, cli: Cli) -> None:
    done = cli(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert "--json" in done.out


def test_module_and_exit_code() -> None:
    done = tirgym("show", "no_such_kernel")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tirgym: error: unknown kernel 'no_such_kernel'")
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    done = tirgym("list", "nothing", TIRGYM_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "UnknownNameError" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (TirgymError("the cause\nof it"), 1, "tirgym: error: the cause of it"),
        (UnknownNameError("thing", "x", ["y"]), 2, "tirgym: error: unknown thing 'x'. Accepted: y"),
        (OSError(28, "No space left on device"), 1, "tirgym: error: [Errno 28] No space left"),
        (KeyboardInterrupt(), 130, "tirgym: interrupted"),
    ],
)
def test_errors_become_one_line(
    error: BaseException, code: int, line: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise error

    monkeypatch.setitem(catalog._LISTS, "suites", fail)
    done = cli("list", "suites")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(line)
    assert done.err.count("\n") == 1


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m tirgym show matmul --level asm | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", ["list", "list --json", "--help", "show add -s tiny"])
def test_a_closed_stdout_is_quiet(arguments: str) -> None:
    command = f"{sys.executable} -m tirgym {arguments} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_said_on_a_closed_stderr_stays_out_of_the_results() -> None:
    shape = "-s tiny --agent random --trials 1 --json"
    command = f"{sys.executable} -m tirgym optimize add {shape} 2>&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "passed"


def test_files_do_not_get_the_number_of_a_closed_stream() -> None:
    code = (
        "import os; from tirgym.cli import main; main(['list', 'suites']); "
        "os._exit(os.open('/dev/null', os.O_RDONLY))"
    )
    command = [sys.executable, "-c", code]
    closed = f"{shlex.join(command)} <&- >&- 2>&-"
    assert subprocess.run(closed, shell=True, check=False).returncode > 2


def test_output_that_cannot_show_a_micro_sign_goes_on() -> None:
    shape = ("-s", "tiny", "--agent", "random", "--trials", "1")
    done = tirgym("optimize", "add", *shape, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "median ?s" in done.stdout
