"""JSON, GraphML and DOT: complete, escaped, readable by others."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import networkx
import pytest
from graphs import by_hand

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.decision_graph import best_path, regret, save_graph
from tirgym.harness.decision_graph.export import format_of, to_dot, to_graphml, to_json

NASTY = 'a"b\\c\n<d> & "]; x -> y \x07 \ud800 é'
GRAPH = by_hand(
    {"root": 1.0, "q": None, NASTY: 2.5, "bad": "wrong_result", "alone": 0.5},
    [
        ("root", "q", "open questions"),
        ("q", NASTY, "p: x"),
        ("root", "bad", NASTY),
        ("root", NASTY, "Split(loop=0, factor=2)"),
        ("root", NASTY, "Split(loop=1, factor=2)"),
        ("bad", "bad", "nothing"),
        ("root", "alone", "on"),
    ],
    points={"q": ("p", ("x", "y"), ())},
    warnings=["one line is left out"],
)


def test_json_has_everything() -> None:
    told = json.loads(to_json(GRAPH))
    assert told["format"] == "tirgym-graph-1"
    assert told["warnings"] == ["one line is left out"]
    assert [node["id"] for node in told["nodes"]] == list(GRAPH.states)
    (root,) = told["roots"]
    assert (root["state"], root["best"], root["best_speedup"]) == ("root", NASTY, 2.5)
    assert root["best_path"] == [edge.id for edge in best_path(GRAPH)]
    assert root["best_transforms"] == ["Split(loop=0, factor=2)"]
    by_id = {node["id"]: node for node in told["nodes"]}
    assert by_id["q"]["options"] == ["x", "y"]
    assert by_id["q"]["best"] == NASTY
    assert by_id["bad"]["status"] == "wrong_result"
    assert by_id["bad"]["best"] is None
    for edge, found in zip(GRAPH.edges, told["edges"], strict=True):
        assert found["regret"] == regret(GRAPH, edge)
        assert (found["label"], found["gain"], found["weight"]) == (
            edge.label,
            edge.gain,
            edge.weight,
        )


def test_graphml_is_read_by_networkx() -> None:
    read = networkx.read_graphml(io.BytesIO(to_graphml(GRAPH).encode("utf-8", "replace")))
    assert isinstance(read, networkx.MultiDiGraph)
    assert read.number_of_nodes() == len(GRAPH.states)
    assert read.number_of_edges() == len(GRAPH.edges)
    assert read.nodes["root"]["speedup"] == 1.0
    assert isinstance(read.nodes["root"]["visits"], int)
    assert read.nodes["q"]["options"] == "x; y"
    assert "speedup" not in read.nodes["q"]
    assert read.nodes["q"]["workload"] == GRAPH.roots[0].workload
    (on,) = read.get_edge_data("root", "alone").values()
    assert on["gain"] == pytest.approx(math.log(0.5))
    assert on["label"] == "on"


def test_dot_escapes_what_it_is_given() -> None:
    text = to_dot(GRAPH)
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    assert 'a\\"b\\\\c\\n<d> & \\"]; x -> y \x07 \ud800 é' in strings
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text)
    assert outside.count("->") == len(GRAPH.edges)
    assert outside.count("penwidth=3") == 1
    outside = re.sub(r"\[[^\]]*\]", "", outside)  # attributes
    accepted = {"digraph", "decisions", "{", "rankdir=LR;", "node", "edge", "S", "->", ";", "}"}
    assert set(outside.split()) == accepted


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz (dot) is not installed")
def test_dot_is_read_by_graphviz(tmp_path: Path) -> None:
    save_graph(GRAPH, tmp_path / "g.dot")
    done = subprocess.run(["dot", "-Tplain", tmp_path / "g.dot"], capture_output=True, check=True)
    assert done.stdout.count(b"\nedge ") == len(GRAPH.edges)


@pytest.mark.parametrize("name", ["g.json", "g.graphml", "g.dot", "g.HTML"])
def test_files_are_written_whole(tmp_path: Path, name: str) -> None:
    save_graph(GRAPH, tmp_path / "new" / name)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert (tmp_path / "new" / name).stat().st_size > 500


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_graph(GRAPH, path)
    assert [found.name for found in tmp_path.iterdir()] == ["g.json"]
    assert path.read_text() == "old"


def test_the_format_comes_from_the_name_or_is_said() -> None:
    assert format_of("a/b.GraphML") == "graphml"
    assert format_of("b.txt", "dot") == "dot"
    with pytest.raises(InvalidValueError, match=r"\.html, \.json, \.graphml, \.dot"):
        format_of("b.txt")
    with pytest.raises(UnknownNameError, match="did you mean 'json'"):
        format_of("b.json", "jsn")
