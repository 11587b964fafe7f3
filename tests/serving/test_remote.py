"""`RemoteAgent` behind a guard: what a server may do, and that it costs no more than the budget."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from services import POINT, Mute, chooser, rough_server, served

from tirgym.errors import AgentBusyError, AgentError, AgentTimeoutError, InvalidValueError
from tirgym.harness.decisions import (
    CallbackAgent,
    DecisionPoint,
    Guard,
    Recommendation,
    Walk,
    design_space,
)
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload
from tirgym.serving.compile_guard import compile_guard
from tirgym.serving.remote import RemoteAgent

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PATIENT_S = 60.0
LONG = 4000
"""Bytes that are dripped: for far longer than any budget here."""


def read_request(connection: socket.socket) -> dict[str, Any]:
    """The body of the request that comes."""

    def more() -> bytes:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError  # the client has gone
        return part

    data = b""
    while b"\r\n\r\n" not in data:
        data += more()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += more()
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def silent(connection: socket.socket, over: threading.Event) -> None:
    """Accepts, and never answers."""
    over.wait(60)


def dripping_head(connection: socket.socket, over: threading.Event) -> None:
    """A header that does not end, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(LONG):
        if not over.wait(0.005):
            connection.sendall(b"x")


def dripping_body(connection: socket.socket, over: threading.Event) -> None:
    """A body that never ends, a byte at a time."""
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(LONG):
        if not over.wait(0.005):
            connection.sendall(b"1\r\n \r\n")


LATE: list[Callable[[socket.socket, threading.Event], None]] = [
    silent,
    dripping_head,
    dripping_body,
]


@pytest.mark.parametrize("behave", LATE)
def test_servers_that_never_end_are_left(
    behave: Callable[[socket.socket, threading.Event], None],
) -> None:
    with rough_server(behave) as url, RemoteAgent(url, 0.05) as agent:
        for _ in range(2):  # while the server is still at it
            with pytest.raises(AgentTimeoutError, match="no answer within 50 ms"):
                agent.decide(POINT)
        guard = Guard(agent, 0.05)
        assert guard.decide(POINT).option == POINT.default
        assert guard.report.slow == 1


def test_megabytes_are_not_read() -> None:
    sent = []

    def flood(connection: socket.socket, over: threading.Event) -> None:
        read_request(connection)
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
            sent.append(65536)

    with rough_server(flood) as url, RemoteAgent(url, PATIENT_S) as agent:
        with pytest.raises(AgentError, match="answers more than 65536 bytes"):
            agent.decide(POINT)
        guard = Guard(agent, PATIENT_S)
        assert guard.decide(POINT).option == POINT.default
        assert guard.report.raised == 1
    assert len(sent) < 1000


def answering(status: str, body: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        while True:
            request_id = read_request(connection)["request_id"].encode()
            told = body.replace(b"ID", request_id)
            length = f"Content-Length: {len(told)}\r\n\r\n".encode()
            connection.sendall(f"HTTP/1.1 {status}\r\n".encode() + length + told)

    return behave


RIGHT = b'{"request_id": "ID", "recommendation": {"selected_option_index": 2, "confidence": 0.5}}'
WRONG = [
    ("200 OK", b"", "the service's answer is none"),
    ("200 OK", b"<html>", "the service's answer is none"),
    ("200 OK", RIGHT.replace(b"ID", b"another"), "other questions"),
    ("200 OK", RIGHT.replace(b"2", b"null"), "selected_option_index"),
    ("200 OK", RIGHT.replace(b"0.5", b"5"), "confidence"),
    ("302 Found", b"", "status 302, and no reason"),
    ("500 Oops", b"<html>", "status 500, and no reason"),
    ("500 Oops", b'{"error": {"code": "agent_failed", "message": "a\\nb"}}', "status 500: a b"),
    ("gibberish", b"", "cannot be asked"),
]


@pytest.mark.parametrize(("status", "body", "said"), WRONG)
def test_what_is_no_answer_becomes_the_static_choice(status: str, body: bytes, said: str) -> None:
    with rough_server(answering(status, body)) as url, RemoteAgent(url, PATIENT_S) as agent:
        guard = Guard(agent, PATIENT_S)
        answer = guard.decide(POINT)
        assert (answer.option, answer.confidence) == (POINT.default, 0.0)
        assert guard.report.raised == 1
        assert said in guard.report.messages[0]


def test_an_answer_is_an_answer_and_one_out_of_range_is_counted_as_that() -> None:
    with rough_server(answering("200 OK", RIGHT)) as url, RemoteAgent(url, PATIENT_S) as agent:
        assert agent.decide(POINT) == Recommendation(2, 0.5)
    far = RIGHT.replace(b"2", b"7")
    with rough_server(answering("200 OK", far)) as url, RemoteAgent(url, PATIENT_S) as agent:
        guard = Guard(agent, PATIENT_S)
        assert guard.decide(POINT).option == POINT.default
        assert guard.report.out_of_range == 1


def test_where_nobody_listens_the_static_choice_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    guard = compile_guard(RemoteAgent(url, PATIENT_S), budget_ms=1000 * PATIENT_S, cache=0)
    assert [guard.decide(POINT).option for _ in range(5)] == [POINT.default] * 5
    assert (guard.report.raised, guard.report.resting) == (3, 2)
    assert "cannot be asked" in guard.report.messages[0]


def ask_while_late(agent: RemoteAgent) -> None:
    """Ask until something other than too late comes of it."""
    for _ in range(1000):
        with suppress(AgentTimeoutError):
            agent.decide(POINT)


def test_what_goes_wrong_in_the_service_arrives_as_what_it_is() -> None:
    def fail(point: DecisionPoint) -> int:
        raise ValueError("no idea")

    with served(lambda: CallbackAgent(fail)) as service, RemoteAgent(service.url, 30) as agent:
        with pytest.raises(AgentError, match="the agent raised ValueError: no idea"):
            agent.decide(POINT)
        answers = agent.decide_many([POINT, POINT])
    assert [str(answer) for answer in answers] == ["the agent raised ValueError: no idea"] * 2
    mute = Mute()
    with served(lambda: mute, limit_s=0.05, spares=0) as service:
        with RemoteAgent(service.url, PATIENT_S) as agent:
            with pytest.raises(AgentTimeoutError, match="no answer within 50 ms"):
                agent.decide(POINT)
            (late,) = Guard(agent, PATIENT_S).decide_many([POINT])
            assert late.option == POINT.default
            with pytest.raises(AgentBusyError, match="hangs"):
                ask_while_late(agent)
        mute.release.set()


def test_a_service_with_a_token_is_asked_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "a token of many letters"
    with served(chooser(2), token=token) as service:
        with (
            RemoteAgent(service.url, PATIENT_S) as agent,
            pytest.raises(AgentError, match="status 401: expected the header Authorization"),
        ):
            agent.decide(POINT)
        with RemoteAgent(service.url, PATIENT_S, token) as agent:
            assert agent.decide(POINT).option == 2
        monkeypatch.setenv("TIRGYM_SERVE_TOKEN", token)
        with RemoteAgent(service.url, PATIENT_S) as agent:
            assert agent.decide(POINT).option == 2


def test_batches_travel_in_one_message_and_keep_their_order() -> None:
    def ask(point: DecisionPoint) -> int:
        return int(point.block)

    points = [replace(POINT, block=str(i % 3)) for i in range(300)]
    with served(lambda: CallbackAgent(ask)) as service, RemoteAgent(service.url, 1.0) as agent:
        guard = compile_guard(agent, 1000.0, cache=0)
        options = [answer.option for answer in guard.decide_many(points)]
        assert options == [i % 3 for i in range(300)]
        assert service.service.tally.messages_total == 2  # of at most 256 questions


@pytest.mark.parametrize("token", ["sk-secret…", "sk-secret\n"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(token: str) -> None:
    with pytest.raises(InvalidValueError, match="plain characters") as refused:
        RemoteAgent("http://127.0.0.1:1", token=token)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ftp://x", "http://", "http://[::1", "http://x:port", "http://x:99999",
     f"http://{'a' * 70}", "http://a..b", "http://ü", "http://x\n"],
)  # fmt: skip
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(InvalidValueError, match="http://HOST:PORT"):
        RemoteAgent(url)


@pytest.fixture(scope="module")
def first_walk() -> Walk:
    workload = load_workload("tirgym://core-v0/relu?m=16&n=32&dtype=float32")
    return design_space(TensorIRProgram.start(workload, Target("llvm", "skylake-avx512", 1)))


def test_a_walk_with_a_remote_agent_is_the_walk_with_the_agent_itself(first_walk: Walk) -> None:
    def ask(point: DecisionPoint) -> int:
        return len(point.options) - 1

    here = first_walk.follow(CallbackAgent(ask))
    with served(lambda: CallbackAgent(ask)) as service, RemoteAgent(service.url, 30) as agent:
        guard = Guard(agent, PATIENT_S)
        there = first_walk.follow(guard)
    assert there.answers == here.answers
    assert there.program.ir_key == here.program.ir_key
    assert guard.report.taken == len(here.answers) > 0
