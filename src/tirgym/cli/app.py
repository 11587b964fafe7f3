"""`main`: parses the command line, runs the command, turns errors into one line and an exit code.

Exit codes: 0 success, 1 failure, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tirgym import settings
from tirgym.cli.baseline import baseline_command
from tirgym.cli.bench import (
    compare_boards_command,
    report_command,
    run_command,
    verify_board_command,
)
from tirgym.cli.catalog import list_command
from tirgym.cli.checks import lint_command, selftest_command
from tirgym.cli.doctor import doctor_command
from tirgym.cli.explain import explain_command
from tirgym.cli.export import export_command
from tirgym.cli.graph import graph_command
from tirgym.cli.mcp import mcp_command
from tirgym.cli.model import model_command, train_command
from tirgym.cli.profile import profile_command
from tirgym.cli.search import optimize_command
from tirgym.cli.serve import serve_command
from tirgym.cli.show import show_command
from tirgym.cli.store import record_command
from tirgym.cli.store_file import export_store_command, store_command
from tirgym.cli.submission import submission_command
from tirgym.cli.traces import compare_command, replay_command, verify_command
from tirgym.cli.train import policy_command
from tirgym.errors import TirgymError, UnknownNameError, UsageError

__all__ = ["app", "main"]

INTERRUPTED = 130

# Typer has carried its own copy of click's errors since 0.2x; the base class has one name in both.
_ParserError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _Commands(TyperGroup):
    """A command group that answers a missing or unknown command with the ones that exist."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command:
            raise UsageError(
                f"{ctx.info_name}: a command is missing. Accepted: "
                + ", ".join(self.list_commands(ctx))
            )
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            raise UnknownNameError("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        cls=_Commands, help=help_text, add_completion=False, pretty_exceptions_enable=False
    )


app = _group("Optimise kernels with search and learning; every speedup is checked and measured.")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tirgym {version('tirgym')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


app.command("list")(list_command)
app.command("doctor")(doctor_command)
app.command("show")(show_command)
app.command("baseline")(baseline_command)
app.command("profile")(profile_command)
app.command("optimize")(optimize_command)
app.command("train")(policy_command)
app.command("verify")(verify_command)
app.command("replay")(replay_command)
app.command("compare")(compare_command)
app.command("explain")(explain_command)
app.command("export")(export_command)
app.command("graph")(graph_command)
app.command("mcp")(mcp_command)
app.command("serve")(serve_command)

suite = _group("The kernel suites.")
suite.command("lint")(lint_command)
app.add_typer(suite, name="suite")

gate = _group("The correctness gate.")
gate.command("selftest")(selftest_command)
app.add_typer(gate, name="gate")

model = _group("Performance models that learn from measurements.")
model.command("record")(record_command)
model.command("train")(train_command)
model.command("show")(model_command)
app.add_typer(model, name="model")

store = _group("Measurement stores: recorded programs to replay and to learn from.")
store.command("record")(record_command)
store.command("show")(store_command)
store.command("export")(export_store_command)
app.add_typer(store, name="store")

bench = _group("Leaderboards: equal budgets, verification by replay, statistics.")
bench.command("run")(run_command)
bench.command("verify")(verify_board_command)
bench.command("report")(report_command)
bench.command("compare")(compare_boards_command)
bench.command("check-submission")(submission_command)
app.add_typer(bench, name="bench")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and never raises for what the user typed."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without µ must not end a search
    try:
        code = app(args=None if args is None else list(args), standalone_mode=False)
        sys.stdout.flush()
    except TirgymError as error:
        if settings.debug():
            raise
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader went away; nobody is left to tell. Keeps the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if settings.debug():
            raise
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except _ParserError as error:
        return _fail(error.format_message(), error.exit_code)
    if code == INTERRUPTED:
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _open_standard_streams() -> None:
    """Give what the caller closed (`>&-`) the null device.

    Python has None there, where results cannot be written and lines for stderr go to stdout. The
    first file to be opened would get the number, and what native code prints would go into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so `number` if it is free
        if null == number:
            os.set_inheritable(null, True)
        setattr(sys, name, os.fdopen(null, mode, encoding="utf-8"))


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    prefix = "tirgym: " if code == INTERRUPTED else "tirgym: error: "
    print(prefix + line, file=sys.stderr)
    return code
