"""MCP servers in processes of their own, and clients that talk to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent

__all__ = ["COMMAND", "Caller", "environment", "http_server", "run", "stdio_server", "text_of"]

COMMAND = [sys.executable, "-m", "tirgym", "mcp"]
LIMIT_S = 300.0
"""For one test on a busy machine."""


def environment() -> dict[str, str]:
    """This process's, with the private data folder of the tests."""
    return dict(os.environ)


def stdio_server(*options: str, cwd: Path | None = None) -> StdioServerParameters:
    """What a client starts."""
    arguments = [*COMMAND[1:], *options]
    return StdioServerParameters(
        command=COMMAND[0], args=arguments, env=environment(), cwd=None if cwd is None else str(cwd)
    )


@contextmanager
def http_server(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """URL and process of a server on a free port."""
    command = [*COMMAND, "--http", "--port", "0", "--json", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def text_of(result: CallToolResult) -> str:
    """The text that came with a result."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


class Caller:
    """Calls tools; what is no error must have structured content."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured content of a call that works."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        assert not result.is_error, text_of(result)
        assert isinstance(result.structured_content, dict)
        assert text_of(result)
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The one line of a call that does not work."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        assert result.is_error, text_of(result)
        line = text_of(result)
        assert line
        assert "\n" not in line
        assert "Traceback" not in line
        assert not line.startswith("Error executing tool")
        return line


def run(
    server: StdioServerParameters | MCPServer[Any] | str,
    test: Callable[[Caller], Awaitable[None]],
    mode: str = "auto",
) -> None:
    """Run an asynchronous test with a client of `server`; it must not hang."""

    async def connected() -> None:
        with anyio.fail_after(LIMIT_S):
            async with Client(server, mode=mode) as client:
                await test(Caller(client))

    anyio.run(connected)
