"""Work side by side: results as from one process, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path

import pytest
from parallel_work import die, double, process_of, second_lingers, shrug
from processes import gone, wait_until

from tirgym.benchmarks.leaderboard.parallel import parallel_map
from tirgym.errors import EvaluationError, InvalidValueError

PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from parallel_work import linger
from tirgym.benchmarks.leaderboard.parallel import parallel_map

if __name__ == "__main__":
    list(parallel_map(linger, [Path({path!r})], 2))
"""


def pid_in(path: Path) -> int:
    """Of the process that lingers there."""
    assert wait_until(lambda: path.exists() and path.read_text(), 120.0)
    return int(path.read_text())


def nobody_left() -> bool:
    return wait_until(lambda: all(gone(child.pid or 0) for child in active_children()))


def test_one_job_works_here_and_two_elsewhere() -> None:
    assert dict(parallel_map(process_of, "ab", 1)) == dict.fromkeys("ab", os.getpid())
    assert os.getpid() not in dict(parallel_map(process_of, "ab", 2)).values()
    assert nobody_left()


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_has_its_result(jobs: int) -> None:
    assert sorted(parallel_map(double, range(7), jobs)) == [(n, 2 * n) for n in range(7)]
    assert list(parallel_map(double, (), jobs)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_reaches_who_asked(jobs: int) -> None:
    with pytest.raises(InvalidValueError, match="0 or more"):
        list(parallel_map(double, (1, -1), jobs))
    assert nobody_left()


def test_a_process_that_is_killed_is_one_line() -> None:
    with pytest.raises(EvaluationError, match="one of 2 processes was killed"):
        list(parallel_map(die, "ab", 2))
    assert nobody_left()


def test_ctrl_c_is_for_the_process_that_began_it() -> None:
    assert list(parallel_map(shrug, "a", 2)) == [("a", True)]


def test_who_stops_listening_ends_what_goes_on(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    results = parallel_map(second_lingers, [first, second], 2)
    with closing(results):
        next(results)
        lingering = pid_in(second)
    assert gone(lingering)


def test_a_killed_program_leaves_nobody_behind(tmp_path: Path) -> None:
    path = tmp_path / "lingering"
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(paths=[p for p in sys.path if p], path=str(path)))
    program = subprocess.Popen([sys.executable, str(script)])
    try:
        lingering = pid_in(path)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    assert wait_until(lambda: gone(lingering))
