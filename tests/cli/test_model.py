"""`tirgym model` and `optimize --model`, on made-up measurements and a few real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learned import HELD_OUT, KERNELS, TARGET, fill

from tirgym.harness.store import SETTLED, Store

Cli = Callable[..., Any]
ARCH = ("--arch", TARGET.arch)
ADD = "tirgym://core-v0/add?m=40&n=48&dtype=float32"

pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with measurements of five families."""
    path = tmp_path_factory.mktemp("model") / "store.sqlite"
    made = Store(path)
    fill(made, [*KERNELS.values(), HELD_OUT])
    made.close()
    return path


@pytest.fixture(scope="module")
def model(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of this store."""
    from tirgym.cli import main

    path = tmp_path_factory.mktemp("model") / "new" / "model"
    assert main(["model", "train", "--store", str(store), "--out", str(path), *ARCH]) == 0
    return path


def test_train_reports_held_out_kernels_beside_the_static_cost(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    done = cli("model", "train", "--store", store, "--out", tmp_path / "model", *ARCH, "--json")
    assert done.code == 0, done.err
    said = done.json()
    assert (said["kind"], said["target"], said["num_threads"]) == ("trees", TARGET.arch, 1)
    assert said["families"] == sorted(KERNELS)
    (row,) = said["held_out"]["rows"]
    assert row["kernel"] == "softmax"
    assert {"spearman", "recall", "best", "error", "coverage", "width"} <= set(row["model"])
    assert said["held_out"]["means"]["val"]["workloads"] == 1
    assert said["leave_one_out"] == {"rows": [], "means": {}}
    assert Path(said["model_file"]).exists()


@pytest.mark.slow
def test_report_leaves_out_each_family(cli: Cli, store: Path, tmp_path: Path) -> None:
    arguments = ("--store", store, "--out", tmp_path / "model", *ARCH)
    said = cli("model", "train", *arguments, "--all-families", "--report", "--json").json()
    assert sorted(said["families"]) == sorted([*KERNELS, "softmax"])
    assert said["held_out"]["rows"] == []
    assert len(said["leave_one_out"]["rows"]) == 5
    table = cli("model", "train", *arguments, "--report")
    assert table.code == 0
    assert "softmax" in table.out
    assert "mean of 5" in table.out


def test_show_says_what_a_model_learned_from(cli: Cli, model: Path) -> None:
    said = cli("model", "show", model, "--json").json()
    assert said["families"] == sorted(KERNELS)
    assert str(TARGET) in cli("model", "show", model).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "forest"), "Accepted: trees, gnn"),
        (("--threads", "2"), "expected one that store"),
        (("--seed", "-1"), "--seed"),
        (("--machine", "nowhere"), "machine to learn"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_writes_nothing(
    cli: Cli, store: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "model"
    done = cli("model", "train", "--store", store, "--out", out, *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not out.exists()


def test_a_store_with_too_little_says_how_to_add_some(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "small.sqlite"
    small = Store(path)
    fill(small, [KERNELS["matmul"]], 5)
    small.close()
    done = cli("model", "train", "--store", path, "--out", tmp_path / "model", *ARCH)
    assert done.code == 2
    assert "tirgym model record" in done.err
    assert not (tmp_path / "model").exists()


def test_a_report_that_cannot_be_made_is_refused_before_anything_is_trained(
    cli: Cli, tmp_path: Path
) -> None:
    path, out = tmp_path / "four.sqlite", tmp_path / "model"
    four = Store(path)
    fill(four, KERNELS.values())
    four.close()
    arguments = ("model", "train", "--store", path, "--out", out, *ARCH)
    done = cli(*arguments, "--report")
    assert done.code == 2
    assert "of 3 families without elementwise" in done.err
    assert not out.exists()
    plain = cli(*arguments)
    assert plain.code == 0, plain.err
    assert "none with at least 8 programs" in plain.out


def test_record_goes_on_where_it_stopped(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first = cli("model", "record", ADD, "--programs", "3", "--store", path, "--json")
    assert first.code == 0, first.err
    assert first.json()["programs"] == 3
    passed = first.json()["verdicts"]["passed"]
    before = {record.key: record for record in Store(path).records()}
    again = cli("model", "record", ADD, "--programs", "4", "--store", path, "--json").json()
    assert again["programs"] == 4
    assert again["reused"] >= passed >= 1
    after = {record.key: record for record in Store(path).records()}
    settled = [key for key, record in before.items() if record.status in SETTLED]
    assert [after[key] for key in settled] == [before[key] for key in settled]
    assert len({program.ir_key for program in Store(path).programs()}) == 4


@pytest.mark.parametrize("arguments", [("--programs", "0"), ("--seed", "-1"), ("no_such_kernel",)])
def test_bad_recordings_measure_nothing(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = cli("model", "record", "--store", tmp_path / "store.sqlite", *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert not (tmp_path / "store.sqlite").exists()


def test_optimize_refuses_a_model_of_another_target(cli: Cli, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    arguments = ("--model", model, "--trials", "2", "--threads", "2", *ARCH, "--out", out)
    done = cli("optimize", ADD, *arguments)
    assert done.code == 2
    assert "tirgym model train" in done.err
    assert not out.exists()


def test_optimize_searches_with_a_model(cli: Cli, tmp_path: Path) -> None:
    """A model for this machine, which the made-up measurements are written down for."""
    import learned

    from tirgym.harness.backend import backend

    here = backend("llvm").target(None, 1)
    path, out = tmp_path / "store.sqlite", tmp_path / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "TARGET", here)
        made = Store(path)
        fill(made, KERNELS.values())
        made.close()
    assert cli("model", "train", "--store", path, "--out", out).code == 0
    arguments = ("--agent", "evolutionary", "--trials", "4", "--json")
    done = cli("optimize", ADD, "--model", out, *arguments)
    assert done.code == 0, done.err
    said, plain = done.json(), cli("optimize", ADD, *arguments).json()
    assert (said["status"], said["model_file"]) == ("passed", str(out))
    assert plain["model_file"] is None
    with_model = [point["predicted_us"] for point in said["curve"]]
    assert with_model != [point["predicted_us"] for point in plain["curve"]]
