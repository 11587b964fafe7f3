"""`tirgym mcp`: kernels, actions and measurements as tools for language models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tirgym import settings
from tirgym.cli.options import ArchOption, BackendOption, JsonFlag, ThreadsOption
from tirgym.cli.output import note, print_json
from tirgym.cli.subject import chosen_target, require_writable
from tirgym.errors import InvalidValueError, MissingExtraError

__all__ = ["mcp_command"]

DEFAULT_PORT = 8078


def mcp_command(
    http: Annotated[
        bool,
        typer.Option("--http", help="Serve streamable HTTP on this machine instead of stdio."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", help="With --http; 0: a free one.", show_default=str(DEFAULT_PORT)),
    ] = None,
    sessions: Annotated[
        int, typer.Option("--sessions", help="Sessions that may be open at once.")
    ] = 4,
    trials: Annotated[
        int, typer.Option("--trials", help="Programs that one session may build and measure.")
    ] = 64,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time that one session may live.")
    ] = 3600.0,
    idle: Annotated[
        float, typer.Option("--idle", help="Seconds without a call after which a session ends.")
    ] = 900.0,
    files: Annotated[
        bool | None,
        typer.Option(
            "--files/--no-files",
            help="Let clients load kernels from Python files, which are run.",
            show_default="--files on stdio, --no-files with --http",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Save exported traces here.", show_default=False),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Measurement store.", show_default="the user's"),
    ] = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Serve an MCP client, such as a coding agent (extra: mcp); docs/mcp.md.

    On stdio, stdout carries the protocol alone; with --http --json it has one line with the URL.
    """
    if json and not http:
        raise InvalidValueError("--json", "stdio", "--http: on stdio stdout carries the protocol")
    if port is not None and not http:
        raise InvalidValueError("--port", port, "--http beside it")
    if out is not None:
        require_writable(out / "trace.json", "--out")
    if store is not None:
        require_writable(store, "--store")
    try:
        from tirgym.serving.mcp_server import serve_http, serve_stdio
        from tirgym.serving.mcp_sessions import SessionLimits
        from tirgym.serving.mcp_tools import ServerOptions
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingExtraError("tirgym mcp", "the package mcp 2.3 or newer", "mcp") from None
    limits = SessionLimits(sessions, trials, seconds, idle)
    threads = settings.default_threads() if threads is None else threads
    options = ServerOptions(
        limits,
        backend=backend or "llvm",
        arch=arch,
        threads=threads,
        files=not http if files is None else files,
        store=None if store is None else str(store),
        out=out,
    )
    if backend is not None or arch is not None or threads != settings.default_threads():
        chosen_target(backend, arch, threads)
    if not http:
        serve_stdio(options)
        return

    def ready(url: str) -> None:
        note(f"serving MCP at {url}")
        if json:
            print_json({"url": url})
            sys.stdout.flush()

    serve_http(options, DEFAULT_PORT if port is None else port, ready)
