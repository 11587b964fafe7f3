"""Over stdin and stdout: lines in, lines out, and agents in a process of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from services import POINT, QUESTION, Mute, chooser

from tirgym.errors import AgentError, AgentTimeoutError, InvalidValueError
from tirgym.harness.decisions import Guard, Recommendation
from tirgym.serving.host import AgentHost
from tirgym.serving.service import DecisionService
from tirgym.serving.stdio_agent import StdioAgent
from tirgym.serving.stdio_server import serve_stdio

TESTS = Path(__file__).resolve().parents[1]
SERVE = [sys.executable, "-m", "tirgym", "serve", "--stdio", "--agent"]
PATIENT_S = 60.0


@pytest.fixture(autouse=True)
def _agents_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def answered(lines: bytes, make: Any = None, limit_s: float = 30.0) -> list[Any]:
    service = DecisionService(AgentHost(make or chooser(1), "test", limit_s))
    out = io.BytesIO()
    serve_stdio(service, io.BytesIO(lines), out, max_bytes=4096)
    service.host.close()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_line_has_an_answer_in_order() -> None:
    one = json.dumps(QUESTION).encode()
    batch = json.dumps({"requests": [QUESTION, {**QUESTION, "request_id": "q2"}]}).encode()
    lines = [one, b'{"describe": true}', b"", batch, b"{", b"7", b'{"request_id": "a"}', one]
    first, described, many, broken, number, empty, last = answered(b"\n".join(lines))
    assert first == last
    assert first["recommendation"]["selected_option_index"] == 1
    assert described["agent"] == "test"
    assert [response["request_id"] for response in many["responses"]] == ["q1", "q2"]
    assert broken["error"]["code"] == number["error"]["code"] == "not_json"
    assert (empty["request_id"], empty["error"]["field"]) == ("a", "decision_point")


def test_long_lines_are_refused_and_the_next_is_answered() -> None:
    one = json.dumps(QUESTION).encode()
    too_large, first, odd, second = answered(
        b"\n".join([b"x" * 20_000, one, b'{"a": "\\ud800\xff', one])
    )
    assert too_large["error"]["code"] == "too_large"
    assert odd["error"]["code"] == "not_json"
    assert first == second
    assert "recommendation" in first


def test_an_agent_that_hangs_costs_its_limit() -> None:
    mute = Mute()
    (answer,) = answered(json.dumps(QUESTION).encode(), lambda: mute, 0.05)
    assert answer["error"]["code"] == "agent_timeout"
    mute.release.set()


def test_an_agent_in_a_process_of_its_own_answers() -> None:
    options = ["--option", "confidence=0.5", "--option", "note=the last"]
    with StdioAgent([*SERVE, "served_agents:Last", *options], PATIENT_S) as agent:
        assert agent.description.agent == "served_agents:Last"
        assert agent.decide(POINT) == Recommendation(2, 0.5, None, "the last")
        assert [a.option for a in Guard(agent, PATIENT_S).decide_many([POINT] * 300)] == [2] * 300


def test_late_answers_are_not_taken_for_those_of_later_questions() -> None:
    options = ["--option", "seconds=0.5", "--limit-ms", "60000"]
    command = [*SERVE, "served_agents:Sleeper", *options]
    with StdioAgent(command, timeout_s=0.05) as agent:
        # Whichever notices first says so: this side, or the process, which knows the limit.
        with pytest.raises(AgentTimeoutError, match=r"no answer (in time|within 50 ms)"):
            agent.decide(POINT)
        agent.timeout_s = PATIENT_S
        assert agent.decide(POINT).option == 2


def test_a_process_that_dies_is_started_again_a_few_times() -> None:
    with StdioAgent([*SERVE, "served_agents:Last"], PATIENT_S, restarts=1) as agent:
        guard = Guard(agent, PATIENT_S)
        assert guard.decide(POINT).option == 2
        before = agent.pid
        os.kill(before, signal.SIGKILL)
        agent._pipe.process.wait()
        assert guard.decide(POINT).option == 2
        assert agent.pid != before
        os.kill(agent.pid, signal.SIGKILL)
        agent._pipe.process.wait()
        assert guard.decide(POINT).option == POINT.default
        assert guard.report.raised == 1
        assert "has ended" in guard.report.messages[0]


def test_megabytes_are_not_read() -> None:
    program = [sys.executable, str(TESTS / "served_agents.py"), "flood"]
    with StdioAgent(program, PATIENT_S, restarts=0) as agent:
        with pytest.raises(AgentError, match="answers more than 65536 bytes"):
            agent.decide(POINT)
        with pytest.raises(AgentError, match=r"has ended|more than"):
            agent.decide(POINT)


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        ([], InvalidValueError, "a program and its arguments"),
        (["no-such-program-anywhere"], InvalidValueError, "No such file"),
        ([sys.executable, "-c", ""], AgentError, "has ended"),
        (
            [sys.executable, str(TESTS / "served_agents.py"), "talk"],
            InvalidValueError,
            "answers like tirgym serve --stdio",
        ),
    ],
)
def test_programs_that_do_not_serve_are_refused(
    command: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        StdioAgent(command)


def test_a_program_that_says_nothing_is_not_waited_for() -> None:
    with pytest.raises(AgentTimeoutError):
        StdioAgent([sys.executable, "-c", "import time; time.sleep(60)"], startup_s=0.2)
