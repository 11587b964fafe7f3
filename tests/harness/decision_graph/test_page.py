"""The page as text: one file, nothing from outside, nothing from the data that runs."""

from __future__ import annotations

import json
from itertools import pairwise

from graphs import by_hand
from pages_as_text import assert_sealed, parsed

from tirgym.harness.decision_graph.layout import places
from tirgym.harness.decision_graph.page import to_html

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{script}} <!--"
GRAPH = by_hand(
    {"root": 1.0, ATTACK: 2.0, "left": None},
    [("root", ATTACK, ATTACK), ("root", "left", "on")],
    workload=f"tirgym://local/{ATTACK}:k?n=1",
    warnings=[ATTACK],
)


def test_the_data_comes_back_and_stays_data() -> None:
    tags = parsed(to_html(GRAPH))
    scripts = [attributes for tag, attributes in tags.found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not [tag for tag, _ in tags.found if tag == "img"]
    text = next(text for text in tags.scripts if text.startswith('{"edges"'))
    told = json.loads(text)
    assert told["edges"][0]["label"] == ATTACK
    assert {node["id"] for node in told["nodes"]} == set(GRAPH.states)


def test_nothing_is_loaded_and_only_the_shipped_script_runs() -> None:
    assert_sealed(to_html(GRAPH), ("src", "href", "srcset", "action"))


def test_places_are_a_tree_with_the_best_path_in_the_first_row() -> None:
    graph = by_hand(
        {"root": 1.0, "slow": 0.5, "mid": None, "best": 3.0, "other": 2.0, "alone": "crash"},
        [
            ("root", "slow", "1"),
            ("root", "mid", "2"),
            ("mid", "best", "3"),
            ("mid", "other", "4"),
            ("slow", "best", "5"),
            ("root", "alone", "6"),
        ],
    )
    at = places(graph)
    assert [at[name] for name in ("root", "mid", "best")] == [(0, 0), (1, 0), (2, 0)]
    assert [at[name] for name in ("other", "slow", "alone")] == [(2, 1), (1, 2), (1, 3)]
    assert {name: column for name, (column, _) in at.items()} == dict(graph.depths)


def test_a_long_chain_needs_no_recursion() -> None:
    names = [f"s{number}" for number in range(1500)]
    graph = by_hand(dict.fromkeys(names), [(a, b, "on") for a, b in pairwise(names)])
    assert places(graph)["s1499"] == (1499, 0)
    assert len(to_html(graph)) > 100_000
