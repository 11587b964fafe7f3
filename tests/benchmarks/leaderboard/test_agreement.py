"""Two runs of a board side by side: which verified speedups agree."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_board import made_record

from tirgym.benchmarks.leaderboard.agreement import agreements, by_seed
from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.folder import Plan
from tirgym.benchmarks.leaderboard.verdicts import Standing, Verified
from tirgym.errors import InvalidValueError
from tirgym.kernels_suite.registry import load_workload

Cli = Callable[..., Any]
URIS = tuple(load_workload(name).uri for name in ("matmul", "softmax", "transpose"))
COMMITTED = Path(__file__).parents[3] / "benchmarks" / "leaderboards" / "core-v0"


def board(speedups: Mapping[str, tuple[float | None, ...]], cpu: str = "") -> Board:
    """A run of `random`: by workload the verified speedup of each seed, None where it failed."""
    seeds = tuple(range(len(next(iter(speedups.values())))))
    plan = Plan(("a/a", "random"), tuple(speedups), (64,), seeds)
    records = [made_record("random", uri, seed) for _, uri, seed in plan.rows() if _ == "random"]
    records.append(made_record("a/a", URIS[0], 0))
    if cpu:
        records = [replace(r, machine=replace(r.machine, fingerprint=cpu)) for r in records]
    verified = [
        Verified(
            "random", uri, seed, 64, Standing.VERIFIED if s else Standing.FAILED, "", speedup=s
        )
        for uri, each in speedups.items()
        for seed, s in enumerate(each)
    ]
    return Board(plan, records, verified, 3)


def test_means_over_seeds_are_compared_by_workload() -> None:
    first = board({URIS[0]: (2.0, 8.0), URIS[1]: (3.0, 3.0), URIS[2]: (5.0, None)})
    second = board({URIS[0]: (4.0, 4.16), URIS[1]: (6.0, 6.0), URIS[2]: (5.0, 5.0)})
    (found,) = agreements(first, second)  # the control is no player
    assert (found.agent, found.trials, found.one_sided, found.left_out) == ("random", 64, 1, 0)
    ratios = dict(found.ratios)
    assert ratios == pytest.approx({URIS[0]: math.sqrt(4.0 * 4.16) / 4.0, URIS[1]: 2.0})
    assert found.worst[0] == URIS[1]
    assert (found.within(0.05), found.within(0.01), found.within(1.0)) == (1, 0, 2)
    assert found.overall == pytest.approx(math.sqrt(ratios[URIS[0]] * 2.0))


def test_agreement_does_not_depend_on_the_order() -> None:
    first, second = board({URIS[0]: (1.0,)}), board({URIS[0]: (1.0501,)})
    assert agreements(first, second)[0].within(0.05) == 0
    assert agreements(second, first)[0].within(0.05) == 0


def test_what_is_slower_than_the_unscheduled_program_is_what_it_is() -> None:
    (found,) = agreements(board({URIS[0]: (0.5,)}), board({URIS[0]: (0.9,)}))
    assert dict(found.ratios) == pytest.approx({URIS[0]: 1.8})


def test_a_workload_that_one_run_fails_does_not_agree() -> None:
    first = board({URIS[0]: (2.0,), URIS[1]: (3.0,), URIS[2]: (None,)})
    second = board({URIS[0]: (2.0,), URIS[1]: (None,), URIS[2]: (None,)})
    for found in (agreements(first, second)[0], agreements(second, first)[0]):
        assert (found.within(0.05), found.workloads, found.one_sided, found.left_out) == (
            1,
            2,
            1,
            1,
        )


def test_one_measurement_of_two_seeds_is_no_agreement() -> None:
    """Equal answers are measured once: only the second workload was measured for each seed."""
    made = board({URIS[0]: (2.0, 2.0), URIS[1]: (3.0, 3.0)})
    sessions = [(2.0, 2.1), (2.0, 2.1), (3.0, 3.1), (2.9, 3.1)]
    verified = [replace(v, sessions=s) for v, s in zip(made.verified, sessions, strict=True)]
    ((_, pair),) = by_seed(replace(made, verified=verified))
    (found,) = agreements(*pair)
    assert dict(found.ratios) == {URIS[1]: 1.0}
    assert found.left_out == 1


def test_each_two_seeds_are_two_runs() -> None:
    pairs = dict(by_seed(board({URIS[0]: (1.0, 2.0, 4.0)})))
    ratios = {name: agreements(*both)[0].worst[1] for name, both in pairs.items()}
    assert ratios == pytest.approx({"0 and 1": 2.0, "0 and 2": 4.0, "1 and 2": 2.0})


def test_what_cannot_be_compared_is_refused() -> None:
    one = board({URIS[0]: (2.0,)})
    with pytest.raises(InvalidValueError, match="one machine"):
        agreements(one, board({URIS[0]: (2.0,)}, cpu="fedcba9876543210"))
    with pytest.raises(InvalidValueError, match="in common"):
        agreements(one, board({URIS[1]: (2.0,)}))


def test_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    itself = cli("bench", "compare", str(COMMITTED), str(COMMITTED))
    assert itself.code == 2
    assert "nothing in common" in itself.err  # the same measurements
    seeds = cli("bench", "compare", str(COMMITTED), "--json").json()["agreement"]
    assert {row["pair"] for row in seeds} >= {"seeds 0 and 1"}
    assert not {row["agent"] for row in seeds} & {"static", "vendor-numpy", "noop"}
    assert all(row["within"] <= row["workloads"] for row in seeds)
    lines = (COMMITTED / "records.jsonl").read_text().splitlines()
    one = tmp_path / "one"
    one.mkdir()
    (one / "records.jsonl").write_text(
        "".join(line + "\n" for line in lines if json.loads(line)["seed"] == 0)
    )
    refused = cli("bench", "compare", str(one))
    assert refused.code == 2
    assert "one seed" in refused.err
