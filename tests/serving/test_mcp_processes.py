"""The MCP server under long calls, signals and noise: what its process and its streams do."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp_clients import COMMAND, Caller, environment, http_server, run

PATIENCE_S = 150.0

SLOW = """
import time
import numpy as np
from tvm import te
from tirgym import Kernel

print("a kernel file prints")

def build(shape):
    print("and so does its build")
    x = te.placeholder((shape["n"],), "float32", "x")
    out = te.compute((shape["n"],), lambda i: x[i] + te.const(1, "float32"), "out")
    return te.create_prim_func([x, out])

def reference(x):
    time.sleep(SECONDS)
    return x + 1

slow = Kernel("slow", "mine", build, reference, train=({"n": 64},))
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over HTTP that the tests of this file share."""
    out = tmp_path_factory.mktemp("traces")
    options = ("--files", "--sessions", "8", "--trials", "6", "--out", str(out))
    with http_server(*options) as (where, _):
        yield where


def slow_kernel(folder: Path, seconds: float) -> str:
    """A kernel that takes `seconds` before it can be checked, and prints."""
    file = folder / "slow.py"
    file.write_text(SLOW.replace("SECONDS", str(seconds)))
    return f"{file}:slow"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_long_evaluation_reports_can_be_cancelled_and_blocks_nobody(
    url: str, tmp_path: Path, mode: str
) -> None:
    async def test(call: Caller) -> None:
        news: list[str | None] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            news.append(message)

        handle = (await call("load", kernel=slow_kernel(tmp_path, 1000)))["state"]["session"]
        other = (await call("load", kernel="add", shape="tiny"))["state"]["session"]
        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: call.client.call_tool(
                    "evaluate", {"session": handle}, progress_callback=hear
                )
            )
            while not news:
                await anyio.sleep(0.1)
            await call("legal_actions", session=other)  # meanwhile
            group.cancel_scope.cancel()
        assert news[0] == "measuring the unscheduled program"
        history = await call("history", session=handle)
        assert [entry["action"] for entry in history["entries"]] == ["load"]
        await call("close", session=handle)
        await call("close", session=other)

    run(url, test, mode)


def family(pid: int) -> list[psutil.Process]:
    """All processes that a process started, and those that they started."""
    return list(psutil.Process(pid).children(recursive=True))


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_is_ended_in_the_middle_leaves_no_process(
    tmp_path: Path, how: signal.Signals
) -> None:
    children: list[psutil.Process] = []
    kernel = slow_kernel(tmp_path, 1000)

    with http_server("--files") as (where, process):

        async def test(call: Caller) -> None:
            handle = (await call("load", kernel=kernel))["state"]["session"]
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: call.client.call_tool("evaluate", {"session": handle}))
                while len(family(process.pid)) < 5:  # the session, and its workers
                    await anyio.sleep(0.2)
                children.extend(family(process.pid))
                process.send_signal(how)
                group.cancel_scope.cancel()

        run(where, test)
        process.wait(timeout=PATIENCE_S)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert alive == []


def test_stdout_of_a_stdio_server_carries_the_protocol_alone(tmp_path: Path) -> None:
    kernel, other = slow_kernel(tmp_path, 0), tmp_path / "other"
    other.mkdir()
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }

    def request(number: int, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
        return request(number, "tools/call", name=tool, arguments=arguments)

    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines: list[dict[str, Any]] = []

        def ask(message: dict[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message:
                lines.append(json.loads(process.stdout.readline()))
                if lines[-1].get("id") == message["id"]:
                    break
            return lines[-1] if lines else {}

        ask(request(1, "initialize", **hello))
        ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        loaded = ask(call(2, "load", kernel=kernel))["result"]["structuredContent"]
        handle = loaded["state"]["session"]
        judged = ask(call(3, "evaluate", session=handle))["result"]["structuredContent"]
        assert judged["status"] == "passed"
        assert ask(call(4, "get_ir", session=handle, level="asm"))["result"]["isError"] is False
        process.stdin.write("this is no message\n")
        process.stdin.flush()
        assert ask(call(5, "history", session=handle))["result"]["isError"] is False
        stuck = ask(call(6, "load", kernel=slow_kernel(other, 1000)))["result"]
        evaluate = call(7, "evaluate", session=stuck["structuredContent"]["state"]["session"])
        evaluate["params"]["_meta"] = {"progressToken": "p"}
        process.stdin.write(json.dumps(evaluate) + "\n")
        process.stdin.flush()
        lines.append(json.loads(process.stdout.readline()))
        assert lines[-1]["method"] == "notifications/progress"
        cancelled = {"requestId": 7, "reason": "changed my mind"}
        ask({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        assert ask(call(8, "history", **evaluate["params"]["arguments"]))["result"]
        process.stdin.close()
        rest = process.stdout.read()
        process.wait(timeout=PATIENCE_S)
    assert rest == ""
    assert all(line["jsonrpc"] == "2.0" for line in lines)
