"""The transfer study: what is held out, what its tables say, what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
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
from tirgym.benchmarks.leaderboard.statistics import geomean, interval, ranked
from tirgym.benchmarks.transfer.comparison import by_seed, paired_ratio, seed_interval
from tirgym.benchmarks.transfer.plan import GROUPS, TransferPlan, held_out
from tirgym.benchmarks.transfer.report import summarize, write_report
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import list_kernels, load_workload

URIS = tuple(uri for uri, group in held_out().items() if group == GROUPS[0])[:2]
COMMITTED = Path(__file__).parents[2] / "benchmarks/results/transfer"
PLAN = TransferPlan(steps=2048, seeds=2, workloads=URIS, players=("random", "ppo-gnn"))


def record(player: str, uri: str, seed: int, speedups: dict[int, float | None]) -> Record:
    answers = tuple(
        Answer(
            trials,
            Recipe(RecipeKind.TRANSFORMS, (f"of {player}, {speedup}",)),
            claim=Claim("passed", speedup),
        )
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
    assert (random["low"], random["high"]) == pytest.approx((2.0, 4.0))
    assert random["by_seed"] == pytest.approx([2.0, 4.0])
    assert found["trials"]["1"]["random"]["value"] == 0.5  # nothing verified


def test_answers_that_no_seed_changes_have_no_interval() -> None:
    trials = summarize(PLAN, records(), {})["groups"][GROUPS[0]]["trials"]
    same = trials["64"]["ppo-gnn"]  # 32x by one recipe with both seeds
    assert (same["value"], same["low"], same["high"]) == (pytest.approx(32.0), None, None)
    assert trials["16"]["ppo-gnn"]["low"] == pytest.approx(8.0)


def test_whole_seeds_are_drawn_once_for_all_workloads() -> None:
    scores = [[1.0, 4.0], [4.0, 16.0], [16.0, 64.0]]
    assert by_seed(scores) == pytest.approx([2.0, 8.0, 32.0])
    assert seed_interval(scores) == pytest.approx((2.0, 32.0))  # lowest and highest of three
    assert seed_interval(scores[:1]) is None


def test_seeds_drawn_apart_would_hide_what_they_share() -> None:
    scores = [[1.0] * 12, [4.0] * 12, [16.0] * 12]
    assert seed_interval(scores) == pytest.approx((1.0, 16.0))
    low, high = interval(ranked(scores), geomean) or (0.0, 0.0)
    assert low > 2.0
    assert high < 8.0


def test_ratios_are_paired_by_workload() -> None:
    first = [[2.0, 8.0, 64.0], [8.0, 8.0, 64.0]]  # over seeds 4, 8, 64
    second = [[2.0, 4.0, 32.0]]
    found = paired_ratio(first, second)  # 2 on every workload, whatever the workloads are
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (found.ahead, found.workloads) == (3, 3)
    mixed = paired_ratio([[8.0, 1.0, 1.0]], [[1.0, 1.0, 8.0]])  # logs of 8, 1 and 1/8
    assert (mixed.ratio, mixed.low, mixed.high) == pytest.approx((1.0, 0.125, 8.0))
    assert mixed.ahead == 1
    assert paired_ratio([[3.0]], [[2.0]]).low is None
    with pytest.raises(InvalidValueError, match="the same number of workloads"):
        paired_ratio([[1.0, 2.0]], [[1.0]])


def test_the_policy_is_compared_with_all_others() -> None:
    found = summarize(PLAN, records(), {})["groups"][GROUPS[0]]["comparisons"]
    pairs = [(c["second"], c["first_trials"], c["second_trials"]) for c in found]
    assert pairs == [("random", 1, 1), ("random", 16, 16), ("random", 64, 64), ("random", 1, 16)]
    assert [c["ratio"] for c in found] == pytest.approx([8.0, 4.0, 4.0, math.sqrt(2.0)])
    without = TransferPlan(steps=2048, seeds=2, workloads=URIS, players=("random",))
    assert summarize(without, records(), {})["groups"][GROUPS[0]]["comparisons"] == []


def test_machine_and_versions_are_those_of_the_records() -> None:
    there = replace(machine(), cpu="a CPU of elsewhere")
    some = [replace(one, machine=there, versions={"tirgym": "0.0.7"}) for one in records()]
    found = summarize(PLAN, some, {})
    assert (found["machine"], found["versions"]) == (there.cpu, {"tirgym": "0.0.7"})


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
    assert "| ppo-gnn | 4.00: 4.00, 4.00 | 11.31 (8.00 to 16.00): 8.00, 16.00 |" in text
    assert (
        "| ppo-gnn / random, first answer against 16 trials | 1.41 (1.41 to 1.41) | 2 of 2 |"
        in text
    )
    assert "first answer" in text


def test_the_committed_report_is_that_of_the_committed_records() -> None:
    records, problems = BoardFolder(COMMITTED).records()
    plan = json.loads((COMMITTED / "plan.json").read_text())
    players, seeds = tuple(plan["players"]), plan["seeds"]
    assert problems == []
    found = summarize(TransferPlan(plan["steps"], seeds, players=players), records, {})
    committed = json.loads((COMMITTED / "report.json").read_text())
    for part in ("groups", "machine", "versions"):
        assert found[part] == committed[part]


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
