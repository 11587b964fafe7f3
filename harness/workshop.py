"""`Workshop`: workers by thread count, with a workbench for each workload that is asked about."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness.channel import DeadlineError
from tirgym.harness.desk import Desk, Limits, roofline_floor
from tirgym.harness.evaluation import Level
from tirgym.harness.file_lock import timing_lock_path
from tirgym.harness.portable import to_bytes
from tirgym.harness.target import Target
from tirgym.harness.timing import PLANS, Timer, TimingPlan
from tirgym.harness.workbench import Rules
from tirgym.harness.worker import RemoteError, Worker, WorkerLimits, WorkerPool
from tirgym.kernels_suite.kernel import Workload

__all__ = ["Workshop"]

RECYCLE_AFTER = 1000
"""Programs that one worker builds before a fresh one takes over: JIT-linked code is never freed."""


class Workshop:
    """Hands out workers that are ready for a workload, and replaces those that are spent."""

    def __init__(
        self,
        limits: Limits,
        seed: int,
        bitwise: bool,
        timer: Timer | None,
        plans: dict[Level, TimingPlan] | None,
        floor_us: Callable[[Workload, Target], float] | None,
    ) -> None:
        self.limits = limits
        self._floor_us = floor_us or roofline_floor
        rules = Rules(
            secrets.token_bytes(32),
            seed,
            {**PLANS, **(plans or {})},
            timer,
            timing_lock_path(),
            limits.slowdown,
            limits.slow_floor_s,
            bitwise,
        )
        self._rules = to_bytes(rules, timer)
        self._pools: dict[int, WorkerPool] = {}
        self._desks: dict[tuple[Workload, Target], Desk] = {}
        self._builds: dict[int, int] = {}
        self._number = 0

    def next_number(self) -> int:
        """Number of the next evaluation, which picks its secret inputs."""
        self._number += 1
        return self._number - 1

    def desk(self, workload: Workload, target: Target) -> Desk:
        """The desk of a workload, made on first use."""
        key = (workload, target)
        if key not in self._desks:
            self._desks[key] = Desk(str(len(self._desks)), workload, target, self._floor_us)
        return self._desks[key]

    def worker(self, desk: Desk) -> tuple[Worker, bool]:
        """A worker with a workbench for `desk`, and whether it has done nothing else yet.

        Raises EvaluationError if the workload cannot be prepared: its unscheduled program does not
        build, run, or pass its own gate, or its reference fails.
        """
        threads = desk.target.num_threads
        pool = self._pools.get(threads)
        if pool is None:
            pool = WorkerPool(WorkerLimits(threads, self.limits.memory_bytes))
            self._pools[threads] = pool
        self._builds[threads] = self._builds.get(threads, 0) + 1
        if self._builds[threads] > RECYCLE_AFTER:
            pool.discard()
        worker, new = pool.worker()
        if new:
            self._builds[threads] = 0
            self._mark(threads, ())
        if not desk.prepared:
            try:
                self._prepare(worker, desk)
            except (RemoteError, DeadlineError, WorkerDiedError) as error:
                self.discard(desk.target)
                text = getattr(error, "message", str(error)).removeprefix("EvaluationError: ")
                raise EvaluationError(f"cannot prepare {desk.workload}: {text}") from None
            except BaseException:
                self.discard(desk.target)
                raise
        return worker, new

    def _prepare(self, worker: Worker, desk: Desk) -> None:
        answer: Any = worker.call(
            "prepare",
            desk.key,
            desk.workload_bytes,
            desk.naive_json,
            desk.target,
            self._rules,
            desk.anchors,
            timeout_s=self.limits.prepare_s,
        )
        held, desk.naive_key, desk.naive_s = answer
        self._mark(desk.target.num_threads, held)

    def _mark(self, threads: int, held: tuple[str, ...] | list[str]) -> None:
        """Remember which workloads the worker with `threads` threads holds."""
        for desk in self._desks.values():
            if desk.target.num_threads == threads:
                desk.prepared = desk.key in held

    def discard(self, target: Target) -> None:
        """Kill the worker of `target`; the spare takes over."""
        pool = self._pools.get(target.num_threads)
        if pool is not None:
            pool.discard()

    def close(self) -> None:
        """Kill every worker."""
        for threads in sorted(self._pools):
            self._pools[threads].close()
        self._pools.clear()
