"""Runs of the language model agent on the toy compiler, against a scripted server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines.llm.agent import LLMAgent
from tirgym.baselines.llm.scripted_player import scripted_answer
from tirgym.baselines.llm.scripted_server import MODEL, ScriptedServer
from tirgym.baselines.llm.transcript import Saved
from tirgym.harness.agent import Budget
from tirgym.harness.search_run import SearchRun, Stopped

__all__ = ["Played", "climber", "played", "propose", "replayed", "said_to", "toy_run"]

Messages = Sequence[dict[str, Any]]


@dataclass
class Played:
    """A run, who played it, and what it left."""

    run: SearchRun
    agent: LLMAgent
    stopped: Stopped
    requests: list[tuple[dict[str, Any], dict[str, str]]]
    most_at_once: int = 0

    @property
    def best(self) -> float:
        """Best speedup measured."""
        return max((c.evaluation.speedup or 0.0) for c in self.run.history)

    @property
    def saved(self) -> Saved:
        """The transcript."""
        return Saved(self.agent.report()["transcript"])

    @property
    def prompts(self) -> list[str]:
        """First questions of all rounds."""
        asked = [body["messages"] for body, _ in self.requests]
        return [str(messages[1]["content"]) for messages in asked if len(messages) == 2]


def propose(*actions: str, speedup: float = 2.0, base: int | None = None) -> dict[str, Any]:
    """An answer that proposes one program."""
    made: dict[str, Any] = {"actions": list(actions), "predicted_speedup": speedup, "why": "tried"}
    return {"proposals": [made if base is None else {**made, "base": base}]}


def said_to(messages: Messages) -> str:
    """The last thing that the model was told."""
    return str(messages[-1]["content"])


def climber(messages: Messages) -> dict[str, Any]:
    """Turns the first two dials up, one step a proposal; reads where they stand from the prompt."""
    stands = [
        int(n)
        for n in re.findall(
            r"^  dial\d\.tile: .*\*(\d)\*", str(messages[1]["content"]), re.MULTILINE
        )
    ]
    made = []
    for dial in (0, 1):
        if stands[dial] < 8:
            action = f"dial{dial}.tile = {stands[dial] + 1}"
            made += propose(action, speedup=3.0)["proposals"]
    return {"proposals": made} if made else {"stop": "at the top"}


def played(
    tmp_path: Path,
    player: Callable[[Messages], Any] = scripted_answer,
    trials: int = 12,
    seconds: float | None = None,
    evaluator: ToyEvaluator | None = None,
    faults: Sequence[str] = (),
    tools: bool = True,
    key: str = "",
    **options: Any,
) -> Played:
    """One run against a server that plays `player`."""
    with ScriptedServer(player, faults, tools, key) as server:
        given = {"base_url": server.url, "model": MODEL, "save": f"{tmp_path}/", **options}
        agent = LLMAgent(**given)
        run = toy_run(trials, seconds, evaluator)
        return Played(run, agent, run.run(agent), server.requests, server.most_at_once)


def replayed(
    transcript: str | Path,
    tmp_path: Path,
    trials: int = 12,
    evaluator: ToyEvaluator | None = None,
    **options: Any,
) -> Played:
    """The replay of a transcript."""
    agent = LLMAgent(transcript=str(transcript), save=f"{tmp_path}/", **options)
    run = toy_run(trials, None, evaluator)
    return Played(run, agent, run.run(agent), [])


def toy_run(trials: int, seconds: float | None, evaluator: ToyEvaluator | None) -> SearchRun:
    return SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        evaluator or ToyEvaluator(),
        Budget(trials, seconds),
        seed=0,
    )
