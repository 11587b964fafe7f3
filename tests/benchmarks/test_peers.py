"""The comparison with peers: rows are kept, a killed run goes on, medians and means are right."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tirgym.benchmarks import peers
from tirgym.benchmarks.peers import Duel, Shipped, duel, run
from tirgym.benchmarks.peers_table import summary, table
from tirgym.errors import DamagedFileError, UnknownNameError
from tirgym.kernels_suite.registry import load_workload


def row(workload: str, seed: int, **fields: Any) -> Duel:
    values: dict[str, Any] = {
        "trials": 64, "agent": "evolutionary", "ours_us": 100.0, "speedup": 40.0,
        "early_ratio": 1.0, "ratio": 1.0, "ratio_ci": (0.9, 1.1), "peer_failures": 0,
        "our_failures": 0, "libraries": {"numpy": 0.9}, "ours_s": 20.0, "peer_s": 60.0,
    }  # fmt: skip
    return Duel(workload, seed, **{**values, **fields})


def as_json(*rows: Duel | Shipped) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(asdict(made))) for made in rows]


def test_medians_over_seeds_and_means_over_the_six() -> None:
    duels = as_json(
        row("matmul", 0, ratio=1.0),
        row("matmul", 1, ratio=4.0),
        row("matmul", 2, ratio=2.0),
        row("softmax", 0, ratio=8.0, libraries={"numpy": 3.0, "torch": None}),
        row("transpose", 0, ratio=100.0),
    )
    found = summary(duels, as_json(Shipped("matmul", 64, 200.0, 250.0, 20.0, 10.0)))
    rows = {line["workload"]: line for line in found["rows"]}
    assert rows["matmul"]["metaschedule"] == 2.0
    assert rows["matmul"]["shipped_over_ours"] == 10.0
    assert rows["matmul"]["shipped_over_search"] == 20.0
    assert rows["softmax"]["libraries"] == {"numpy": 3.0, "torch": None}
    assert found["means"]["metaschedule"] == {"geomean": pytest.approx(4.0), "workloads": 2}
    console = Console(record=True, width=140)
    console.print(table(found))
    assert "geomean of the six" in console.export_text()


def test_what_has_no_number_is_left_out_and_counted() -> None:
    found = summary(as_json(row("matmul", 0, ratio=None), row("conv2d", 0, ratio=2.0)), [])
    assert found["rows"][0]["metaschedule"] is None
    assert found["means"]["metaschedule"] == {"geomean": pytest.approx(2.0), "workloads": 1}
    assert found["means"]["shipped_over_ours"] == {"geomean": None, "workloads": 0}


def test_a_killed_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, asked = tmp_path / "peers.jsonl", []

    def measure(label: str, trials: int, seed: int) -> Duel:
        asked.append((label, seed))
        return row(label, seed, trials=trials)

    monkeypatch.setattr(peers, "duel", measure)
    run(out, ["matmul", "softmax"], 64, 1, None, False)
    capsys.readouterr()
    whole = out.read_text()
    out.write_text(whole + '{"workload": "mat')  # killed while it wrote
    run(out, ["matmul", "softmax"], 64, 2, None, True)
    assert asked == [("matmul", 0), ("softmax", 0), ("matmul", 1), ("softmax", 1)]
    assert out.read_text().startswith(whole)
    captured = capsys.readouterr()
    assert "torn" in captured.err
    assert [line["seeds"] for line in json.loads(captured.out)["rows"]] == [2, 2]


def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "peers.jsonl"
    out.write_text("nonsense\n" + json.dumps(as_json(row("matmul", 0))[0]) + "\n")
    with pytest.raises(DamagedFileError, match="line 1"):
        run(out, ["matmul"], 64, 1, None, False)


def test_unknown_workloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="matmul512"):
        run(tmp_path / "peers.jsonl", ["matmull"], 64, 1, None, False)
    assert not list(tmp_path.iterdir())


def test_bad_input_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "peers.jsonl")
    monkeypatch.setattr("sys.argv", ["peers", "--out", out, "--workload", "matmull"])
    with pytest.raises(SystemExit) as stopped:
        peers.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_workload_loads() -> None:
    for uri in peers.WORKLOADS.values():
        assert load_workload(uri).uri == uri


@pytest.mark.slow
@pytest.mark.skipif(find_spec("xgboost") is None, reason="xgboost is not installed (extra: peers)")
def test_a_real_duel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        peers, "WORKLOADS", {"small": "tirgym://core-v0/matmul?m=60&n=72&k=48&dtype=float32"}
    )
    made = duel("small", 16, 0)
    assert made.speedup is not None
    assert made.ratio is not None
    assert made.early_ratio is not None
    assert made.libraries["numpy"] is not None
    assert made.ours_s > 0
