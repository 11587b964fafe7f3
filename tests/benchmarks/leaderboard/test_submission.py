"""Submissions: a report row by row; traces are data, and nothing else in the folder is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from boards import TARGET, measured

from tirgym.benchmarks.leaderboard.submission import check_submission
from tirgym.errors import InvalidValueError
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace, TraceResult
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import list_kernels, load_workload

STEP = "Split(loop=0, factor=2)"
ADD = load_workload("add").uri
SUM = load_workload("row_sum").uri
CORE = {kernel.name for kernel in list_kernels("core-v0")}


def submit(folder: Path, name: str, uri: str = ADD, **fields: Any) -> Path:
    values: dict[str, Any] = {
        "target": TARGET,
        "transforms": (STEP,),
        "result": TraceResult("passed", 2.0),
        **fields,
    }
    path = folder / f"{name}.json"
    Trace(uri, **values).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("A search of mine.")
    return tmp_path


def test_good_rows_are_measured_and_the_rest_of_the_suite_is_named(folder: Path) -> None:
    submit(folder, "add")
    submit(folder, "sum", SUM, target=Target("llvm", "znver4", 1))
    found = check_submission(folder, TARGET, 3, measure=measured())
    assert found.ok
    assert [(row.file, row.ok) for row in found.rows] == [("add.json", True), ("sum.json", True)]
    assert {row.verified.speedup for row in found.rows if row.verified} == {2.0}
    assert set(found.missing) == CORE - {"add", "row_sum"}


def test_without_sessions_traces_are_only_replayed(folder: Path) -> None:
    submit(folder, "add")
    row = check_submission(folder, TARGET, 0).rows[0]
    assert (row.ok, row.verified, row.reason) == (True, None, "applies; not measured")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "illegal step": ({"transforms": ("Split(loop=7, factor=2)",)}, "no such loop"),
    "code": ({"transforms": ("__import__('os').system('true')",)}, "transform"),
    "compiler's own": ({"transforms": ("UnsafeSetDtype(block=0, dtype='float16')",)}, "transform"),
    "another program": ({"ir_key": "0123456789abcdef"}, "another program"),
    "two threads": ({"target": Target("llvm", "znver4", 2)}, "as the baseline has it"),
    "another backend": ({"target": Target("cuda", "sm_90", 1)}, "as the baseline has it"),
    "kernel file": ({"uri": "tirgym://local/mine.py:kernel?m=8"}, "brings no kernels"),
    "suite": ({"uri": "tirgym://core-v9/add?m=8&n=16&dtype=float32"}, "core-v0"),
    "brackets": ({"uri": "tirgym://[core-v0/add?m=8&n=16"}, "workload URI"),
    "no URI": ({"uri": "add"}, "workload URI"),
    "nothing": ({"uri": ""}, "workload URI"),
    "control characters": ({"uri": "tirgym://core-v0/a\x1b[31m\ud800?m=1"}, "unknown kernel"),
    "another shape": (
        {"uri": "tirgym://core-v0/add?m=8&n=16&dtype=float32"},
        "'add(m=8, n=16)' is not accepted; expected a shape of the suite: add(m=800, n=880); ",
    ),
    "the shape for tests": ({"uri": "tirgym://core-v0/add?m=12&n=20"}, "a shape of the suite"),
    "endless": ({"transforms": (STEP,) * 1001}, "at most 1000"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_wrong_stands_beside_its_file(name: str, folder: Path) -> None:
    fields, says = REFUSED[name]
    submit(folder, "bad", **fields)
    submit(folder, "good", SUM)
    found = check_submission(folder, TARGET, 1, measure=measured())
    bad, good = found.rows
    assert (bad.ok, good.ok, found.ok) == (False, True, False)
    assert says in bad.reason
    assert "\n" not in bad.reason


def test_files_that_are_no_traces_stand_in_the_report(folder: Path, tmp_path: Path) -> None:
    submit(folder, "good")
    (folder / "half.json").write_text('{"format": "tirgym-tr')
    (folder / "huge.json").write_text(" " * (5 << 20))
    found = check_submission(folder, TARGET, 1, measure=measured())
    reasons = {row.file: row.reason for row in found.rows if not row.ok}
    assert set(reasons) == {"half.json", "huge.json"}
    assert "not JSON" in reasons["half.json"]
    assert "at most" in reasons["huge.json"]


def test_links_out_of_the_folder_are_not_followed(folder: Path, tmp_path_factory: Any) -> None:
    elsewhere = submit(tmp_path_factory.mktemp("private"), "secret")
    (folder / "link.json").symlink_to(elsewhere)
    found = check_submission(folder, TARGET, 1, measure=measured())
    assert "link" in found.rows[0].reason
    assert not found.rows[0].ok


def test_one_trace_for_each_workload(folder: Path) -> None:
    """Not the best of many: the first counts, and the rest is refused."""
    for name in ("a", "b"):
        submit(folder, name)
    found = check_submission(folder, TARGET, 1, measure=measured())
    assert [row.ok for row in found.rows] == [True, False]
    assert "a.json has it" in found.rows[1].reason


SPELLED = (
    "tirgym://core-v0/add?dtype=float32&n=880&m=800",
    "tirgym://core-v0/add?m=800&n=880",
    "tirgym://core-v0/add?m=0800&n=880&dtype=float32",
    "tirgym://core-v0/%61dd?m=800&n=880&dtype=float32",
)


@pytest.mark.parametrize("uri", SPELLED)
@pytest.mark.parametrize("first", [True, False])
def test_one_workload_spelled_twice_is_one_workload(uri: str, first: bool, folder: Path) -> None:
    submit(folder, "a" if first else "b", uri)
    submit(folder, "b" if first else "a")
    for sessions in (0, 1):
        found = check_submission(folder, TARGET, sessions, measure=measured())
        assert [(row.ok, row.workload) for row in found.rows] == [(True, ADD), (False, ADD)]
        assert "a.json has it" in found.rows[1].reason
        assert set(found.missing) == CORE - {"add"}


def test_a_kernel_is_covered_at_its_default_shape_alone(folder: Path) -> None:
    """A product of 1 x 17 x 1 is a shape of the suite, and no row of its board."""
    matmul = load_workload("matmul").kernel
    others = (*matmul.train[1:], *matmul.holdout)
    for number, shape in enumerate(others):
        submit(folder, str(number), Workload.of(matmul, shape).uri, transforms=())
    found = check_submission(folder, TARGET, 1, measure=measured())
    assert found.ok
    assert len(found.rows) == len(others)
    assert set(found.missing) == CORE
    submit(folder, "default", load_workload("matmul").uri)
    found = check_submission(folder, TARGET, 1, measure=measured())
    assert set(found.missing) == CORE - {"matmul"}


def test_a_refused_row_covers_nothing_and_still_names_its_suite(folder: Path) -> None:
    submit(folder, "add", transforms=("Split(loop=7, factor=2)",))
    assert set(check_submission(folder, TARGET, 1, measure=measured()).missing) == CORE


@pytest.mark.parametrize(
    "uri",
    [
        "tirgym://core-v0/{}:kernel?m=8",
        "tirgym://local/{}:kernel?m=8",
        "tirgym://loc\tal/{}:kernel?m=8",
    ],
)
@pytest.mark.parametrize("dot", [".py", "%2Epy", ".p%79", ".p\ty", "%2e%70%79"])
def test_no_spelling_of_a_file_runs_it(uri: str, dot: str, folder: Path) -> None:
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    submit(folder, "bad", uri.format(f"{folder}/mine{dot}"))
    (row,) = check_submission(folder, TARGET, 1, measure=measured()).rows
    assert not row.ok
    assert "brings no kernels" in row.reason
    assert not (folder / "ran").exists()


def test_claims_are_held_against_what_was_measured(folder: Path) -> None:
    submit(folder, "boast", result=TraceResult("passed", 1000.0))
    row = check_submission(folder, TARGET, 1, measure=measured()).rows[0]
    assert (row.ok, row.claimed) == (False, 1000.0)
    assert row.reason == "claimed 1000.00x, measured 2.00x"
    assert json.loads(json.dumps(row.to_dict()))["verified"]["speedup"] == 2.0


def test_a_program_that_fails_is_refused_with_the_reason(folder: Path) -> None:
    submit(folder, "wrong")
    found = check_submission(folder, TARGET, 2, measure=measured(lambda recipe, session: None))
    assert "wrong_result" in found.rows[0].reason
    assert not found.ok


def test_a_folder_without_traces_or_readme(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="a folder with traces"):
        check_submission(tmp_path, TARGET, 1)
    with pytest.raises(InvalidValueError, match="a folder with traces"):
        check_submission(tmp_path / "none", TARGET, 1)
    submit(tmp_path, "add")
    found = check_submission(tmp_path, TARGET, 1, measure=measured())
    assert not found.ok
    assert "README" in found.problems[0]


def test_a_suite_that_reads_like_a_file_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    monkeypatch.chdir(folder)
    submit(folder, "bad", "tirgym://mine.py:x/kernel?m=8")
    (row,) = check_submission(folder, TARGET, 1, measure=measured()).rows
    assert "unknown suite" in row.reason
    assert not (folder / "ran").exists()
