"""MetaSchedule with its own builder and runner, as a user would call it, and our own search beside it.

In a module of its own: what another process calls by name cannot lie in the module that is run.
"""

from __future__ import annotations

import tempfile
import time

from tirgym.harness.backend import backend
from tirgym.harness.own_process import call_apart
from tirgym.kernels_suite.registry import load_workload

__all__ = ["search_apart", "tune_as_shipped"]


def tune_as_shipped(uri: str, trials: int, timeout_s: float) -> tuple[float, float | None]:
    """Tune in a process of its own: wall seconds, and the time in µs of the best program by
    MetaSchedule's own clock, checked by nobody.

    Raises TimeoutError, and EvaluationError with the last words of a process that failed.
    """
    wall_s, best_us = call_apart(_tune, uri, trials, num_threads=1, timeout_s=timeout_s)
    return round(wall_s, 1), best_us


def _tune(uri: str, trials: int) -> tuple[float, float | None]:
    began = time.monotonic()
    from tvm.s_tir import meta_schedule as ms

    from tirgym.harness.backends.llvm import tvm_target

    workload = load_workload(uri)
    target = backend("llvm").target()
    mod = backend("llvm").start(workload, target).mod  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(mod, tvm_target(target), folder, max_trials_global=trials, seed=1)
        wall_s = time.monotonic() - began
        records = [float(r.run_secs[0]) for r in database.get_all_tuning_records() if r.run_secs]
    return wall_s, min(records) * 1e6 if records else None


def search_apart(uri: str, trials: int, timeout_s: float) -> tuple[float, float]:
    """`optimize` with the default agent in a process of its own, from an empty store: wall seconds of
    all of it, verification included, and of set-up and search alone.

    Raises as `tune_as_shipped` does.
    """
    found: tuple[float, float] = call_apart(
        _search, uri, trials, num_threads=1, timeout_s=timeout_s
    )
    return found


def _search(uri: str, trials: int) -> tuple[float, float]:
    began = time.monotonic()
    from tirgym.baselines.optimize import optimize

    found = optimize(uri, trials=trials, target=backend("llvm").target(), store=":memory:")
    wall_s = time.monotonic() - began
    return round(wall_s, 1), round(wall_s - found.seconds["verify"], 1)
