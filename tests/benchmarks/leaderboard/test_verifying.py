"""Verification: every answer in every session once, resumable, and believing nobody else's lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from boards import ADD, SUM, TARGET, Failing, claimed, measured, record, session
from handmade import quick

from tirgym.benchmarks.leaderboard import measuring
from tirgym.benchmarks.leaderboard.assembly import load_board
from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan, append_line
from tirgym.benchmarks.leaderboard.measuring import (
    NOT_MEASURED,
    Job,
    measure_apart,
    other_shapes,
)
from tirgym.benchmarks.leaderboard.record import Kind, Machine, Recipe, RecipeKind, Record
from tirgym.benchmarks.leaderboard.reproducing import reproduce
from tirgym.benchmarks.leaderboard.signing import Signer
from tirgym.benchmarks.leaderboard.verdicts import Session, Standing
from tirgym.benchmarks.leaderboard.verifying import Verdicts, read_verified, verify_board
from tirgym.errors import EvaluationError, InvalidValueError, ProcessDiedError
from tirgym.harness.backend import backend
from tirgym.harness.calibration import estimated_peaks
from tirgym.harness.local_evaluator import GateCheck
from tirgym.harness.status import Status
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.vendor import VendorResult
from tirgym.kernels_suite.registry import load_workload


def board(path: Path, *records: Record) -> BoardFolder:
    folder = BoardFolder(path)
    for made in records:
        append_line(folder.records_path, made.to_json())
    return folder


class Counting:
    """Counts what is measured, and dies after `lives` processes."""

    def __init__(self, lives: int = 1000) -> None:
        self.lives, self.calls = lives, [("", 0, 0)][:0]

    def __call__(self, uri: str, target: Target, jobs: Sequence[Job], number: int) -> list[Session]:
        if not self.lives:
            raise KeyboardInterrupt
        self.lives -= 1
        self.calls.append((uri, number, len(jobs)))
        return measured()(uri, target, jobs, number)


def test_equal_answers_are_measured_once_in_each_session(tmp_path: Path) -> None:
    folder = board(tmp_path, record(), record("mcts"), record(seed=1), record(uri=SUM))
    measure = Counting()
    found = verify_board(folder, 3, measure=measure)
    assert measure.calls == [(uri, n, 1) for n in range(3) for uri in (ADD, SUM)]
    # both agents, both workloads: the rows that nobody ran are missing
    standings = [v.standing for v in found.verified]
    assert standings.count(Standing.VERIFIED) == 8
    assert standings.count(Standing.MISSING) == 8
    assert not found.sound


def test_a_killed_verification_goes_on(tmp_path: Path) -> None:
    folder = board(tmp_path, record(), record(uri=SUM))
    with pytest.raises(KeyboardInterrupt):
        verify_board(folder, 2, measure=Counting(3))
    with folder.sessions_path.open("a") as file:
        file.write('{"format": "tirgym-se')  # killed while it wrote
    measure = Counting()
    found = verify_board(folder, 2, measure=measure)
    assert measure.calls == [(SUM, 1, 1)]
    assert len(folder.sessions_path.read_text().splitlines()) == 4
    assert {v.speedup for v in found.verified} == {2.0}
    again = verify_board(folder, 2, measure=Counting(0))
    assert again.sound
    assert read_verified(folder) == Verdicts(again.verified, 2, 0, 0, ())


def test_more_sessions_add_to_those_that_are_there(tmp_path: Path) -> None:
    folder = board(tmp_path, record())
    verify_board(folder, 1, measure=Counting())
    measure = Counting()
    verify_board(folder, 3, measure=measure)
    assert [number for _, number, _ in measure.calls] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"machine": "feed"},
        {"versions": {"apache-tvm": "0.28"}},
        {"target": str(replace(TARGET, num_threads=4))},
        {"protocol": PROTOCOL_VERSION - 1},
    ],
)
def test_sessions_under_other_conditions_are_measured_again(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = board(tmp_path, record())
    old = replace(session(9.0), **change)
    line = Signer().signed({"format": "tirgym-session-1", **asdict(old)})
    append_line(folder.sessions_path, line)
    found = verify_board(folder, 1, measure=measured())
    assert {v.speedup for v in found.verified} == {2.0}
    assert "another machine, for another target or by other versions; me" in found.problems[0]
    assert verify_board(folder, 1, measure=Counting(0)).sound


def test_records_that_do_not_belong_are_left_out_with_one_line_each(tmp_path: Path) -> None:
    elsewhere = replace(record(seed=1), machine=Machine("0123456789abcdef", "Another CPU", 4))
    threads = record(seed=2, target=replace(TARGET, num_threads=2))
    later = record(uri="tirgym://core-v9/add?m=8&n=16&dtype=float32")
    counts = record(seed=3, trials=(2, 8))
    hurried = record(seed=4, seconds=60.0)
    folder = board(tmp_path, record(), elsewhere, threads, later, counts, hurried)
    found = verify_board(folder, 1, measure=measured())
    good = [v for v in found.verified if v.standing is Standing.VERIFIED]
    assert {v.seed for v in good} == {0}
    for words in (
        "other hardware (Another CPU",
        "2 threads",
        "core-v9",
        "trials (2, 8)",
        "within 60.0 s",
    ):
        assert sum(words in problem for problem in found.problems) == 1, found.problems
    assert not found.sound


def test_a_board_of_another_machine_is_reproduced_on_this_one(tmp_path: Path) -> None:
    foreign = replace(record(), machine=Machine("feed", "Another CPU", 64))
    theirs, mine = board(tmp_path / "theirs", foreign), BoardFolder(tmp_path / "mine")
    with pytest.raises(InvalidValueError, match="other hardware"):
        verify_board(theirs, 1, measure=measured())
    for _ in range(2):  # the second finds what the first wrote
        assert reproduce(theirs, mine) == []
    (made,) = mine.records()[0]
    assert made.machine != foreign.machine
    assert [a.recipe for a in made.answers] == [a.recipe for a in foreign.answers]
    assert [a.claim for a in made.answers] == [None, None]
    found = verify_board(mine, 1, measure=measured())
    assert {v.standing for v in found.verified} == {Standing.VERIFIED}
    with pytest.raises(InvalidValueError, match="another folder"):
        reproduce(theirs, theirs)


def test_a_folder_without_records_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"records\.jsonl"):
        verify_board(BoardFolder(tmp_path), 1, measure=measured())
    (tmp_path / "records.jsonl").write_text("nonsense\n")
    with pytest.raises(InvalidValueError, match="damaged or half-written"):
        verify_board(BoardFolder(tmp_path), 1, measure=measured())


def test_rows_of_the_plan_that_are_not_there_stay_in_the_denominator(tmp_path: Path) -> None:
    folder = board(tmp_path, record())
    folder.save_plan(Plan(("beam", "mcts"), (ADD,), (2, 4), (0,)))
    found = verify_board(folder, 1, measure=measured())
    missing = [v.agent for v in found.verified if v.standing is Standing.MISSING]
    assert missing == ["mcts", "mcts"]


def test_shapes_are_the_other_train_and_holdout_shapes() -> None:
    workload = load_workload("matmul")
    others = other_shapes(workload)
    assert workload not in others
    assert len(others) == len({*map(str, others)}) >= len(workload.kernel.holdout)


def test_a_verdict_file_that_is_damaged_says_so(tmp_path: Path) -> None:
    folder = board(tmp_path, record())
    verify_board(folder, 1, measure=measured())
    line = folder.verified_path.read_text().splitlines()[0]
    odd = json.dumps({**json.loads(line), "standing": "champion"})
    folder.verified_path.write_text(f"{line}\n{odd}\nhalf")
    found = read_verified(folder)
    assert len(found.verified) == 1
    assert len(found.problems) == 2


GOOD = Recipe(RecipeKind.TRANSFORMS, ("Split(loop=0, factor=4)",))
ILLEGAL = Recipe(RecipeKind.TRANSFORMS, ("Split(loop=9, factor=4)",))
CODE = Recipe(RecipeKind.TRANSFORMS, ("__import__('os')",))


def judged(found: Sequence[Session]) -> None:
    assert [s.status for s in found] == ["passed", "illegal", "illegal"]
    assert found[0].speedup is not None
    assert found[0].best_us is not None
    assert found[0].floor_us is not None
    assert 0.0 < found[0].floor_us < found[0].best_us
    assert [s.recipe for s in found] == [recipe.digest for recipe in (GOOD, ILLEGAL, CODE)]
    assert found[0].versions == session().versions


def test_what_stands_in_a_recipe_is_measured_and_gated_at_other_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For real, with little timing: a schedule, one that does not apply, one that means nothing."""
    monkeypatch.setattr(measuring, "LocalEvaluator", lambda target, store, seed: quick(store))
    monkeypatch.setattr(measuring, "peaks", estimated_peaks)
    shapes = [load_workload(ADD, dict(zip("mn", size, strict=True))) for size in ((8, 32), (3, 7))]
    monkeypatch.setattr(measuring, "other_shapes", lambda workload: shapes)
    jobs = [Job(recipe, Kind.AGENT, shapes=True) for recipe in (GOOD, ILLEGAL, CODE)]
    found = measuring.measure_here(ADD, backend("llvm").target(), jobs, 0)
    judged(found)
    verdicts = {uri: words.partition(":")[0] for uri, words in found[0].shapes.items()}
    assert verdicts == {shapes[0].uri: "passed", shapes[1].uri: "not_portable"}


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (GateCheck(Status.PASSED, "code", None), "passed"),
        (GateCheck(Status.WRONG_RESULT, "code", None), "failed"),
        (GateCheck(Status.TIMEOUT, "code", None), "failed"),
        (GateCheck(Status.TIMEOUT, "", None), "unjudged"),
        (GateCheck(Status.OUT_OF_MEMORY, "", None), "unjudged"),
        (GateCheck(Status.TOO_SLOW, "code", None), "unjudged"),
    ],
)
def test_a_program_that_was_never_run_at_another_shape_is_not_held_wrong_there(
    check: GateCheck, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick() as evaluator:
        monkeypatch.setattr(evaluator, "check", lambda program: check)
        shape = load_workload(ADD, {"m": 8, "n": 32})
        monkeypatch.setattr(measuring, "other_shapes", lambda workload: [shape])
        jobs = [Job(GOOD, Kind.AGENT, shapes=True)]
        found = measuring._shapes(jobs, load_workload(ADD), backend("llvm").target(), evaluator)
    assert found[GOOD.digest][shape.uri].partition(":")[0] == verdict


@pytest.mark.slow
def test_a_clean_process_measures_what_stands_in_a_recipe() -> None:
    jobs = [Job(recipe, Kind.AGENT, shapes=False) for recipe in (GOOD, ILLEGAL, CODE)]
    judged(measure_apart(ADD, backend("llvm").target(), jobs, 0))


@pytest.mark.slow
def test_references_and_the_control_are_measured_in_a_clean_process() -> None:
    library = Recipe(RecipeKind.LIBRARY, vendor="numpy")
    recipes = (library, Recipe(RecipeKind.DEFAULT), Recipe(RecipeKind.CONTROL))
    uri = "tirgym://core-v0/matmul?m=64&n=64&k=64&dtype=float32"
    jobs = [Job(recipe, Kind.REFERENCE, shapes=False) for recipe in recipes]
    found = measure_apart(uri, backend("llvm").target(), jobs, 0)
    assert [s.status for s in found] == ["passed"] * 3
    vendor, default, control = (s.speedup for s in found)
    assert vendor is not None
    assert vendor > 1.5
    assert default is not None
    assert control is not None
    assert 0.5 < control < 2.0


def test_a_job_that_ends_its_process_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = (Job(claimed(2, None, s).recipe, Kind.AGENT, False) for s in ("good", "bad"))

    def apart(
        function: object,
        uri: str,
        target: Target,
        jobs: Sequence[Job],
        number: int,
        **limits: float,
    ) -> list[Session]:
        if bad in jobs:
            raise ProcessDiedError("a process of its own ended with -11")
        return measured()(uri, target, jobs, number)

    monkeypatch.setattr(measuring, "call_apart", apart)
    found = measure_apart(ADD, TARGET, [good, bad], 0)
    assert [(s.status, s.speedup) for s in found] == [("passed", 2.0), ("crash", None)]


DIED, SLOW = ProcessDiedError("a process of its own ended with -11"), TimeoutError("did not end")
MACHINE = EvaluationError("measure_session failed in a process of its own: OSError: disk full")


@pytest.mark.parametrize(
    ("tries", "status"),
    [
        ((DIED, DIED), "crash"),
        ((SLOW, SLOW), "timeout"),
        ((SLOW, DIED), "crash"),
        ((MACHINE, MACHINE), NOT_MEASURED),
        ((DIED, MACHINE), NOT_MEASURED),
        ((MACHINE, DIED), NOT_MEASURED),
        ((DIED, None), "passed"),
        ((MACHINE, None), "passed"),
    ],
)
def test_a_failure_of_the_machine_is_not_one_of_the_job(
    tries: Sequence[Exception | None], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter(tries)

    def apart(function: object, *arguments: Any, **limits: float) -> list[Session]:
        failure = next(outcomes)
        if failure is not None:
            raise failure
        return measured()(*arguments)

    monkeypatch.setattr(measuring, "call_apart", apart)
    (found,) = measure_apart(ADD, TARGET, [Job(GOOD, Kind.AGENT, False)], 0)
    assert found.status == status
    assert found.message == (str(MACHINE) if status == NOT_MEASURED else found.message)
    assert next(outcomes, "none left") == "none left"


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_library_whose_own_process_dies_twice_is_a_crash_of_its_own(
    deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([DIED] * deaths)

    def vendor(*_: object) -> VendorResult:
        failure = next(tries, None)
        if failure is not None:
            raise failure
        return VendorResult("blas 1", Status.NOISY, "spread")

    monkeypatch.setattr(measuring, "measure_vendor", vendor)
    monkeypatch.setattr(measuring, "peaks", estimated_peaks)
    jobs = [Job(Recipe(RecipeKind.LIBRARY, vendor="blas"), Kind.REFERENCE, False)]
    (found,) = measuring.measure_here(ADD, backend("llvm").target(), jobs, 0)
    assert found.status == ("crash" if deaths == 2 else "noisy")


def test_what_cannot_begin_in_a_process_of_its_own_is_not_measured() -> None:
    uri = ADD.replace("core-v0", "core-v9")  # a suite that is not installed
    (found,) = measure_apart(uri, TARGET, [Job(GOOD, Kind.AGENT, shapes=False)], 0)
    assert (found.status, found.speedup) == (NOT_MEASURED, None)
    assert "measure_session failed in a process of its own" in found.message
    assert "core-v9" in found.message


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_the_machine_failed_is_a_problem_now_and_measured_by_the_next_call(
    tmp_path: Path, jobs: int
) -> None:
    if jobs > len(os.sched_getaffinity(0)):
        pytest.skip("one core")
    folder = board(tmp_path, record(), record(uri=SUM))
    found = verify_board(folder, 2, measure=Failing(SUM, str(MACHINE)), jobs=jobs)
    places = [f"not measured, try again: {SUM}, session {n}: {MACHINE}" for n in (1, 2)]
    assert sorted(found.problems) == places
    assert not found.sound
    standings = {(v.workload, v.standing) for v in found.verified}
    assert standings == {(ADD, Standing.VERIFIED), (SUM, Standing.UNMEASURED)}
    lines = folder.sessions_path.read_text().splitlines()
    assert {json.loads(line)["workload"] for line in lines} == {ADD}
    measure = Counting()
    again = verify_board(folder, 2, measure=measure)
    assert measure.calls == [(SUM, 0, 1), (SUM, 1, 1)]
    assert again.sound


def test_recipes_that_the_machine_failed_for_one_reason_are_one_line(tmp_path: Path) -> None:
    other = tuple(claimed(n, 2.0, f"Split(loop=0, factor={2 * n})") for n in (2, 4))
    folder = board(tmp_path, record(answers=other))
    found = verify_board(folder, 1, measure=Failing(ADD, str(MACHINE)))
    assert found.problems == (f"not measured, try again: {ADD}, session 1, 2 recipes: {MACHINE}",)


def test_a_machine_failure_ends_the_command_with_one_line_and_code_1(
    tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = board(tmp_path / "board", record())

    def apart(*_: object, **limits: float) -> list[Session]:
        raise MACHINE

    monkeypatch.setattr(measuring, "call_apart", apart)
    done = cli("bench", "verify", str(folder.path), "--sessions", "1")
    assert done.code == 1
    assert done.err.count("not measured, try again") == 1
    assert "0 of 2 answers verified" in done.out


def test_the_control_has_the_pages_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary ones, from before anything is measured on; and this process keeps its own."""
    happened: list[str] = []
    monkeypatch.setattr(measuring, "without_huge_pages", lambda: happened.append("ordinary pages"))

    def here(*arguments: Any) -> list[Session]:
        happened.append("measured")
        return measured()(*arguments)

    def apart(function: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
        happened.append("in another process")
        return function(*arguments)

    monkeypatch.setattr(measuring, "measure_here", here)
    monkeypatch.setattr(measuring, "call_apart", apart)
    jobs = [Job(Recipe(RecipeKind.CONTROL), Kind.CONTROL, shapes=False)]
    assert [s.status for s in measure_apart(ADD, TARGET, jobs, 0)] == ["passed"]
    assert happened == ["in another process", "ordinary pages", "measured"]


# -- kernels in files ------------------------------------------------------------------------


@pytest.mark.parametrize("dot", [".py", ".p%79", "%2Epy"])
def test_a_board_runs_no_file_unless_it_is_told_to(dot: str, tmp_path: Path) -> None:
    ran = str(tmp_path / "ran")
    (tmp_path / "mine.py").write_text(f"import pathlib\npathlib.Path({ran!r}).touch()\n")
    uri = f"tirgym://local/{tmp_path}/mine{dot}:K?n=1"
    folder = board(tmp_path / "board", record(), replace(record(), workload=uri))
    found = verify_board(folder, 1, measure=measured())
    (problem,) = [line for line in found.problems if "records.jsonl:2" in line]
    assert "--files lets Python files be run" in problem
    assert uri not in load_board(folder).plan.workloads
    folder.save_plan(Plan(("beam",), (ADD, uri), (2, 4), (0,)))
    with pytest.raises(InvalidValueError, match="--files lets Python files be run"):
        verify_board(folder, 1, measure=measured())
    assert not (tmp_path / "ran").exists()
    verify_board(BoardFolder(folder.path, files=True), 1, measure=measured())
    assert (tmp_path / "ran").exists()
