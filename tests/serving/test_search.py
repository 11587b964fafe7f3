"""Search around advice: what is measured first, what comes after, and who advises."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from services import chooser, served
from toy import ToyCost, ToyEvaluator, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import OptimizeResult, optimize
from tirgym.errors import UsageError
from tirgym.harness.decisions import DecisionPoint, Recommendation
from tirgym.harness.target import Target
from tirgym.serving.search import AdvisedAgent

pytestmark = pytest.mark.usefixtures("toy_transforms")


def play(agent: AdvisedAgent, trials: int) -> OptimizeResult:
    """A search on the toy compiler."""
    return optimize(
        toy_workload(),
        agent,
        trials=trials,
        seed=3,
        target=Target("toy", "dials", 1),
        evaluator=ToyEvaluator(),
        vocabulary=toy_vocabulary(),
        cost=ToyCost(),
    )


class Counting:
    """Takes the first option, and counts who is asked together."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.costs = False

    def decide_many(self, points: Sequence[DecisionPoint]) -> list[Recommendation]:
        """The first options."""
        self.batches.append(len(points))
        self.costs = all(option.cost_us is not None for option in points[0].options)
        return [Recommendation(0) for _ in points]

    def decide(self, point: DecisionPoint) -> Recommendation:
        """Not asked: there is `decide_many`."""
        raise NotImplementedError


def test_the_first_trial_is_what_is_advised() -> None:
    with served(chooser(0)) as service:
        agent = AdvisedAgent(url=service.url, budget_ms=30_000.0)
        result = play(agent, 1)
    assert result.trials == 1
    report = agent.guard.report
    assert report.taken == report.asked > 0
    assert agent.notes() == [f"advice: {report}"]


def test_the_others_deviate_from_the_best_and_ask_in_batches() -> None:
    agent = AdvisedAgent(agent="static", batch=8)
    agent.guard.agent = counting = Counting()
    first = play(AdvisedAgent(agent="static"), 1)
    result = play(agent, 40)
    assert result.trials == 40
    assert max(counting.batches) > 1
    assert counting.costs
    assert result.speedup is not None
    assert first.speedup is not None
    assert result.speedup > first.speedup


def test_a_seed_fixes_what_is_proposed() -> None:
    def proposed() -> list[str]:
        result = play(AdvisedAgent(agent="static"), 20)
        return [str(step) for step in result.trace.transforms]

    assert proposed() == proposed()


def test_a_service_that_is_gone_leaves_the_static_choice() -> None:
    with served(chooser(0)) as service:
        url = service.url
    agent = AdvisedAgent(url=url)
    result = play(agent, 5)
    assert result.trials == 5
    assert agent.guard.report.taken == 0
    assert agent.guard.report.overruled == agent.guard.report.asked
    assert any("cannot be asked" in line for line in agent.notes())
    static = play(AdvisedAgent(agent="static"), 5)
    assert result.trace.transforms == static.trace.transforms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of url=http://…, command=… and agent=NAME"),
        ({"url": "http://x", "agent": "static"}, "one of url=http://…, command=… and agent=NAME"),
        ({"agent": "nobody"}, "unknown decision agent 'nobody'"),
        ({"agent": "static", "batch": 0}, "batch: 0"),
        ({"agent": "static", "budget_ms": 0.0}, "budget_ms: 0.0"),
        ({"agent": "static", "confidence": 2.0}, "least_confidence: 2.0"),
        ({"url": "nowhere"}, "http://HOST:PORT"),
        ({"command": "no-such-program-anywhere"}, "No such file"),
        ({"command": "tirgym 'serve"}, "quoted as in a shell (No closing quotation)"),
        ({"command": "a\x00b"}, "embedded null byte"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        AdvisedAgent(**options)
    assert said in str(caught.value)


def test_no_advisor_is_told_what_would_be_one(cli: Cli) -> None:
    outcome = cli("optimize", "matmul", "--agent", "tirgym.serving.search:AdvisedAgent")
    assert outcome.code == 2
    assert "one of url=http://…, command=… and agent=NAME" in outcome.err


def test_a_kernel_is_optimized_with_an_agent_in_another_process(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "relu.json"
    command = f"{sys.executable} -m tirgym serve --stdio --agent random --option seed=1"
    outcome = cli(
        "optimize", "tirgym://core-v0/relu?m=16&n=32&dtype=float32", "--trials", 3, "--json",
        "--agent", "tirgym.serving.search:AdvisedAgent", "--option", f"command={command}",
        "--option", "budget_ms=30000", "--out", trace,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    told = outcome.json()
    assert (told["agent"], told["status"], told["trials"]) == ("advised", "passed", 3)
    assert "tirgym: advice: " in outcome.err
    assert "0 static" in outcome.err
    assert json.loads(trace.read_text())["workload"] == told["workload"]
