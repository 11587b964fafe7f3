"""`parallel_map`: work through a list in several processes, which end with this one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from tirgym.errors import EvaluationError, InvalidValueError
from tirgym.harness.fork_server import die_with_parent

__all__ = ["parallel_map", "require_jobs"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def require_jobs(jobs: int, num_threads: int) -> None:
    """Raise InvalidValueError unless each job has cores of its own for programs of `num_threads`."""
    most = max(1, len(os.sched_getaffinity(0)) // num_threads)
    if not 1 <= jobs <= most:
        accepted = (
            f"1 to {most}: each has its own cores, {num_threads} for the program that it times"
        )
        raise InvalidValueError("--jobs", jobs, accepted)


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Generator[tuple[Item, Result], None, None]:
    """(item, `function(item)`) of each item, as they are done, `jobs` at a time.

    One job runs in this process. Several run in processes of their own, each on its share of the
    cores, which take the items in order and import everything anew, so that function, items and results
    must pickle. When the iterator is closed or raises, they are killed, whatever they are at.

    Raises what `function` raises, and EvaluationError when a process was killed by somebody else.
    """
    if jobs == 1:
        yield from ((item, function(item)) for item in items)
        return
    others, context = set(active_children()), get_context("spawn")
    shares = context.SimpleQueue()
    for number in range(jobs):
        shares.put(sorted(os.sched_getaffinity(0))[number::jobs])
    pool = ProcessPoolExecutor(jobs, context, _begin, (shares,))
    try:
        waiting: dict[Future[Result], Item] = {pool.submit(function, item): item for item in items}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
        pool.shutdown()
    except BrokenProcessPool:
        text = f"one of {jobs} processes was killed; the same command goes on from here"
        raise EvaluationError(text) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.kill()
            process.join()


def _begin(shares: Any) -> None:
    """Ctrl-C is for the process that began all this, and when it dies, so does this one.

    What this one compiles does not take the core of what another one times.
    """
    die_with_parent()
    os.sched_setaffinity(0, shares.get())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
