"""The MCP server as its clients see it, in a process of its own: tools, errors, resources, whole runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer
from mcp_clients import Caller, http_server, run, stdio_server, text_of
from mcp_types import CallToolResult, TextResourceContents

from tirgym.serving.mcp_server import make_server
from tirgym.serving.mcp_sessions import SessionLimits, Sessions
from tirgym.serving.mcp_tools import ServerOptions

SPLIT = "Split(loop=1, factor=4)"
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over HTTP that the tests of this file share."""
    out = tmp_path_factory.mktemp("traces")
    options = ("--files", "--sessions", "8", "--trials", "6", "--out", str(out))
    with http_server(*options) as (where, _):
        yield where


def here(**limits: int) -> MCPServer[Sessions]:
    """A server in this process."""
    return make_server(ServerOptions(SessionLimits(**limits)))


# -- tools ------------------------------------------------------------------------------------


def test_every_tool_says_what_it_takes_and_answers(url: str) -> None:
    async def test(call: Caller) -> None:
        tools = (await call.client.list_tools()).tools
        assert [tool.name for tool in tools] == [
            "list_kernels", "load", "get_ir", "legal_actions", "apply", "evaluate", "profile",
            "baseline", "snapshot", "rollback", "history", "export_trace", "close",
        ]  # fmt: skip
        for tool in tools:
            assert tool.description
            assert tool.annotations is not None
            assert tool.output_schema is not None
            assert tool.output_schema["properties"]
            assert tool.input_schema["additionalProperties"] is False
            for name, schema in tool.input_schema.get("properties", {}).items():
                assert schema.get("description"), f"{tool.name}: {name}"

    run(url, test)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_both_protocols_over_http(url: str, mode: str) -> None:
    async def test(call: Caller) -> None:
        kernels = (await call("list_kernels", suite="core-v0", split="train"))["kernels"]
        assert any(kernel["kernel"] == "matmul" for kernel in kernels)
        loaded = await call("load", kernel="matmul", shape="tiny", trials=2, space="primitive")
        handle = loaded["state"]["session"]
        assert loaded["state"]["trials_left"] == 2
        assert "MultiLevelTile" not in loaded["kinds"]
        applied = await call("apply", session=handle, action=SPLIT, why="a reason")
        assert applied["state"]["transforms"] == [SPLIT]
        assert (await call("history", session=handle))["entries"][1]["why"] == "a reason"
        await call("close", session=handle)

    run(url, test, mode)


def test_a_client_optimises_a_kernel_over_stdio_and_verify_accepts_its_trace(
    tmp_path: Path, cli: Cli
) -> None:
    """The whole way, with the real compiler, gate and clock."""
    exported: dict[str, Any] = {}

    async def test(call: Caller) -> None:
        handle = (await call("load", kernel="matmul", shape={"m": 16, "n": 16, "k": 16}))["state"][
            "session"
        ]
        start = await call("evaluate", session=handle)
        assert (start["status"], start["charged"], start["speedup"]) == ("passed", False, 1.0)
        listed = await call("legal_actions", session=handle, kind="Split", loop=1)
        assert SPLIT in listed["actions"]
        await call("apply", session=handle, action=SPLIT, why="four lanes")
        nest = (await call("apply", session=handle, action="Reorder(loop=2)"))["state"]["nest"]
        assert nest[3].strip().startswith("loop 3")
        judged = await call("evaluate", session=handle, level="full")
        assert judged["status"] == "passed", judged["message"]
        assert judged["charged"]
        assert judged["speedup_ci"][0] <= judged["speedup"] <= judged["speedup_ci"][1]
        assert judged["state"]["trials_used"] == 1
        assembly = await call("get_ir", session=handle, level="asm", max_characters=2000)
        assert assembly["clipped"]
        profile = await call("profile", session=handle)
        assert profile["instructions"]["total"] > 0
        read = await call.client.read_resource(f"ir://{handle}/lowered")
        assert isinstance(read.contents[0], TextResourceContents)
        assert "main" in read.contents[0].text
        exported.update(await call("export_trace", session=handle))
        assert [entry["why"] for entry in (await call("history", session=handle))["entries"]][
            2
        ] == "four lanes"

    run(stdio_server("--out", str(tmp_path / "traces")), test)
    assert exported["status"] == "passed"
    assert exported["trace"]["agent"].startswith("mcp:")
    path = Path(exported["file"])
    assert path == tmp_path / "traces" / "matmul-1.json"
    assert json.loads(path.read_text()) == exported["trace"]
    verified = cli("verify", path, "--json")
    assert verified.code == 0, verified.err
    found = verified.json()
    assert found["passed"]
    assert found["same_code"]
    assert found["transforms"] == exported["trace"]["transforms"]


def test_a_client_optimises_a_kernel_over_http_and_verify_accepts_its_trace(
    url: str, tmp_path: Path, cli: Cli
) -> None:
    exported: dict[str, Any] = {}

    async def test(call: Caller) -> None:
        loaded = await call("load", kernel="softmax", shape="tiny", trials=2)
        handle = loaded["state"]["session"]
        tile = (await call("legal_actions", session=handle, kind="VectorizeInner"))["actions"][0]
        await call("apply", session=handle, action=tile, why="lanes")
        await call("evaluate", session=handle)
        exported.update(await call("export_trace", session=handle, program="current"))
        await call("close", session=handle)

    run(url, test)
    saved = tmp_path / "trace.json"
    saved.write_text(json.dumps(exported["trace"]))
    assert cli("verify", saved, "--json").json()["passed"]


@pytest.mark.slow
def test_baselines_and_measured_profiles_over_the_wire(url: str) -> None:
    async def test(call: Caller) -> None:
        handle = (await call("load", kernel="matmul", shape="tiny"))["state"]["session"]
        rows = (await call("baseline", session=handle))["baselines"]
        assert [row["name"] for row in rows][:2] == ["naive", "default"]
        assert all(row["latency_us"] > 0 for row in rows if row["status"] == "passed")
        assert rows[0]["status"] == "passed"
        profile = await call("profile", session=handle, measure=True)
        assert profile["roofline"]["fraction"] > 0
        assert profile["counters"] or profile["counters_unavailable"]
        await call("close", session=handle)

    run(url, test)


# -- isolation and limits ---------------------------------------------------------------------


def test_two_clients_do_not_see_each_other(url: str) -> None:
    async def test(call: Caller) -> None:
        async with Client(url) as other_client:
            other = Caller(other_client)
            mine = (await call("load", kernel="matmul", shape="tiny"))["state"]["session"]
            theirs = (await other("load", kernel="matmul", shape="tiny"))["state"]["session"]
            await call("apply", session=mine, action=SPLIT, why="mine alone")
            await call("snapshot", session=mine)
            history = await other("history", session=theirs)
            assert [entry["action"] for entry in history["entries"]] == ["load"]
            line = await other.refused("rollback", session=theirs, snapshot="s0")
            assert "unknown snapshot 's0'" in line
            await other("close", session=theirs)
            assert (await call("snapshot", session=mine))["state"]["transforms"] == [SPLIT]
            with pytest.raises(MCPError, match="the handle that load answered"):
                await other_client.read_resource(f"ir://{mine[:-1]}/tir")
            await call("close", session=mine)

    run(url, test)


def test_a_server_keeps_its_limits() -> None:
    async def test(call: Caller) -> None:
        handle = (await call("load", kernel="add", shape="tiny"))["state"]["session"]
        line = await call.refused("load", kernel="add")
        assert "1 sessions are open, as many as this server allows (--sessions)" in line
        for kind, left in (("Split", 0), ("Reorder", None)):
            action = (await call("legal_actions", session=handle, kind=kind))["actions"][0]
            await call("apply", session=handle, action=action)
            if left is not None:
                judged = await call("evaluate", session=handle)
                assert judged["state"]["trials_left"] == left
        assert "the 1 trials of this session are spent" in await call.refused(
            "evaluate", session=handle
        )
        best = await call("export_trace", session=handle, measure=False)
        await call("close", session=handle)
        after = await call("export_trace", session=handle, measure=False)
        assert after["trace"] == best["trace"]
        line = await call.refused("load", kernel="add", trials=2)
        assert "expected 1 to 1 (tirgym mcp --trials)" in line
        line = await call.refused("load", kernel="mine.py:mine")
        assert "--files" in line

    run(here(sessions=1, trials=1), test)


def test_a_page_that_reaches_the_server_under_another_name_is_refused(url: str) -> None:
    for header in ("Host", "Origin"):
        asked = urllib.request.Request(
            url,
            data=b"{}",
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                header: "http://evil.example" if header == "Origin" else "evil.example",
            },
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(asked)
        assert caught.value.code in (403, 421)
        caught.value.close()


# -- bad input --------------------------------------------------------------------------------

WRONG: dict[str, list[Any]] = {
    "string": [5, True, ["a"], {"a": 1}],
    "integer": ["many", 1.5, [1], {}, None],
    "boolean": ["perhaps", 3, []],
}
"""By JSON type: what is none of it."""


def wrong_values(schema: dict[str, Any]) -> list[Any]:
    """Values that a parameter must refuse, by its schema."""
    arms = schema.get("anyOf", [schema])
    types = {arm.get("type") for arm in arms}
    wrong = [value for value in WRONG.get(arms[0].get("type", ""), [{"q": "x"}]) if value != []]
    if "null" in types:
        wrong = [value for value in wrong if value is not None]
    for arm in arms:
        if "minimum" in arm:
            wrong.append(arm["minimum"] - 1)
        if "maximum" in arm:
            wrong.append(arm["maximum"] + 1)
        if "enum" in arm:
            wrong.append("no such choice")
        if "maxLength" in arm:
            wrong.append("x" * (arm["maxLength"] + 1))
    return wrong


UNKNOWN = {
    "kernel": "no_such_kernel",
    "shape": {"q": 4},
    "suite": "core-v9",
    "split": "tests",
    "session": "no-such-session",
    "level": "ptx",
    "kind": "Spilt",
    "action": "Split(loop=0, factor='x')",
    "snapshot": "s99",
}
"""Values of the right type that name nothing."""
GOOD = {"kernel": "matmul", "action": SPLIT}


def test_every_tool_refuses_every_wrong_argument_in_one_line() -> None:
    async def test(call: Caller) -> None:
        handle = (await call("load", kernel="matmul", shape="tiny"))["state"]["session"]
        tried = 0
        for tool in (await call.client.list_tools()).tools:
            properties = tool.input_schema.get("properties", {})
            required = tool.input_schema.get("required", [])
            good = {**GOOD, "session": handle}
            base = {name: good[name] for name in required}
            line = await call.refused(tool.name, **base, sesion=1)
            assert "unknown argument" in line
            assert "Accepted: " in line
            for name in required:
                left = {key: value for key, value in base.items() if key != name}
                assert f"{name} is missing" in await call.refused(tool.name, **left)
            for name, schema in properties.items():
                for value in wrong_values(schema):
                    line = await call.refused(tool.name, **{**base, name: value})
                    assert f"{tool.name}: " in line
                    assert name in line
                    assert "is not accepted" in line
                    tried += 1
                if name in UNKNOWN:
                    line = await call.refused(tool.name, **{**base, name: UNKNOWN[name]})
                    assert str(UNKNOWN[name]) in line or "'q'" in line or "choice" in line
                    tried += 1
        assert tried > 60
        assert "unknown tool 'aply'; did you mean 'apply'?" in await call.refused("aply")
        state = (await call("snapshot", session=handle))["state"]  # alive, and nothing has changed
        assert (state["transforms"], state["trials_used"]) == ([], 0)
        await call("close", session=handle)

    run(here(), test)


# -- resources --------------------------------------------------------------------------------


def test_documents_and_ir_are_resources(url: str) -> None:
    async def test(call: Caller) -> None:
        client = call.client
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        assert {"docs://readme", "docs://mcp", "docs://command-line"} <= set(listed)
        for uri in listed:
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, TextResourceContents)
            assert content.mime_type == "text/markdown"
            assert content.text.lstrip().startswith("#")
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == ["ir://{session}/{level}"]
        handle = (await call("load", kernel="matmul", shape="tiny"))["state"]["session"]
        shown = await call("get_ir", session=handle)
        (content,) = (await client.read_resource(f"ir://{handle}/tir")).contents
        assert isinstance(content, TextResourceContents)
        assert content.text == shown["ir"]
        for uri in (f"ir://{handle}/ptx", "ir://nobody/tir", "docs://nothing"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        await call("close", session=handle)

    run(url, test)


def test_text_stands_beside_structured_content(url: str) -> None:
    async def test(call: Caller) -> None:
        result = await call.client.call_tool("load", {"kernel": "add", "shape": "tiny"})
        assert isinstance(result, CallToolResult)
        assert result.structured_content is not None
        handle = result.structured_content["state"]["session"]
        assert f"session {handle}" in text_of(result)
        assert "loop 0: i" in text_of(result)
        await call("close", session=handle)

    run(url, test)
