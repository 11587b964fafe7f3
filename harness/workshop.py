"""`Workshop`: desks of workloads, and lanes of workers by thread count."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tirgym.errors import TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.desk import Desk, Limits, roofline_floor
from tirgym.harness.evaluation import Level
from tirgym.harness.file_lock import timing_lock_path
from tirgym.harness.lane import Lane
from tirgym.harness.portable import to_bytes
from tirgym.harness.target import Target
from tirgym.harness.timing import PLANS, Timer, TimingPlan
from tirgym.harness.workbench import Rules
from tirgym.harness.worker import WorkerLimits
from tirgym.harness.worker_device import UNBOUNDED
from tirgym.kernels_suite.kernel import Workload

__all__ = ["Workshop", "free_cores"]


def free_cores(target: Target) -> int:
    """Cores that this process may use and that a timed program of `target` does not need."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return cores - target.num_threads


class Workshop:
    """Hands out lanes, each a worker of its own, to whoever evaluates something."""

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
        self._desks: dict[tuple[Workload, Target], Desk] = {}
        self._number = 0
        self.lanes: list[Lane] = []

    def next_number(self) -> int:
        """Number of the next evaluation, which picks its secret inputs."""
        self._number += 1
        return self._number - 1

    def desk(self, workload: Workload, target: Target) -> Desk:
        """The desk of a workload, made on first use.

        Raises TargetMismatchError for a target whose code cannot run on this machine.
        """
        key = (workload, target)
        if key not in self._desks:
            reason = backend(target.backend).why_cannot_run(target)
            if reason is not None:
                raise TargetMismatchError(reason)
            self._desks[key] = Desk(str(len(self._desks)), workload, target, self._floor_us)
        return self._desks[key]

    @contextmanager
    def lane(self, target: Target) -> Iterator[Lane]:
        """A lane for programs of `target` that nobody else uses meanwhile."""
        memory = None if target.backend in UNBOUNDED else self.limits.memory_bytes
        wanted = WorkerLimits(target.num_threads, memory)
        idle = [x for x in self.lanes if x.pool.limits == wanted and not x.busy]
        if not idle:
            idle = [Lane(wanted, self.limits, self._rules)]
            self.lanes += idle
        idle[0].busy = True
        try:
            yield idle[0]
        finally:
            idle[0].busy = False

    def rest(self) -> None:
        """Wait until no worker does anything; who asked them gets the answers later."""
        for lane in self.lanes:
            if lane.pending is not None:
                lane.pending.wait()

    def renew(self) -> None:
        """Replace every worker that nobody uses; spares take over."""
        for lane in self.lanes:
            if not lane.busy:
                lane.discard()

    def close(self) -> None:
        """Kill every worker."""
        for lane in self.lanes:
            lane.close()
        self.lanes.clear()
