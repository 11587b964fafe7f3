"""The transfer study: what is held out, what its tables say, what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Claim,
    Kind,
    Outcome,
    Recipe,
    RecipeKind,
    Record,
)
from tirgym.benchmarks.leaderboard.running import machine
from tirgym.benchmarks.transfer.plan import GROUPS, TransferPlan, held_out
from tirgym.benchmarks.transfer.report import summarize, write_report
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import list_kernels, load_workload

URIS = tuple(uri for uri, group in held_out().items() if group == GROUPS[0])[:2]
PLAN = TransferPlan(steps=2048, seeds=2, workloads=URIS, players=("random", "ppo-gnn"))


def record(player: str, uri: str, seed: int, speedups: dict[int, float | None]) -> Record:
    answers = tuple(
        Answer(trials, Recipe(RecipeKind.TRANSFORMS), claim=Claim("passed", speedup))
        for trials, speedup in speedups.items()
    )
    return Record(
        player, Kind.AGENT, uri, seed, tuple(speedups), Outcome.FINISHED, machine(),
        Target("llvm", "znver4", 1), {}, 1, answers=answers,
    )  # fmt: skip


def records() -> list[Record]:
    def speedups(player: str, seed: int) -> dict[int, float | None]:
        base = 8.0 if player == "ppo-gnn" else 2.0
        return {1: None if player == "random" else base / 2, 16: base * (1 + seed), 64: base * 4}

    return [record(p, u, s, speedups(p, s)) for p in PLAN.players for u in URIS for s in (0, 1)]


def test_nothing_that_is_played_was_trained_on() -> None:
    train = {kernel.name: kernel for kernel in list_kernels("core-v0", Split.TRAIN)}
    families = {kernel.family for kernel in train.values()}
    for uri, group in held_out().items():
        workload = load_workload(uri)
        if group == GROUPS[0]:
            assert workload.kernel.family not in families
        else:
            shape = dict(workload.shape)
            assert all(shape != dict(seen) for seen in train[workload.kernel.name].train)


def test_means_are_over_seeds_and_workloads_and_count_at_least_one() -> None:
    found = summarize(PLAN, records(), {})["groups"][GROUPS[0]]
    assert (found["workloads"], found["seeds"]) == (list(URIS), 2)
    gnn = {trials: row["ppo-gnn"]["value"] for trials, row in found["trials"].items()}
    assert gnn == pytest.approx({"1": 4.0, "16": math.sqrt(8 * 16), "64": 32.0})
    random = found["trials"]["16"]["random"]
    assert random["value"] == pytest.approx(math.sqrt(2 * 4))
    assert random["low"] < random["value"] < random["high"]
    assert found["trials"]["1"]["random"]["value"] == 0.5  # nothing verified


def test_workloads_that_somebody_lacks_are_left_out_of_the_means() -> None:
    some = [r for r in records() if not (r.agent == "random" and r.workload == URIS[1])]
    assert summarize(PLAN, some, {})["groups"][GROUPS[0]]["workloads"] == [URIS[0]]
    assert summarize(PLAN, some[:1], {})["groups"] == {}


def test_the_report_is_made_of_what_is_there(tmp_path: Path) -> None:
    board = BoardFolder(tmp_path)
    for one in records():
        append_line(board.records_path, one.to_json())
    found = write_report(PLAN, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == found
    text = (tmp_path / "report.md").read_text()
    assert "| ppo-gnn | 4.00 (4.00 to 4.00) |" in text
    assert "first answer" in text


def test_a_folder_holds_one_plan(tmp_path: Path) -> None:
    PLAN.keep(tmp_path)
    PLAN.keep(tmp_path)
    with pytest.raises(InvalidValueError, match=r"4096.*expected 2048, with which"):
        TransferPlan(4096, 2, workloads=URIS, players=PLAN.players).keep(tmp_path)


def test_what_is_no_study_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="player"):
        TransferPlan(players=("random", "nobody"))
    with pytest.raises(UnknownNameError, match="held-out workload"):
        TransferPlan(workloads=("tirgym://core-v0/matmul?m=250&n=264&k=240&dtype=float32",))
    with pytest.raises(InvalidValueError, match="trials"):
        TransferPlan(trials=(16, 1))
    with pytest.raises(InvalidValueError, match="arch"):
        TransferPlan(arch="pentium-of-tomorrow")


def test_policies_are_trained_on_the_train_split(tmp_path: Path) -> None:
    args = PLAN.training(tmp_path, "ppo-gnn", 1)
    assert (args.split, args.suite, args.seed) == ("train", "core-v0", 1)
    assert args.spec().shapes == "train"
    assert PLAN.policies == ("ppo-gnn",)
