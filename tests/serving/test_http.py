"""The service over HTTP: answers, refusals, and what is left when an agent misbehaves."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from services import POINT, QUESTION, Mute, Served, chooser, served

from tirgym.harness.decisions import CallbackAgent, DecisionPoint, Recommendation
from tirgym.serving import host as host_module
from tirgym.serving.convert import request_of

TOKEN = "a token of many letters"


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """Always takes option 1."""
    with served(chooser(1), max_bytes=10_000, hosts=("127.0.0.1", "localhost")) as service:
        yield service


def body(**fields: Any) -> bytes:
    return json.dumps({**QUESTION, **fields}).encode()


def test_a_question_is_answered(service: Served) -> None:
    response = service.post("/v1/decision", body(request_id="mine"))
    assert response.status == 200
    assert json.loads(response.content) == {
        "protocol": "tirgym-decision/1",
        "request_id": "mine",
        "recommendation": {
            "selected_option_index": 1,
            "confidence": 1.0,
            "predicted_performance_gain": None,
        },
        "explanation": "",
    }


def test_agents_see_the_whole_point_and_their_whole_answer_comes_back() -> None:
    seen = []

    def ask(point: DecisionPoint) -> Recommendation:
        seen.append(point)
        return Recommendation(2, 0.25, 1.5, "wider — µs")

    with served(lambda: CallbackAgent(ask)) as service:
        response = service.post("/v1/decision", request_of(POINT, "q").model_dump_json().encode())
    assert seen == [POINT]
    told = json.loads(response.content)
    assert told["explanation"] == "wider — µs"
    assert told["recommendation"] == {
        "selected_option_index": 2,
        "confidence": 0.25,
        "predicted_performance_gain": 1.5,
    }


def test_a_batch_has_an_answer_or_an_error_for_each(service: Served) -> None:
    one = {**QUESTION, "code_context": {**QUESTION["code_context"]}}
    one["code_context"] = {
        **one["code_context"],
        "candidate_options": [{"option": "only", "factor": 1}],
    }
    batch = {"requests": [{**QUESTION, "request_id": "a"}, {**one, "request_id": "b"}]}
    response = service.post("/v1/decisions", json.dumps(batch).encode())
    assert response.status == 200
    first, second = json.loads(response.content)["responses"]
    assert (first["request_id"], first["recommendation"]["selected_option_index"]) == ("a", 1)
    assert (second["request_id"], second["error"]["code"]) == ("b", "agent_answer_invalid")
    assert "expected 0 to 0" in second["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "status", "code", "field"),
    [
        (b"", 422, "not_json", None),
        (b"{", 422, "not_json", None),
        (b"[]", 422, "not_json", None),
        (b"\xff", 400, "not_json", None),
        (b"[" * 9000, 400, "not_json", None),
        (b"{}", 422, "bad_field", "request_id"),
        (body(budget_ms="1"), 422, "bad_field", "budget_ms"),
        (body(protocol="tirgym-decision/7"), 422, "unknown_protocol", "protocol"),
        (body(more="x" * 20_000), 413, "too_large", None),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    service: Served, sent: bytes, status: int, code: str, field: str | None
) -> None:
    response = service.post("/v1/decision", sent)
    told = json.loads(response.content)
    assert (response.status, told["error"]["code"], told["error"]["field"]) == (status, code, field)
    assert told["request_id"] == ("q1" if b'"q1"' in sent and status == 422 else None)


def test_a_wrong_question_of_a_batch_is_named(service: Served) -> None:
    batch = {"requests": [QUESTION, {**QUESTION, "request_id": None}]}
    response = service.post("/v1/decisions", json.dumps(batch).encode())
    assert response.status == 422
    assert json.loads(response.content)["error"]["field"] == "requests.1.request_id"


def test_other_paths_methods_and_types_are_refused(service: Served) -> None:
    response = service.get("/v2/decision")
    assert response.status == 404
    assert "/v1/decision" in json.loads(response.content)["error"]["message"]
    assert service.get("/v1/decision").status == 405
    response = service.post("/v1/decision", body(), content_type="text/plain")
    assert response.status == 422
    assert "application/json" in json.loads(response.content)["error"]["message"]


def test_a_request_of_unknown_length_is_cut_off_too(service: Served) -> None:
    port = int(service.url.rpartition(":")[2])
    with closing(socket.create_connection(("127.0.0.1", port), 20)) as connection:
        connection.sendall(
            b"POST /v1/decision HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\n"
        )
        for _ in range(3):
            connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_pages_of_other_sites_cannot_reach_it_under_their_own_name(service: Served) -> None:
    response = service.get("/health", {"Host": "evil.example:8077"})
    assert response.status == 421
    assert service.get("/health", {"Host": "localhost:8077"}).status == 200


def test_it_says_who_answers_and_how_it_is(service: Served) -> None:
    told = json.loads(service.get("/v1").content)
    assert told["protocols"] == ["tirgym-decision/1"]
    assert told["agent"] == "test"
    assert json.loads(service.get("/health").content) == {"status": "ok", "agent": "test"}
    paths = json.loads(service.get("/openapi.json").content)["paths"]
    assert {"/v1/decision", "/v1/decisions", "/v1", "/health", "/metrics"} <= set(paths)
    assert b"swagger" in service.get("/docs").content


def figures(service: Served, headers: dict[str, str] | None = None) -> dict[str, float]:
    response = service.get("/metrics", headers)
    lines = response.content.decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_metrics_count_decisions_by_what_came_of_them() -> None:
    def ask(point: DecisionPoint) -> Any:
        if point.block == "raise":
            raise ValueError("no\nidea")
        return 7 if point.block == "invalid" else 0

    with served(lambda: CallbackAgent(ask)) as service:
        before = figures(service)
        assert before['tirgym_decisions_total{outcome="answered"}'] == 0
        statuses = [
            service.post("/v1/decision", body(decision_point={"key": "pad", "block": block}))
            for block in ("", "", "raise", "invalid")
        ]
        service.post("/v1/decision", b"{")
        told = figures(service)
    assert [response.status for response in statuses] == [200, 200, 500, 502]
    assert json.loads(statuses[2].content)["error"] == {
        "code": "agent_failed",
        "message": "the agent raised ValueError: no",
        "field": None,
    }
    assert {
        outcome: told[f'tirgym_decisions_total{{outcome="{outcome}"}}']
        for outcome in ("answered", "raised", "invalid", "timeout", "busy")
    } == {"answered": 2, "raised": 1, "invalid": 1, "timeout": 0, "busy": 0}
    assert told['tirgym_http_responses_total{code="422"}'] == 1
    assert told["tirgym_message_seconds_count"] == 4
    assert told['tirgym_agent_info{agent="test"}'] == 1


def until_it_hangs(service: Served) -> None:
    """Ask in vain; a question that the agent did not get to see in its time is asked again."""
    host = service.service.host
    for _ in range(1000):
        while host._worker.began is not None:
            if host.hangs:
                return
            threading.Event().wait(0.01)
        assert service.post("/v1/decision", body()).status == 504
    raise AssertionError("it never happened")


def test_an_agent_that_hangs_is_given_up_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    mutes: list[Mute] = []

    def make() -> Any:
        if len(mutes) < 2:
            mutes.append(Mute())
            return mutes[-1]
        return CallbackAgent(lambda point: 1)

    with served(make, limit_s=0.05, spares=2) as service:
        host = service.service.host
        monkeypatch.setattr(host_module, "HANGS", 1e6)
        assert service.post("/v1/decision", body()).status == 504
        assert service.get("/health").status == 200  # it may be slow, which is no hanging yet
        monkeypatch.setattr(host_module, "HANGS", 2.0)
        until_it_hangs(service)
        response = service.get("/health")
        assert (response.status, json.loads(response.content)["status"]) == (503, "hangs")
        assert service.post("/v1/decision", body()).status == 504
        until_it_hangs(service)  # the second hangs too
        host.limit_s = 60.0
        assert service.post("/v1/decision", body()).status == 200  # the third does not
        assert service.get("/health").status == 200
        told = figures(service)
        for mute in mutes:
            mute.release.set()
    assert host.replaced == told["tirgym_agents_replaced_total"] == len(mutes) == 2
    assert told['tirgym_decisions_total{outcome="timeout"}'] >= 2


def test_without_spares_the_service_refuses_until_the_agent_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_module, "HANGS", 2.0)
    mute = Mute()
    with served(lambda: mute, limit_s=0.05, spares=0) as service:
        host = service.service.host
        until_it_hangs(service)
        response = service.post("/v1/decision", body())
        assert response.status == 503
        assert json.loads(response.content)["error"]["code"] == "agent_busy"
        mute.release.set()
        while host.hangs:
            threading.Event().wait(0.01)
        host.limit_s = 60.0
        assert service.post("/v1/decision", body()).status == 502  # it answers None


def test_whoever_asks_may_wait_less_than_the_limit() -> None:
    mute = Mute()
    with served(lambda: mute, limit_s=60.0) as service:
        response = service.post("/v1/decision", body(budget_ms=20))
        assert response.status == 408
        assert "within 20 ms" in json.loads(response.content)["error"]["message"]
        mute.release.set()


def test_with_a_token_nothing_that_matters_is_answered_without_it() -> None:
    with served(chooser(1), token=TOKEN) as service:
        for given in (None, "Bearer wrong", TOKEN, f"Bearer {TOKEN}x", f"bearer {TOKEN}"):
            headers = {} if given is None else {"Authorization": given}
            for response in (
                service.post("/v1/decision", body(), headers=headers),
                service.post("/v1/decisions", b"{}", headers=headers),
                service.get("/metrics", headers),
                service.get("/v1", headers),
            ):
                assert response.status == 401
                assert {name.lower(): value for name, value in response.headers}[
                    b"www-authenticate"
                ] == b"Bearer"
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert service.post("/v1/decision", body(), headers=right).status == 200
        assert figures(service, right)['tirgym_decisions_total{outcome="answered"}'] == 1
        assert service.get("/health").status == 200
