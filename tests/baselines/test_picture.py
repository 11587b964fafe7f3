"""The picture of a search: written for every kind of run, refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from toy import ToyCost, ToyEvaluator, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import OptimizeResult, optimize
from tirgym.baselines.picture import _spearman, save_picture
from tirgym.errors import InvalidValueError, UsageError
from tirgym.harness.status import Status
from tirgym.harness.target import Target

pytestmark = pytest.mark.usefixtures("toy_compiler")

STATUSES = {3: Status.WRONG_RESULT, 6: Status.TOO_SLOW, 7: Status.COMPILE_ERROR}


def make_result(trials: int = 25, only: Status | None = None) -> OptimizeResult:
    return optimize(
        toy_workload(),
        "random",
        trials,
        target=Target("toy", "dials", 1),
        evaluator=ToyEvaluator(
            lambda program, level: only or STATUSES.get(sum(program.dials) % 11, Status.PASSED)
        ),
        vocabulary=toy_vocabulary(),
        cost=ToyCost(),
    )


def test_png_and_svg_are_written(tmp_path: Path) -> None:
    result = make_result()
    save_picture(result, tmp_path / "run.png")
    save_picture(result, tmp_path / "run.svg")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "run.svg").read_text()


@pytest.mark.parametrize(("trials", "only"), [(1, None), (5, Status.CRASH)])
def test_runs_with_next_to_nothing_to_show_have_a_picture_too(
    trials: int, only: Status | None, tmp_path: Path
) -> None:
    save_picture(make_result(trials, only), tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 5000


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"\.png or \.svg"):
        save_picture(make_result(1), tmp_path / "run.gif")


def test_without_matplotlib_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = make_result(1)
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"pip install 'tirgym\[plot\]'") as caught:
        save_picture(result, tmp_path / "run.png")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run.png").exists()


def test_rank_correlation_follows_its_definition() -> None:
    left = np.array([1.0, 2.0, 2.0, 5.0])
    assert _spearman(left, left**3) == pytest.approx(1.0)
    assert _spearman(left, -left) == pytest.approx(-1.0)
    assert _spearman(left, np.ones(4)) == 0.0
    # ranks 1, 2.5, 2.5, 4 against 2, 1, 3, 4: products of deviations 3, squares 4.5 and 5
    assert _spearman(left, np.array([2.0, 1.0, 3.0, 4.0])) == pytest.approx(3 / (4.5 * 5) ** 0.5)
