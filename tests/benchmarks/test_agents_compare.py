"""The comparison of agents: rows are kept, a killed run goes on, the strongest is the right one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tirgym.baselines.mcts import MCTSAgent
from tirgym.benchmarks import agents_compare
from tirgym.benchmarks.agents_compare import Row, compare, measure, parse_agent, run, table
from tirgym.errors import DamagedFileError, InvalidValueError, UnknownNameError


def row(workload: str, agent: str, seed: int = 0, **fields: Any) -> Row:
    values: dict[str, Any] = {
        "trials": 64, "early": 10.0, "speedup": 20.0, "speedup_ci": (19.0, 21.0), "used": 64,
        "failures": 0, "stopped": "trials", "agent_s": 5.0, "search_s": 20.0,
    }  # fmt: skip
    return Row(workload, agent, seed, **{**values, **fields})


def as_json(*rows: Row) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(asdict(made))) for made in rows]


def test_the_strongest_has_the_highest_mean_over_the_workloads_that_all_have() -> None:
    rows = as_json(
        row("matmul", "beam", speedup=10.0),
        row("matmul", "beam", 1, speedup=40.0),
        row("matmul", "mcts", speedup=30.0),
        row("softmax", "beam", speedup=5.0),
        row("softmax", "mcts", speedup=4.0, early=None),
        row("conv2d", "beam", speedup=1000.0),  # the other agent was not measured there
    )
    found = compare(rows)
    assert found["shared"] == ["matmul", "softmax"]
    assert found["workloads"]["matmul"]["beam"]["speedup"] == pytest.approx(20.0)
    assert found["workloads"]["softmax"]["mcts"]["early"] == 1.0  # without a number naive is kept
    assert found["means"]["beam"]["speedup"] == pytest.approx(10.0)
    assert found["strongest"] == "mcts"
    console = Console(record=True, width=140)
    console.print(table(found, 64))
    text = console.export_text()
    assert "geomean of 2" in text
    assert "strongest at 64 trials: mcts" in text


def test_agents_that_share_no_workload_are_not_ranked() -> None:
    found = compare(as_json(row("matmul", "beam"), row("softmax", "mcts")))
    assert (found["strongest"], found["means"]) == (None, {})
    Console(record=True).print(table(found, 64))


def test_a_killed_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, asked = tmp_path / "agents.jsonl", []

    def fake(label: str, agent: str, seed: int, trials: int) -> Row:
        asked.append((label, agent, seed))
        return row(label, agent, seed, trials=trials)

    monkeypatch.setattr(agents_compare, "measure", fake)
    agents = ["beam", "mcts,space=macro"]
    run(out, agents, ["matmul"], 64, 1, False)
    capsys.readouterr()
    whole = out.read_text()
    out.write_text(whole + '{"workload": "mat')  # killed while it wrote
    run(out, agents, ["matmul"], 64, 2, True)
    assert asked == [("matmul", agent, seed) for seed in (0, 1) for agent in agents]
    assert out.read_text().startswith(whole)
    captured = capsys.readouterr()
    assert "torn" in captured.err
    assert json.loads(captured.out)["workloads"]["matmul"]["mcts,space=macro"]["seeds"] == 2


def test_a_damaged_file_and_wrong_names_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(agents_compare, "measure")
    out = tmp_path / "agents.jsonl"
    out.write_text('{"trials": 3}\n{"workload": "matmul"}\n')
    with pytest.raises(DamagedFileError, match="line 1 is no row"):
        run(out, ["beam"], ["matmul"], 64, 1, False)
    with pytest.raises(UnknownNameError, match="matmul"):
        run(tmp_path / "new", ["beam"], ["matmull"], 64, 1, False)
    with pytest.raises(UnknownNameError, match="did you mean 'beam'"):
        run(tmp_path / "new", ["beem"], ["matmul"], 64, 1, False)


def test_agents_with_options() -> None:
    made = parse_agent("mcts,space=macro,exploration=0.5,batch=4")
    assert isinstance(made, MCTSAgent)
    assert (made.args.space, made.args.exploration, made.args.batch) == ("macro", 0.5, 4)
    with pytest.raises(InvalidValueError, match="name=value"):
        parse_agent("mcts,fast")
    with pytest.raises(UnknownNameError, match="batch"):
        parse_agent("mcts,bach=3")


def test_a_real_search_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "tirgym://core-v0/row_sum?m=64&n=96&dtype=float32"
    monkeypatch.setattr(agents_compare, "WORKLOADS", {"small": uri})
    monkeypatch.setattr(agents_compare, "EARLY", 1)
    found = measure("small", "mcts,simulations=8,batch=1", 0, 2)
    assert found.used == 2
    assert found.speedup is not None
    assert found.early is not None
    assert found.speedup_ci is not None
    assert found.speedup_ci[0] <= found.speedup <= found.speedup_ci[1]
    assert 0 <= found.agent_s <= found.search_s
