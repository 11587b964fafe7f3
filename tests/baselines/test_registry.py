"""Names of agents, and what is said about wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeCost, FakeEvaluator
from policies import POLICIES, untrained

from tirgym.baselines.registry import (
    AGENTS,
    EVIDENCE,
    STRONGEST,
    default_agent,
    in_space,
    make_agent,
    make_branches,
    parse_options,
)
from tirgym.errors import InvalidValueError, UnknownNameError, UsageError
from tirgym.harness.agent import Budget
from tirgym.harness.backend import BACKENDS, backend
from tirgym.harness.decisions import design_space
from tirgym.harness.macros import named_vocabulary
from tirgym.harness.search_run import SearchRun
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import load_workload


@pytest.mark.parametrize("name", sorted(set(AGENTS) - set(POLICIES)))
def test_every_agent_in_the_table_loads_and_knows_its_name(name: str) -> None:
    needed = {"model": "m"} if name == "llm" else {}
    assert make_agent(name, **needed).name.partition(":")[0] == name


@pytest.mark.parametrize("name", sorted(set(AGENTS) & set(POLICIES)))
def test_agents_that_learn_load_a_checkpoint_and_know_their_name(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib")
    assert make_agent(name, checkpoint=untrained(tmp_path / "policy", name)).name == name


def test_an_unknown_agent_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'greedy'"):
        make_agent("gredy")


def test_branches_are_agents_of_one_name_side_by_side() -> None:
    assert make_branches("greedy", 1, tries=3).name == "greedy"
    made = make_branches("greedy", 3, tries=3)
    assert made.name == "greedy x3"
    agents = made.agents  # type: ignore[attr-defined]
    assert [agent.args.tries for agent in agents] == [3, 3, 3]
    assert len({id(agent) for agent in agents}) == 3


def test_an_agent_with_branches_of_its_own_keeps_them_together() -> None:
    pytest.importorskip("openai")
    made = make_branches("llm", 3, model="m")
    assert made.args.branches == 3  # type: ignore[attr-defined]


def test_third_party_agents_are_named_by_module_and_class() -> None:
    made = make_agent("tirgym.baselines.greedy:GreedyAgent", tries=3)
    assert made.args.tries == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["no_such_module:Agent", "json:dumps", "json:nothing", ":x", "a:"])
def test_third_party_names_that_lead_nowhere_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"package\.module:Class") as caught:
        make_agent(name)
    assert "\n" not in str(caught.value)


def test_unknown_options_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="width"):
        make_agent("beam", widht=3)


def test_options_as_text_get_the_type_that_the_agent_declares() -> None:
    texts = ["batch=4", "temperature=2", "search=beam", "checkpoint=a=b.safetensors"]
    assert parse_options("ppo-gnn", texts) == {
        "batch": 4, "temperature": 2.0, "search": "beam", "checkpoint": "a=b.safetensors",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("width", "name=value"),
        ("widht=3", "did you mean 'width'"),
        ("width=wide", "a whole number"),
        ("width=1.5", "a whole number"),
    ],
)
def test_options_as_text_that_are_none_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_options("beam", [text])


@pytest.mark.parametrize(
    ("name", "options"),
    [("beam", {"width": 0}), ("greedy", {"tries": 0}), ("random", {"max_depth": 0})],
)
def test_options_out_of_range_are_refused(name: str, options: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        make_agent(name, **options)


def test_the_default_is_an_agent_of_the_table() -> None:
    assert default_agent("llvm") == (STRONGEST, EVIDENCE)
    assert {default_agent(backend)[0] for backend in BACKENDS} <= set(AGENTS)
    assert "64 trials" in EVIDENCE


@pytest.mark.parametrize(
    ("agent", "space", "options", "actions"),
    [
        ("mcts", None, {}, None),
        ("mcts", "decision", {"space": "decision"}, None),
        ("mcts", "macro", {"space": "macro"}, "macro"),
        ("evolutionary", "both", {"space": "both"}, "both"),
        ("beam", "macro", {}, "macro"),
        ("tirgym.baselines.greedy:GreedyAgent", "primitive", {}, "primitive"),
    ],
)
def test_spaces_are_options_or_action_tables(
    agent: str, space: str | None, options: dict[str, str], actions: str | None
) -> None:
    made, vocabulary = in_space(agent, space, "llvm")
    assert made == options
    expected = named_vocabulary(actions).digest if actions else None
    assert (vocabulary.digest if vocabulary else None) == expected
    make_agent(agent, **made)


@pytest.mark.parametrize(
    ("agent", "space", "accepted"),
    [
        ("beam", "decision", "primitive, macro, both"),
        ("mcts", "macros", "did you mean 'macro'"),
        ("toy_agents:Still", "macro", "none: leave it out"),
        ("gredy", "macro", "did you mean 'greedy'"),
    ],
)
def test_a_space_that_an_agent_does_not_play_is_refused(
    agent: str, space: str, accepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = type("Still", (), {"name": "still", "run": lambda self, search: None})
    monkeypatch.setitem(sys.modules, "toy_agents", SimpleNamespace(Still=still))
    still.__module__ = "toy_agents"
    with pytest.raises(UnknownNameError, match=accepted):
        in_space(agent, space, "llvm")
    with pytest.raises(UnknownNameError, match="backend with"):
        in_space("beam", "macro", "abacus")


def test_random_answers_decision_points() -> None:
    start = backend("llvm").start(load_workload("matmul"), backend("llvm").target())
    evaluator = FakeEvaluator()
    run = SearchRun(start, default_vocabulary("llvm"), FakeCost(), evaluator, Budget(6), seed=0)
    run.run(make_agent("random", **in_space("random", "decision", "llvm")[0]))
    assert run.used == 6
    answered = [run.search.decided[c.program.ir_key] for c in run.history[1:]]
    assert all(answered)
    root = design_space(start)
    for candidate, values in zip(run.history[1:], answered, strict=True):
        assert root.finish(values).program.ir_key == candidate.program.ir_key


def test_static_measures_the_choices_of_the_compiler_and_nothing_else() -> None:
    start = backend("llvm").start(load_workload("softmax"), backend("llvm").target())
    run = SearchRun(start, default_vocabulary("llvm"), FakeCost(), FakeEvaluator(), Budget(9), 0)
    run.run(make_agent("static"))
    assert run.used == 1
    assert run.history[-1].program.ir_key == design_space(start).finish().program.ir_key
