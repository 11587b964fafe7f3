"""`assembled`: the JSON of a board from the files of its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.folder import BoardFolder
from tirgym.benchmarks.leaderboard.record import Record
from tirgym.benchmarks.leaderboard.report import board_of
from tirgym.benchmarks.leaderboard.shipped import read_shipped
from tirgym.benchmarks.leaderboard.verdicts import Verified
from tirgym.benchmarks.leaderboard.verifying import admitted, read_verified
from tirgym.benchmarks.leaderboard.winners import winners
from tirgym.errors import InvalidValueError

__all__ = ["assembled", "load_board"]


def load_board(folder: BoardFolder) -> Board:
    """Records and verdicts of the machine that most records are of; any machine can report it.

    Raises InvalidValueError for a folder without a good record.
    """
    records, problems = folder.records()
    machines = Counter(record.machine.fingerprint for record in records)
    if not machines:
        told = "; ".join(problems[:3]) or "no record"
        accepted = "at least one good record in records.jsonl"
        raise InvalidValueError("board", f"{folder.path} ({told})", accepted)
    kept, left_out = admitted(records, machines.most_common(1)[0][0])
    if not kept:
        accepted = "at least one record of an installed suite"
        raise InvalidValueError("board", f"{folder.path} ({left_out[0]})", accepted)
    verdicts = read_verified(folder)
    verified, others = _of_these_answers(verdicts.verified, kept)
    shipped, more = read_shipped(folder)
    machine = kept[0].machine.fingerprint
    return Board(
        plan=folder.expected(kept),
        records=kept,
        verified=verified,
        sessions=verdicts.sessions,
        problems=[*problems, *left_out, *verdicts.problems, *others, *more],
        shipped=[row for row in shipped if row.machine == machine],
        foreign=verdicts.foreign,
        concurrent=verdicts.concurrent,
    )


def _of_these_answers(
    verdicts: Sequence[Verified], records: Sequence[Record]
) -> tuple[list[Verified], list[str]]:
    """The verdicts that judge what `records` answer now, and a line if there are others."""
    answers = {
        (*record.key, trials): answer.recipe.digest if (answer := record.answer(trials)) else ""
        for record in records
        for trials in record.trials
    }
    known = {record.key for record in records}
    here = [verdict for verdict in verdicts if verdict.key[:3] in known]
    kept = [verdict for verdict in here if answers.get(verdict.key) == verdict.recipe]
    changed = len(here) - len(kept)
    if not changed:
        return kept, []
    text = f"{changed} verdicts are about other answers than the records have now"
    return kept, [f"{text}: tirgym bench verify"]


def assembled(
    folder: BoardFolder,
    steps: bool = True,
    measure: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """See the format in `tirgym.benchmarks.leaderboard.report`.

    `steps` explains the winning traces, `measure` also measures the program after each step.
    """
    board = load_board(folder)
    if not steps:
        return board_of(board)
    if not measure:
        return board_of(board, list(winners(board)))
    from tirgym.harness.local_evaluator import LocalEvaluator

    found = []
    with LocalEvaluator(store=":memory:") as evaluator:
        for winner in winners(board, evaluator.evaluate):
            say(f"measured the steps on {winner['workload']}")
            found.append(winner)
    return board_of(board, found)
