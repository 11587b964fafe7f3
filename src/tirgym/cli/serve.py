"""`tirgym serve`: a decision agent answers other processes, over HTTP or stdin and stdout."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym import settings
from tirgym.cli.options import JsonFlag
from tirgym.cli.output import note, print_json
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.serving.service import DecisionService

__all__ = ["serve_command"]

_SHORTEST_TOKEN = 16


def serve_command(
    agent: Annotated[
        str,
        typer.Option("--agent", help="static, random, model, policy, or package.module:Class."),
    ] = "static",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of the agent, such as model=runs/model.zip; repeatable.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; beyond loopback a token is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 for any that is free.")] = 8077,
    stdio: Annotated[
        bool,
        typer.Option("--stdio", help="Answer lines of JSON on stdin instead, until it ends."),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="Ask for the token in this file. TIRGYM_SERVE_TOKEN holds one too.",
            show_default="no token",
        ),
    ] = None,
    limit_ms: Annotated[
        float, typer.Option("--limit-ms", help="After which a decision is given up.")
    ] = 1000.0,
    max_bytes: Annotated[int, typer.Option("--max-bytes", help="Largest request.")] = 1 << 20,
    json: JsonFlag = False,
) -> None:
    """Answer decision points with an agent, for compilers in other processes (docs/serving.md)."""
    if not 0 < limit_ms < float("inf"):
        raise InvalidValueError("--limit-ms", limit_ms, "a positive number of milliseconds")
    if not 0 <= port <= 65535:
        raise InvalidValueError("--port", port, "0 to 65535")
    if max_bytes < 1024:
        raise InvalidValueError("--max-bytes", max_bytes, "at least 1024")
    token = _token(token_file)
    if ":" in agent:
        sys.path.append(os.getcwd())  # an installed command, unlike python -m, does not look there
    if stdio:
        _serve_stdio(agent, option or [], limit_ms, max_bytes)
        return
    from tirgym.serving.extra import require_serve

    require_serve("tirgym serve")
    from tirgym.serving.http_server import require_token, serve_http

    require_token(host, token)
    service = _service(agent, option or [], limit_ms)

    def announce(url: str) -> None:
        if json:
            print_json({"url": url, **service.describe().model_dump(), "token": token is not None})
            sys.stdout.flush()
        note(f"agent {agent} answers at {url}/v1/decision (Ctrl-C ends it; {url}/docs)")

    serve_http(service, host, port, token, max_bytes, announce)
    note(f"ended after {service.tally}")


def _serve_stdio(agent: str, options: list[str], limit_ms: float, max_bytes: int) -> None:
    """Answer lines until stdin ends, or a signal comes."""
    from tirgym.serving.stdio_server import claim_stdout, serve_stdio

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with claim_stdout() as answers:
            service = _service(agent, options, limit_ms)
            serve_stdio(service, sys.stdin.buffer, answers, max_bytes)
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        signal.signal(signal.SIGTERM, before)


def _service(agent: str, options: list[str], limit_ms: float) -> DecisionService:
    """The agent, made and ready."""
    from tirgym.serving.agents import decision_agent_maker
    from tirgym.serving.host import AgentHost
    from tirgym.serving.service import DecisionService

    make = decision_agent_maker(agent, options)
    return DecisionService(AgentHost(make, agent, limit_ms / 1000))


def _token(file: Path | None) -> str | None:
    """The token to ask for, from a file or the environment."""
    if file is not None:
        token, where = file.read_text("utf-8", "replace").strip(), f"token in {file}"
    else:
        given = settings.serve_token()
        if given is None:
            return None
        token, where = given, "TIRGYM_SERVE_TOKEN"
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        accepted = f"{_SHORTEST_TOKEN} or more plain characters in one line"
        raise InvalidValueError(where, "•••", accepted)
    return token
