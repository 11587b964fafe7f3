"""docs/serving.md and examples/decision_agent.py hold."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from services import chooser, served

from tirgym.harness.decisions import Recommendation
from tirgym.serving.agents import decision_agent_maker
from tirgym.serving.app import make_app
from tirgym.serving.convert import request_of, to_point, to_recommendation
from tirgym.serving.host import AgentHost
from tirgym.serving.latency import serving
from tirgym.serving.remote import RemoteAgent
from tirgym.serving.service import DecisionService
from tirgym.serving.wire import PROTOCOL, DecisionRequest, DecisionResponse

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/serving.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_the_protocol_is_one() -> None:
    question, answer = blocks("json")
    request = DecisionRequest.model_validate_json(question)
    response = DecisionResponse.model_validate_json(answer)
    assert request.protocol == response.protocol == PROTOCOL
    assert request.request_id == response.request_id
    point = to_point(request)
    assert 0 <= to_recommendation(response).option < len(point.options)
    spelt_out = request_of(point, request.request_id, request.budget_ms).model_dump(mode="json")
    assert spelt_out == json.loads(question)  # every field is shown, and none is lost
    assert response.model_dump(mode="json") == json.loads(answer)


def test_the_program_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python")
    with served(chooser(0)) as service:
        assert "http://127.0.0.1:8077" in program
        program = program.replace("http://127.0.0.1:8077", service.url).replace("50.0", "30000.0")
        (tmp_path / "page.py").write_text(program, "utf-8")
        runpy.run_path(str(tmp_path / "page.py"))
    assert " taken" in capsys.readouterr().out


def test_every_code_of_the_page_is_one() -> None:
    table = PAGE.partition("| status | code | why |")[2].partition("\n\n")[0]
    codes = set(re.findall(r"`([a-z]+_[a-z_]+)`", table)) - {"budget_ms"}
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "serving").glob("*.py"))
    assert len(codes) == 14
    for code in codes:
        assert f'"{code}"' in sources
    service = DecisionService(AgentHost(chooser(0), "test"))
    paths = set(re.findall(r"`(?:GET |POST )?(/[a-z0-9/._]+)`", PAGE))
    document = make_app(service).openapi()
    assert paths - {"/openapi.json", "/docs"} == set(document["paths"])
    service.host.close()


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def priced(**costs: float) -> Any:
    question = json.loads(blocks("json")[0])
    for option, (name, cost) in zip(
        question["code_context"]["candidate_options"], costs.items(), strict=True
    ):
        option.update(option=name, static_cost_estimate=cost)
    return to_point(DecisionRequest.model_validate(question))


@pytest.mark.usefixtures("at_home")
def test_the_example_agent_answers_over_the_wire() -> None:
    arguments = ("--agent", "examples.decision_agent:Cheapest", "--option", "margin=1.2")
    with serving(*arguments) as (url, _), RemoteAgent(url, 30.0) as agent:
        assert agent.decide(priced(a=200.0, b=200.0, c=100.0)) == Recommendation(
            2, 0.5, 2.0, "2.00x cheaper at once"
        )
        assert agent.decide(priced(a=200.0, b=110.0, c=100.0)).option == 1  # by less than 1.2
        assert agent.decide(to_point(DecisionRequest.model_validate_json(blocks("json")[0]))) == (
            Recommendation(1, 0.0)
        )


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples/decision_agent.py").read_text("utf-8").splitlines()) <= 25


@pytest.mark.usefixtures("at_home")
def test_agents_of_the_page_can_be_named() -> None:
    assert decision_agent_maker("random", ["seed=1"])().decide(priced(a=1.0, b=1.0, c=1.0))
