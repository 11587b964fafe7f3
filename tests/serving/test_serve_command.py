"""`tirgym serve`: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpcore
import pytest
from command_line import Cli
from services import POINT, QUESTION

from tirgym.serving import extra, http_server
from tirgym.serving.latency import serving
from tirgym.serving.remote import RemoteAgent

TOKEN = "a token of many letters"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number: signal.Signals) -> None:
    command = [sys.executable, "-W", "error", "-m", "tirgym", "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with RemoteAgent(told["url"], 30.0) as agent:
            assert agent.decide(POINT).option == POINT.default
            process.send_signal(number)  # with a connection that is open
            out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == ""
    first, last = err.splitlines()
    assert first.startswith(f"tirgym: agent static answers at {told['url']}/v1/decision")
    assert last == "tirgym: ended after 1 decision: 1 answered"
    assert (told["agent"], told["protocols"]) == ("static", ["tirgym-decision/1"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
def test_stdio_ends_with_its_input_or_a_signal(number: signal.Signals | None) -> None:
    command = [sys.executable, "-W", "error", "-m", "tirgym", "serve", "--stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(QUESTION) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["request_id"] == "q1"
        if number is not None:
            process.send_signal(number)
            process.wait(60)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_token_file_is_asked_for_and_the_agent_gets_its_options(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    arguments = ["--token-file", file, "--agent", "random", "--option", "seed=3"]
    with serving(*map(str, arguments)) as (url, _):
        assert httpcore.request("GET", f"{url}/v1").status == 401
        with RemoteAgent(url, 30.0, TOKEN) as agent:
            assert agent.decide(POINT).explanation == "drawn"


REFUSED: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("--agent", "nobody"), ("unknown decision agent 'nobody'", "static, random, model, policy")),
    (("--agent", "served_agents:Mute"), ("served_agents:Mute", "a method decide(point)")),
    (("--agent", "served_agents:Nobody"), ("importable from here",)),
    (("--agent", "no_such_module:X"), ("importable from here", "no_such_module")),
    (("--agent", "served_agents:Broken"), ("can be made (RuntimeError: no weights)",)),
    (("--agent", "served_agents:Sleeper"), ("--option seconds=…",)),
    (("--agent", "model"), ("--option model=…",)),
    (("--agent", "model", "--option", "model=nowhere.zip"), ("nowhere.zip",)),
    (("--agent", "random", "--option", "seed"), ("'seed'", "name=value")),
    (("--agent", "random", "--option", "seed=x"), ("'x'", "a whole number")),
    (("--agent", "random", "--option", "seed=-1"), ("can be made",)),
    (("--agent", "static", "--option", "seed=1"), ("unknown option of agent static 'seed'",)),
    (("--port", "70000"), ("--port: 70000", "0 to 65535")),
    (("--limit-ms", "0"), ("--limit-ms: 0.0", "positive")),
    (("--max-bytes", "1"), ("--max-bytes: 1", "at least 1024")),
    (("--host", "0.0.0.0"), ("host: '0.0.0.0'", "loopback", "--token-file")),
    (("--host", "::"), ("host: '::'", "loopback")),
    (("--host", "example.org"), ("host: 'example.org'", "loopback")),
    (("--token-file", "nowhere"), ("nowhere",)),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_bad_usage_is_one_line(cli: Cli, arguments: tuple[str, ...], said: tuple[str, ...]) -> None:
    outcome = cli("serve", *arguments)
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert outcome.err.startswith("tirgym: error: ")
    assert outcome.err.count("\n") == 1
    for part in said:
        assert part in outcome.err


@pytest.mark.parametrize("token", ["", "short", "two lines that are\nlong enough", "ä" * 20])
def test_tokens_that_are_none_are_refused(cli: Cli, token: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token, "utf-8")
    outcome = cli("serve", "--host", "0.0.0.0", "--token-file", file)
    assert outcome.code == 2
    assert "expected 16 or more plain characters" in outcome.err
    assert not token or token not in outcome.err


def test_a_port_in_use_is_named(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = cli("serve", "--port", port)
    assert outcome.code == 2
    assert f"port: {port} is not accepted" in outcome.err
    assert "in use" in outcome.err


def test_other_hosts_are_served_with_a_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(server: Any, listener: socket.socket) -> None:
        assert listener.getsockname()[0] == "0.0.0.0"

    monkeypatch.setattr(http_server, "_run", run)
    monkeypatch.setenv("TIRGYM_SERVE_TOKEN", TOKEN)
    outcome = cli("serve", "--host", "0.0.0.0", "--port", "0", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json()["token"] is True
    assert TOKEN not in outcome.out + outcome.err


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_extra_has_its_remedy(
    cli: Cli, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == module else object())
    outcome = cli("serve")
    assert outcome.code == 2
    assert outcome.err == (
        f"tirgym: error: tirgym serve needs {module.replace('_', '-')}, which is not installed; "
        "pip install 'tirgym[serve]'\n"
    )
