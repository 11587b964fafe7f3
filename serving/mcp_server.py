"""The MCP server: tools and resources over stdio or HTTP on this machine.

serve_stdio(ServerOptions())
serve_http(ServerOptions(), port=8000, ready=print)
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from tirgym.errors import InvalidValueError, TirgymError, UnknownNameError
from tirgym.serving.mcp_documents import document, document_names, document_title
from tirgym.serving.mcp_results import IRText
from tirgym.serving.mcp_sessions import Sessions
from tirgym.serving.mcp_tools import ServerOptions, Tools

__all__ = ["HOST", "PATH", "make_server", "serve_http", "serve_stdio"]

HOST, PATH = "127.0.0.1", "/mcp"
_MARKDOWN = "text/markdown"
_CONNECTIONS = 256
"""HTTP clients of the handshake protocol at once."""

INSTRUCTIONS = """\
tirgym makes a compute kernel faster by legal transforms of its compiler IR, one at a time, and
checks and measures the result on this machine.
1. list_kernels, then load one: it answers a session handle, the loop nest, and the kinds of actions.
2. legal_actions lists what can be done now (name a kind); apply does it and says what changed, with
   your reason in `why`. Loops and blocks are renumbered by every action: read the new nest.
3. evaluate builds, checks and times the program. New machine code costs a trial. A program that is
   wrong never gets a number, and the session goes back to the newest one that holds.
4. snapshot and rollback to compare ways; profile and get_ir to see why; baseline to know what to beat.
5. export_trace answers the best program as a trace, measured anew; then close the session.
Good schedules tile for caches and registers, vectorize the innermost loop, and unroll what is small."""

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_ENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

_TOOLS: dict[str, ToolAnnotations] = {
    "list_kernels": _READS,
    "load": _CHANGES,
    "get_ir": _READS,
    "legal_actions": _READS,
    "apply": _CHANGES,
    "evaluate": _CHANGES,
    "profile": _CHANGES,
    "baseline": _READS,
    "snapshot": _CHANGES,
    "rollback": _CHANGES,
    "history": _READS,
    "export_trace": _CHANGES,
    "close": _ENDS,
}
"""Methods of `Tools`, and what clients are told about them."""


class _Server(MCPServer[Sessions]):
    """An MCP server whose tool errors are one line that says what would be accepted."""

    accepted: Mapping[str, tuple[str, ...]]
    """arguments by tool"""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Sessions, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; raises ToolError with one line."""
        try:
            self._require_known(name, arguments)
            return await super().call_tool(name, arguments, context)
        except TirgymError as error:
            raise ToolError(str(error)) from error
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, TirgymError):
                raise ToolError(str(cause)) from cause
            if isinstance(cause, ValidationError):
                raise ToolError(_problems(name, cause)) from cause
            raise

    def _require_known(self, name: str, arguments: dict[str, Any]) -> None:
        """Raises UnknownNameError for a tool or an argument that does not exist."""
        if name not in self.accepted:
            raise UnknownNameError("tool", name, self.accepted)
        accepted = self.accepted[name]
        for given in arguments:
            if given not in accepted:
                raise UnknownNameError(f"argument of {name}", given, accepted or ["none"])


def _problems(tool: str, error: ValidationError) -> str:
    """`legal_actions: limit: 0 is not accepted; input should be …`, for every argument."""
    found = []
    for each in error.errors():
        where = ".".join(str(part) for part in each["loc"] if isinstance(part, str))
        message = each["msg"][:1].lower() + each["msg"][1:]
        if each["type"] == "missing":
            found.append(f"{where} is missing")
        else:
            given = repr(each["input"])
            shown = given if len(given) <= 80 else f"{given[:77]}..."
            found.append(f"{where}: {shown} is not accepted; {message}")
    return f"{tool}: {'; '.join(found)}"


def make_server(options: ServerOptions) -> MCPServer[Sessions]:
    """A server with all tools and resources; it ends its sessions when it ends."""
    tools = Tools(options)
    made = [
        Tool.from_function(getattr(tools, name), annotations=hints, structured_output=True)
        for name, hints in _TOOLS.items()
    ]
    for tool in made:
        tool.parameters["additionalProperties"] = False

    @asynccontextmanager
    async def lifespan(_: MCPServer[Sessions]) -> AsyncIterator[Sessions]:
        sessions = Sessions(options.limits)
        async with sessions.running():
            yield sessions

    documents = [
        FunctionResource.from_function(
            partial(document, name),
            uri=f"docs://{name}",
            name=name,
            description=document_title(name),
            mime_type=_MARKDOWN,
        )
        for name in document_names()
    ]
    server = _Server(
        "tirgym",
        instructions=INSTRUCTIONS,
        version=version("tirgym"),
        tools=made,
        resources=list(documents),
        lifespan=lifespan,
        log_level="WARNING",
    )
    server.accepted = {tool.name: tuple(tool.parameters["properties"]) for tool in made}

    @server.resource("ir://{session}/{level}", name="ir", mime_type="text/plain")
    async def ir(session: str, level: str, ctx: Context[Sessions, Any]) -> str:
        """The current program of a session at an IR level: tir, lowered, llvm, asm or passes."""
        sessions: Sessions = ctx.request_context.lifespan_context
        arguments = {"level": level, "max_characters": 1 << 30}
        try:
            found = await sessions.ask(session, "ir", arguments, _silent)
        except TirgymError as error:
            raise ResourceError(str(error)) from error
        assert isinstance(found, IRText)
        return found.ir

    return server


async def _silent(seconds: float, text: str) -> None:
    """Resources have no progress."""


def serve_stdio(options: ServerOptions) -> None:
    """Serve one client over this process's stdin and stdout, until stdin ends."""
    anyio.run(make_server(options).run_stdio_async)


def serve_http(options: ServerOptions, port: int, ready: Callable[[str], None]) -> None:
    """Serve clients over streamable HTTP on this machine alone; `ready` hears the URL.

    Port 0 is a free one. Raises InvalidValueError for one that cannot be had.
    """
    import uvicorn

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            accepted = "a free port from 1 to 65535, or 0 for any"
            raise InvalidValueError("--port", port, f"{accepted} ({error})") from None
        app = make_server(options).streamable_http_app(
            streamable_http_path=PATH, host=HOST, max_sessions=_CONNECTIONS
        )
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2)
        listener.listen()
        ready(f"http://{HOST}:{listener.getsockname()[1]}{PATH}")
        uvicorn.Server(config).run(sockets=[listener])
