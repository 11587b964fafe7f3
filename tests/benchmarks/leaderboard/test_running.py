"""Runs: agents in processes of their own, budgets that hold, records that tell what happened."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from boards import ADD, SUM, TARGET
from fakes import FakeEvaluator

from tirgym.benchmarks.leaderboard.entrants import Entrant, entrant, row_names, seen_by
from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan
from tirgym.benchmarks.leaderboard.record import (
    Kind,
    Outcome,
    RecipeKind,
    Record,
    SawWhat,
    parse_record,
)
from tirgym.benchmarks.leaderboard.running import Conditions, Finished, _Clock, run_board, run_row
from tirgym.errors import EvaluationError, InvalidValueError, UnknownNameError
from tirgym.harness.agent import Agent
from tirgym.kernels_suite.registry import load_workload


def conditions(trials: tuple[int, ...] = (2, 4)) -> Conditions:
    return Conditions(TARGET, trials, make_evaluator=lambda target, seed: FakeEvaluator())


def test_a_third_party_agent_plays_and_its_record_says_all() -> None:
    found = run_row(entrant("boards:Stepper"), ADD, 7, conditions())
    assert (found.outcome, found.message, found.stopped) == (Outcome.FINISHED, "", "trials")
    assert (found.used.trials, found.used.tokens, found.used.failures) == (4, 123, 0)
    assert found.saw.what is SawWhat.MODEL
    assert (found.saw.admits("elementwise"), found.saw.admits("matmul")) == (True, False)
    assert [p.trial for p in found.curve] == [0, 1, 2, 3, 4]
    assert found.used.steps == 4
    # the fake is 10 % faster with each step; the first of equals is chosen, of the first two trials
    early, late = found.answers
    assert early.recipe.steps == late.recipe.steps == ("Split(loop=0, factor=2)",)
    assert early.claim is not None
    assert early.claim.speedup == pytest.approx(1.1)
    assert early.code_key == found.curve[1].code_key
    assert found.used.wall_s > found.used.evaluator_s >= 0.0


def test_an_agents_process_leaves_it_to_the_agent_to_load_torch() -> None:
    pytest.importorskip("torch")
    found = run_row(entrant("boards:TorchUser"), ADD, 0, conditions((1,)))
    assert found.message == "loaded before: False, now: torch"


def test_metaschedule_answers_in_its_own_language_at_equal_trials() -> None:
    pytest.importorskip("xgboost")
    found = run_row(entrant("metaschedule,population=16"), SUM, 0, conditions((3,)))
    assert found.outcome is Outcome.FINISHED, found.message
    assert found.kind is Kind.PEER
    assert found.used.trials == 3
    assert {p.trial for p in found.curve} == {0, 1, 2, 3}


def test_an_agent_that_cannot_be_made_is_a_record_with_the_reason() -> None:
    found = run_row(entrant("boards:NoSuchAgent"), ADD, 0, conditions())
    assert found.outcome is Outcome.CRASH
    assert "NoSuchAgent" in found.message
    assert found.answers[0].recipe.steps == ()


STEP = {"kind": "transforms", "steps": ["Split(loop=0, factor=2)"], "schedule": ""}
NO_PROGRAMS = "programs are no list"
SAID: dict[str, tuple[object, str]] = {
    "nothing": ("", "no JSON object"),
    "half": ('{"op": "ba', "no JSON object"),
    "nested": ("[" * 100_000, "no JSON object"),
    "nested object": ('{"op":' * 10_000, "no JSON object"),
    "a list": ([1], "no JSON object"),
    "a number": ("1" * 10_000, "no JSON object"),
    "no programs": ({"op": "batch"}, NO_PROGRAMS),
    "null": ({"op": "batch", "programs": None}, NO_PROGRAMS),
    "a word": ({"op": "batch", "programs": "Split"}, NO_PROGRAMS),
    "an object": ({"op": "batch", "programs": {"0": STEP}}, NO_PROGRAMS),
    "a program as list": ({"op": "batch", "programs": [[1]]}, "no JSON object"),
    "a program as text": ({"op": "batch", "programs": ["Split"]}, "no JSON object"),
    "an empty program": ({"op": "batch", "programs": [{}]}, "steps are no list"),
    "steps as text": ({"op": "batch", "programs": [{**STEP, "steps": "S"}]}, "steps are no list"),
    "steps of lists": ({"op": "batch", "programs": [{**STEP, "steps": [[]]}]}, "are no text"),
    "schedule": ({"op": "batch", "programs": [{**STEP, "schedule": {}}]}, "are no text"),
    "no kind": ({"op": "batch", "programs": [{**STEP, "kind": []}]}, "asked for no program"),
    "library": ({"op": "batch", "programs": [{**STEP, "kind": "library"}]}, "no program: recipe"),
    "code": ({"op": "batch", "programs": [{**STEP, "steps": ["f(" * 300]}]}, "transform"),
    "a huge number": (
        {"op": "batch", "programs": [{**STEP, "steps": [f"Unroll(loop={2**62})"]}]},
        "no such loop",
    ),
    "surrogates": ({"op": "batch", "programs": [{**STEP, "steps": ["\ud800"]}]}, "transform"),
    "no IR key": ({"op": "batch", "programs": [STEP]}, "another program than its steps make"),
}
"""What an agent's process may say to the run, and what its record then says."""
SPEAKER = """
import sys, time
print('{"op": "ready"}', flush=True)
sys.stdin.buffer.read(4)
print(%r, flush=True)
time.sleep(1000)
"""


def spoken(monkeypatch: pytest.MonkeyPatch, words: object) -> Record:
    """The record of a process that says `words` and then nothing."""
    text = words if isinstance(words, str) else json.dumps(words)
    monkeypatch.setattr("tirgym.benchmarks.leaderboard.apart._CODE", SPEAKER % text)
    found = run_row(entrant("boards:Idle"), ADD, 0, conditions((2,)))
    assert parse_record(found.to_json()) == found
    assert found.message.isprintable()
    return found


@pytest.mark.parametrize("name", sorted(SAID))
def test_nonsense_is_the_agents_own_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised out of the run it would end the board, and again at each resume."""
    words, says = SAID[name]
    found = spoken(monkeypatch, words)
    assert (found.outcome, found.used.trials) == (Outcome.CRASH, 0)
    assert says in found.message
    assert len(found.message) <= 300


@pytest.mark.parametrize(
    "tokens", [None, True, -1, 1.5, "9", [9], 2**63, 10**4000], ids=lambda _: ""
)
def test_odd_last_words_leave_a_record_that_can_be_read(
    tokens: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = {"op": "end", "tokens": tokens, "message": "a\nb \ud800 \x1b[31m" + "c" * 5000}
    found = spoken(monkeypatch, end)
    assert (found.outcome, found.used.tokens) == (Outcome.FINISHED, None)
    assert found.message.startswith("a b ")
    assert len(found.message) == 300
    assert spoken(monkeypatch, {"op": "end", "message": [["a"]]}).message == ""


def test_a_board_goes_on_after_an_agent_that_talks_nonsense(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    folder.save_plan(Plan(("boards:Babbler", "noop"), (ADD,), (2,), (0,)))
    assert run_board(folder, conditions((2,))) == []
    babbler, noop = folder.records()[0]
    assert (babbler.outcome, babbler.message) == (
        Outcome.CRASH,
        "a question whose programs are no list",
    )
    assert babbler.answers[0].recipe.steps == ("Split(loop=0, factor=2)",)  # found before
    assert noop.outcome is Outcome.FINISHED
    run_board(folder, conditions((2,)), lambda row: pytest.fail("nothing is left to run"))


def test_references_spend_nothing() -> None:
    for name, kind in (("noop", "transforms"), ("default", "default"), ("a/a", "control")):
        found = run_row(entrant(name), ADD, 0, conditions())
        assert [a.recipe.kind for a in found.answers] == [RecipeKind(kind)] * 2
        assert (found.used.trials, found.curve) == (0, ())
    library = run_row(entrant("vendor-numpy"), ADD, 0, conditions())
    assert library.answers[0].recipe.vendor == "numpy"
    stencil = load_workload("stencil2d").uri
    nothing = run_row(entrant("vendor-numpy"), stencil, 0, conditions())
    assert (nothing.outcome, nothing.answers) == (Outcome.NOT_APPLICABLE, ())


def test_a_killed_board_goes_on_after_its_last_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = BoardFolder(tmp_path)
    folder.save_plan(Plan(("noop", "default"), (ADD, SUM), (2, 4), (0, 1)))
    told: list[Finished] = []

    def die(row: Finished) -> None:
        told.append(row)
        if row.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_board(folder, conditions(), die)
    with folder.records_path.open("a") as file:
        file.write('{"format":"tirgym-bench-1","agent":"noo')
    told.clear()
    problems = run_board(folder, conditions(), told.append)
    assert [row.done for row in told] == [4, 5, 6, 7, 8]
    assert [row.total for row in told] == [8] * 5
    assert told[-1].left_s == 0.0
    records, _ = folder.records()
    assert [r.key for r in records] == list(
        Plan(("noop", "default"), (ADD, SUM), (), (0, 1)).rows()
    )
    assert len(problems) == 1  # half a line


def test_half_a_run_is_no_run(tmp_path: Path) -> None:
    """Ctrl-C ends the board, and the row is run again from its start."""

    def interrupted(program: object) -> float:
        raise KeyboardInterrupt

    folder = BoardFolder(tmp_path)
    folder.save_plan(Plan(("noop", "boards:Idle"), (ADD,), (2,), (0,)))
    given = Conditions(
        TARGET, (2,), make_evaluator=lambda target, seed: FakeEvaluator((), interrupted)
    )
    with pytest.raises(KeyboardInterrupt):
        run_board(folder, given)
    assert [r.agent for r in folder.records()[0]] == ["noop"]


def test_the_time_left_is_that_of_the_searches_that_are_left() -> None:
    now = iter([0.0, 10.0, 30.0])
    clock = _Clock(3, lambda: next(now))
    assert clock.left_s(0) is None
    assert clock.left_s(1) == 20.0
    assert clock.left_s(2) == 15.0
    assert clock.left_s(3) == 0.0


def test_a_row_that_cannot_be_measured_does_not_end_the_board(tmp_path: Path) -> None:
    def broken(target: object, seed: int) -> FakeEvaluator:
        raise EvaluationError("the lock was not free in time")

    folder = BoardFolder(tmp_path)
    folder.save_plan(Plan(("beam", "noop"), (ADD,), (2,), (0,)))
    problems = run_board(folder, Conditions(TARGET, (2,), make_evaluator=broken))
    assert [r.agent for r in folder.records()[0]] == ["noop"]
    assert len(problems) == 1
    assert "the lock was not free in time" in problems[0]


def test_wrong_names_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'beam'"):
        entrant("beem")
    with pytest.raises(InvalidValueError, match="name=value"):
        entrant("mcts,fast")
    with pytest.raises(UnknownNameError, match="option of agent mcts"):
        entrant("mcts,bach=3")
    with pytest.raises(InvalidValueError, match="none"):
        entrant("noop,speed=3")
    assert {"a/a", "noop", "default", "random", "metaschedule"} <= set(row_names())


def test_rows_with_options_keep_their_label() -> None:
    made = entrant("mcts,space=macro,batch=4")
    assert (made.label, made.name, made.options) == (
        "mcts,space=macro,batch=4",
        "mcts",
        {"space": "macro", "batch": 4},
    )


def test_a_checkpoint_saw_the_families_of_the_kernels_in_its_header() -> None:
    def trained(*kernels: str) -> object:
        header = SimpleNamespace(kernels=kernels, weights="0123456789abcdef")
        player = SimpleNamespace(header=header, checkpoint="/home/me/p.safetensors")
        return seen_by(cast(Agent, SimpleNamespace(name="ppo-gnn", player=player)))

    row = Entrant("ppo-gnn", "ppo-gnn", Kind.AGENT, {})
    replayed = "tirgym://core-v0/matmul_nt?m=16&n=24&k=32&dtype=float32"
    saw = row.saw(trained("matmul", "core-v0/add", replayed))
    assert (saw.what, saw.families, saw.source) == (
        SawWhat.MODEL,
        ("elementwise", "matmul"),
        "p.safetensors 0123456789ab",
    )
    assert not saw.admits("matmul")
    assert saw.admits("softmax")
    assert row.saw(trained("a_kernel_of_mine")).what is SawWhat.UNKNOWN


def test_what_third_parties_do_not_say_is_unknown() -> None:
    third, own = entrant("boards:Idle"), entrant("beam")
    assert third.saw(None).what is SawWhat.UNKNOWN
    assert own.saw(None).what is SawWhat.NOTHING
    odd: list[object] = [
        "nothing",
        {"what": "dreams"},
        {"what": ["model"]},
        {"what": "model", "families": 3},
        {"what": "model", "families": [["matmul"]]},
        {"what": "nothing", "source": {"a": 1}},
    ]
    for declared in odd:
        assert third.saw(declared).what is SawWhat.UNKNOWN
    long = third.saw({"what": "nothing", "source": "a\nb\ud800\x1b" + "c" * 999})
    assert long.source.isprintable()
    assert len(long.source) == 300
    assert not third.saw(None).admits("matmul")
