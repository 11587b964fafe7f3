"""The client against a server that speaks the protocol, and misbehaves on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from llm_runs import propose

from tirgym.baselines.llm import endpoint as module
from tirgym.baselines.llm.agent import LLMAgent
from tirgym.baselines.llm.answers import read_answers
from tirgym.baselines.llm.endpoint import Endpoint, Exchange, public_url
from tirgym.baselines.llm.scripted_server import MODEL, ScriptedServer
from tirgym.errors import EndpointError, InvalidValueError, MissingExtraError, UnknownNameError

pytest.importorskip("openai")

HELLO = [{"role": "user", "content": "hello"}]
KEY = "sk-secret-0123456789"


def answer(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return propose("a = 1")


def ask(server: ScriptedServer, **options: Any) -> tuple[Exchange, Endpoint]:
    endpoint = Endpoint(**{"model": MODEL, "base_url": server.url, **options})
    try:
        return endpoint.ask(0, HELLO, 50), endpoint
    finally:
        endpoint.close()


def test_tools_are_offered_and_called_and_that_is_said() -> None:
    with ScriptedServer(answer) as server:
        found, endpoint = ask(server)
    assert found.form == "tools"
    assert found.reply.calls[0].name == "propose"
    body, _ = server.requests[0]
    assert body["tools"][0]["function"]["name"] == "propose"
    assert body["max_completion_tokens"] == 50
    assert "temperature" not in body
    assert [note.partition(": ")[2] for note in endpoint.notes] == ["it answers with tool calls"]
    assert (found.usage.estimated, found.retries) == (False, 0)
    assert found.usage.prompt > 0


def test_an_endpoint_without_tools_is_asked_for_json_and_that_is_said() -> None:
    with ScriptedServer(answer, tools=False) as server:
        found, _ = ask(server)
        assert read_answers(found.reply)
        with closing(Endpoint(MODEL, server.url)) as endpoint:
            endpoint.ask(0, HELLO, 50)
            endpoint.ask(0, HELLO, 50)
    assert found.form == "json"
    assert len(endpoint.notes) == 1
    assert "it has no tool calls" in endpoint.notes[0]
    assert ["tools" in body for body, _ in server.requests] == [True, False, True, False, False]


def test_an_endpoint_that_ignores_tools_is_not_offered_them_again() -> None:
    def in_words(messages: Sequence[dict[str, Any]]) -> str:
        return '{"stop": "enough"}'

    with ScriptedServer(in_words) as server, closing(Endpoint(MODEL, server.url)) as endpoint:
        forms = [endpoint.ask(0, HELLO, 50).form for _ in range(2)]
    assert forms == ["tools", "json"]
    assert "they are left out" in endpoint.notes[0]


@pytest.mark.parametrize("form", ["tools", "json"])
def test_the_form_can_be_chosen(form: str) -> None:
    with ScriptedServer(answer) as server:
        found, _ = ask(server, form=form)
    assert (found.form, "tools" in server.requests[0][0]) == (form, form == "tools")
    with ScriptedServer(answer, tools=False) as server, pytest.raises(EndpointError, match="tools"):
        ask(server, form="tools")


def test_many_threads_learn_the_form_at_the_same_time() -> None:
    found: list[object] = []
    with (
        ScriptedServer(answer, tools=False) as server,
        closing(Endpoint(MODEL, server.url)) as endpoint,
    ):

        def one() -> None:
            try:
                found.append(endpoint.ask(0, HELLO, 50).form)
            except EndpointError as error:
                found.append(error)

        threads = [threading.Thread(target=one) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["json"] * 6
    assert len(endpoint.notes) == 1


def test_the_field_that_limits_answers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (400, "unsupported_parameter", "use 'max_tokens', not 'max_completion_tokens'")
    monkeypatch.setitem(module_errors(), "400", wrong)
    with ScriptedServer(answer, ["400"]) as server:
        ask(server, temperature=0.5)
    assert [("max_tokens" in body, "tools" in body) for body, _ in server.requests] == [
        (False, True), (True, True),
    ]  # fmt: skip
    assert server.requests[0][0]["temperature"] == 0.5


def module_errors() -> dict[str, tuple[int, str, str]]:
    from tirgym.baselines.llm import scripted_server

    return scripted_server._ERRORS


@pytest.mark.parametrize("fault", ["429", "500", "503"])
def test_passing_faults_are_retried_and_counted(fault: str) -> None:
    with ScriptedServer(answer, [fault] * 2) as server:
        found, endpoint = ask(server)
    assert found.retries == 2
    assert (endpoint.requests, len(server.requests)) == (3, 3)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("429:always", "limits the rate, after 3 tries: slow down"),
        ("500:always", "answers 500: the server had an accident"),
        ("overflow:always", r"does not fit into the context of scripted; a smaller prompt_tokens"),
        ("400:always", "answers 400: this request is not to my liking"),
    ],
)
def test_faults_that_stay_are_one_line(fault: str, said: str) -> None:
    with ScriptedServer(answer, [fault]) as server, pytest.raises(EndpointError, match=said) as e:
        ask(server)
    assert "\n" not in str(e.value)
    assert server.url.rstrip("/") in str(e.value) or "context" in said


def test_a_hanging_endpoint_is_one_line() -> None:
    with ScriptedServer(answer, ["hang:always"]) as server:
        with pytest.raises(EndpointError, match=r"did not answer within 0\.2 s \(2 tries\)"):
            ask(server, timeout_s=0.2, retries=1)
        assert len(server.requests) == 2
        patient = closing(Endpoint(MODEL, server.url, timeout_s=60.0, retries=5))
        with patient as endpoint, pytest.raises(EndpointError):
            endpoint.ask(0, HELLO, 50, seconds_left=0.1)  # the time of the search: no retries
        assert len(server.requests) == 3


@pytest.mark.parametrize("fault", ["not-json", "no-choices"])
def test_answers_of_another_shape_are_problems_and_no_errors(fault: str) -> None:
    with ScriptedServer(answer, [fault]) as server:
        found, _ = ask(server)
    assert "the endpoint sent no" in found.reply.problem
    assert found.usage.estimated == (fault == "not-json")


def test_tokens_are_estimated_where_the_endpoint_does_not_say() -> None:
    with ScriptedServer(answer, ["no-usage"]) as server:
        found, _ = ask(server)
    assert found.usage.estimated
    assert found.usage.answer > 0


def test_a_huge_answer_is_cut() -> None:
    with ScriptedServer(answer, ["huge"]) as server:
        found, _ = ask(server)
    assert len(found.reply.content) < 300_000
    assert "characters were cut off" in found.reply.content


def test_a_wrong_key_is_one_line_and_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ScriptedServer(answer, key="another") as server:
        with pytest.raises(EndpointError, match="refuses the key in OPENAI_API_KEY") as caught:
            ask(server)
        assert KEY not in str(caught.value)
        assert "***" in str(caught.value)
    with ScriptedServer(answer, key=KEY) as server:
        assert ask(server)[0].reply.calls


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # loopback goes through no proxy
    with ScriptedServer(answer) as server:
        assert ask(server)[0].reply.calls
    with pytest.raises(EndpointError, match="set OPENAI_API_KEY"):
        Endpoint(MODEL)


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    with ScriptedServer(answer) as server:
        with pytest.raises(UnknownNameError, match="did you mean 'scripted'"):
            ask(server, model="scripte")
        with pytest.raises(EndpointError, match=r"is no OpenAI-compatible endpoint .* /v1"):
            ask(server, base_url=server.url.removesuffix("v1") + "other")


def test_a_refused_connection_is_one_line() -> None:
    nobody = closing(Endpoint(MODEL, "http://127.0.0.1:9/v1", retries=0))
    with nobody as endpoint, pytest.raises(EndpointError, match=r"cannot be reached: .*refused"):
        endpoint.ask(0, HELLO, 50)


@pytest.mark.parametrize("url", ["127.0.0.1:80/v1", "ftp://x/v1", "x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidValueError, match="an http or https address"):
        Endpoint(MODEL, url)


def test_credentials_in_addresses_are_not_shown() -> None:
    assert public_url("https://me:word@host:8/v1?key=word#x") == "https://host:8/v1"


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tirgym\[llm\]'"):
        Endpoint(MODEL)


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://host", "http://", "http://[::1", "http://host:port", "http://host:99999",
     f"http://{'a' * 70}/v1", "http://a..b/v1", "http://ü…/v1", "http://host/\n"],
)  # fmt: skip
@pytest.mark.parametrize("given", [True, False])
def test_what_is_no_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, url: str, given: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "" if given else url)
    with pytest.raises(InvalidValueError, match="expected an http or https address"):
        Endpoint(MODEL, url if given else "")


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "sk-secret…")
    with pytest.raises(InvalidValueError, match=f"{name}: .*expected plain") as refused:
        Endpoint(MODEL, "http://127.0.0.1:1/v1")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "option", [{"timeout": float("inf")}, {"timeout": 1e300}, {"temperature": float("inf")}]
)
def test_numbers_that_cannot_be_sent_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match="of agent llm"):
        LLMAgent(model=MODEL, base_url="http://127.0.0.1:1/v1", **option)


@pytest.mark.parametrize("seconds_left", [None, 60.0])
def test_a_body_that_drips_is_late(seconds_left: float | None) -> None:
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            with suppress(OSError):
                while not ended.wait(0.1):
                    connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        timer = threading.Timer(10, ended.set)
        timer.start()
        with closing(Endpoint(MODEL, url, timeout_s=1.0, retries=0)) as endpoint:
            with pytest.raises(EndpointError, match="did not answer within 1 s"):
                endpoint.ask(0, HELLO, 50, seconds_left)
            assert not ended.is_set()
        timer.cancel()
        ended.set()
        dripping.join()


def test_there_are_no_more_tries_than_there_is_time_for() -> None:
    with (
        ScriptedServer(answer, ["hang:always"]) as server,
        closing(Endpoint(MODEL, server.url, timeout_s=1.0, retries=5)) as endpoint,
    ):
        with pytest.raises(EndpointError):
            endpoint.ask(0, HELLO, 50, seconds_left=2.2)
        assert endpoint.requests == 2
