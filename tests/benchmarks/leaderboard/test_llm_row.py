"""The row of a language model: it reaches its endpoint, counts tokens, and says what it cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest
from boards import ADD, TARGET
from fakes import FakeEvaluator

from tirgym.baselines.llm.scripted_server import ScriptedServer
from tirgym.baselines.llm.transcript import Saved
from tirgym.benchmarks.leaderboard.entrants import entrant
from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan
from tirgym.benchmarks.leaderboard.record import Outcome, Record, SawWhat
from tirgym.benchmarks.leaderboard.running import Conditions, run_board, run_row
from tirgym.errors import InvalidValueError

pytest.importorskip("openai")


def conditions(trials: int) -> Conditions:
    return Conditions(TARGET, (trials,), make_evaluator=lambda target, seed: FakeEvaluator())


def board(tmp_path: Path, agent: str, trials: int) -> list[Record]:
    folder = BoardFolder(tmp_path)
    with folder.writing():
        folder.save_plan(Plan((agent,), (ADD,), (trials,), (0,)))
        assert run_board(folder, conditions(trials)) == []
    return folder.records()[0]


def test_a_row_plays_over_the_wire_and_its_transcript_replays_as_another_row(
    tmp_path: Path,
) -> None:
    budget = "tokens=9000,answer_tokens=500"
    with ScriptedServer() as server:
        label = f"llm,model=scripted,base_url={server.url},{budget}"
        (found,) = board(tmp_path / "live", label, trials=40)
    assert (found.outcome, found.message) == (Outcome.FINISHED, "")
    assert 3 <= found.used.trials < 40  # the tokens were spent first
    assert found.saw.what is SawWhat.UNKNOWN
    assert found.saw.source == "language model scripted, training data unknown"
    assert not found.saw.admits("elementwise")
    kept = list((tmp_path / "live" / "transcripts").glob("llm-add-*-seed0.llm.jsonl"))
    assert len(kept) == 1
    assert found.used.tokens == Saved(kept[0]).tokens
    assert 0 < found.used.tokens <= 9000

    (again,) = board(tmp_path / "again", f"llm,transcript={kept[0].parent}", trials=40)
    assert (again.outcome, again.message) == (Outcome.FINISHED, "")
    assert [p.code_key for p in again.curve] == [p.code_key for p in found.curve]
    assert again.used.tokens == found.used.tokens
    assert again.saw.what is SawWhat.UNKNOWN
    assert again.saw.source == (
        "language model scripted, training data unknown; replayed transcript"
    )


def test_an_endpoint_that_fails_later_is_told_and_what_was_found_counts() -> None:
    with ScriptedServer(faults=["ok", "500:always"]) as server:
        label = f"llm,model=scripted,base_url={server.url},retries=0,batch=1"
        found = run_row(entrant(label), ADD, 0, conditions(6))
    assert found.outcome is Outcome.FINISHED
    assert "answers 500: the server had an accident" in found.message
    assert found.used.trials >= 1


@pytest.mark.slow
def test_an_endpoint_that_never_answers_is_a_record_with_the_reason() -> None:
    found = run_row(
        entrant("llm,model=m,base_url=http://127.0.0.1:9/v1,retries=0"), ADD, 0, conditions(3)
    )
    assert found.outcome is Outcome.CRASH
    assert "http://127.0.0.1:9/v1 cannot be reached" in found.message


def test_a_row_without_a_model_is_refused_at_once() -> None:
    with pytest.raises(InvalidValueError, match="the name of a model"):
        entrant("llm")
