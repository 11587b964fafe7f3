"""Names of agents, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from tirgym.baselines.registry import AGENTS, make_agent, make_branches
from tirgym.errors import InvalidValueError, UnknownNameError


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_every_agent_in_the_table_loads_and_knows_its_name(name: str) -> None:
    assert make_agent(name).name == name


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


@pytest.mark.parametrize(
    ("name", "options"),
    [("beam", {"width": 0}), ("greedy", {"tries": 0}), ("random", {"max_depth": 0})],
)
def test_options_out_of_range_are_refused(name: str, options: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        make_agent(name, **options)
