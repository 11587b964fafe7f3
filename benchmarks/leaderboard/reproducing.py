"""`reproduce`: the answers of a board of any machine, as a board of this one, to be verified here.

Claims stay behind, since times of two machines do not compare; programs must be the same.
"""

from __future__ import annotations

from dataclasses import replace

from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.record import Record
from tirgym.benchmarks.leaderboard.running import machine, versions
from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.target import Target

__all__ = ["reproduce"]


def reproduce(board: BoardFolder, out: BoardFolder) -> list[str]:
    """Write the records of `board` into `out` as if they had been recorded here; answers what is wrong
    with the lines of `board`. Records that are there already stay.

    Raises InvalidValueError for `out` that is `board`.
    """
    board.require()
    if board.path.resolve() == out.path.resolve():
        raise InvalidValueError("--reproduce", str(out.path), "another folder than the board's")
    records, problems = board.records()
    plan = board.plan()
    if plan is not None:
        here = {str(_target(record)) for record in records}
        out.save_plan(replace(plan, target=here.pop() if len(here) == 1 else ""))
    known = {record.key for record in out.records()[0]}
    for record in records:
        if record.key not in known:
            append_line(out.records_path, _here(record).to_json())
    return problems


def _target(record: Record) -> Target:
    return backend(record.target.backend).target(num_threads=record.target.num_threads)


def _here(record: Record) -> Record:
    answers = tuple(replace(answer, claim=None) for answer in record.answers)
    return replace(
        record, machine=machine(), target=_target(record), versions=versions(), answers=answers
    )
