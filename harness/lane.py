"""`Lane`: one worker with its spare, and the workbenches that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness.channel import DeadlineError
from tirgym.harness.desk import Desk, Limits
from tirgym.harness.outcome import Anchor
from tirgym.harness.pending import Pending, RemoteError
from tirgym.harness.steps import Steps
from tirgym.harness.worker import Worker, WorkerLimits, WorkerPool

__all__ = ["Lane"]

RECYCLE_AFTER = 1000
"""Programs that one worker builds before a fresh one takes over: JIT-linked code is never freed."""


class Lane:
    """Makes its worker ready for a workload, and replaces it when it is spent.

    Requests are steps (`steps.py`): they yield what they wait for.
    """

    def __init__(self, bounds: WorkerLimits, limits: Limits, rules: bytes) -> None:
        """`bounds` are what its worker may use."""
        self.limits, self._rules = limits, rules
        self.pool = WorkerPool(bounds)
        self.busy = False
        """somebody uses it"""
        self.pending: Pending | None = None
        """the newest request"""
        self._builds = 0
        self._held: dict[str, int] = {}
        """by key of the desks that the worker has a workbench for: how many anchors it knows"""

    def worker(self, desk: Desk) -> Steps[tuple[Worker, bool]]:
        """A worker with a workbench for `desk`, and whether it has done nothing else yet.

        Raises EvaluationError if the workload cannot be prepared: its unscheduled program does not
        build, run, or pass its own gate, or its reference fails.
        """
        self._builds += 1
        if self._builds > RECYCLE_AFTER:
            self.discard()
        worker, new = self.pool.worker()
        if new:
            self._builds, self._held = 0, {}
        if desk.key not in self._held:
            try:
                yield from self._prepare(worker, desk)
            except (RemoteError, DeadlineError, WorkerDiedError) as error:
                self.discard()
                text = getattr(error, "message", str(error)).removeprefix("EvaluationError: ")
                raise EvaluationError(f"cannot prepare {desk.workload}: {text}") from None
            except BaseException:
                self.discard()
                raise
        return worker, new

    def _prepare(self, worker: Worker, desk: Desk) -> Steps[None]:
        known = len(desk.anchors)
        answer: Any = yield from self.call(
            worker,
            "prepare",
            desk.key,
            desk.workload_bytes,
            desk.naive_json,
            desk.target,
            self._rules,
            tuple(desk.anchors),
            timeout_s=self.limits.prepare_s,
        )
        held, desk.naive_key, desk.naive_s = answer
        self._held = {key: self._held.get(key, known) for key in held}

    def share_anchors(self, worker: Worker, desk: Desk) -> Steps[None]:
        """Tell the worker of the anchors that were made on other lanes."""
        for anchor in desk.anchors[self._held[desk.key] :]:
            yield from self.add_anchor(worker, desk, anchor)

    def add_anchor(
        self, worker: Worker, desk: Desk, anchor: Anchor, code_key: str = ""
    ) -> Steps[None]:
        """Tell the worker of the next anchor; with `code_key` it is what was just built there."""
        arguments = (desk.key, anchor, code_key)
        yield from self.call(worker, "add_anchor", *arguments, timeout_s=self.limits.build_s)
        self._held[desk.key] += 1

    def call(
        self,
        worker: Worker,
        operation: str,
        *arguments: Any,
        timeout_s: float,
        on_note: Callable[[str], float] | None = None,
    ) -> Steps[Any]:
        """`Worker.call` as steps."""
        self.pending = worker.start(operation, *arguments, timeout_s=timeout_s, on_note=on_note)
        yield self.pending
        return self.pending.result()

    def discard(self) -> None:
        """Kill the worker; the spare takes over."""
        self.pending = None
        self.pool.discard()

    def close(self) -> None:
        """Kill worker and spare."""
        self.pending = None
        self.pool.close()
