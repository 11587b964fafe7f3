"""`ReplayEvaluator`: verdicts from a store; what is missing there is refused, or measured."""

from __future__ import annotations

import os
from dataclasses import replace

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.answer_tree import AnswerTree
from tirgym.harness.desk import context_of, versions_of
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.hardware import fingerprint
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import SETTLED, Context, Record, Store
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Workload

__all__ = ["ReplayEvaluator", "stored_contexts", "stored_target"]

_ORDER = {
    Level.TRAINING: (Level.TRAINING, Level.FULL),
    Level.FULL: (Level.FULL, Level.TRAINING),
}


class ReplayEvaluator(Evaluator):
    """An `Evaluator` that answers what the store holds; `otherwise` is asked where it holds nothing.

    Without `otherwise` it is strict: nothing is compiled or run, on any machine, and what is missing is
    INCOMPLETE. Then it is deterministic, a pure function of the store's content. Numbers are those of
    the store's machine and compiler versions, whatever they are here: of `machine` (a fingerprint)
    where the store has several. `replayed_from` labels them. Each level is answered by a verdict of the
    other where there is none of its own; the answer says of which it is.

    `otherwise` is closed with this. Raises DamagedFileError for a path without a store,
    InvalidValueError for an unknown machine.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        machine: str | None = None,
        otherwise: Evaluator | None = None,
    ) -> None:
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store, read_only=True)
        self._contexts = self.store.contexts()
        machines = sorted({context.machine for context in self._contexts})
        if machine is not None and machine not in machines:
            raise InvalidValueError("machine", machine, f"one of {', '.join(machines) or 'none'}")
        self.machine = machine
        self.otherwise = otherwise
        self._found: dict[tuple[str, Target], Context | None] = {}
        self._trees: dict[tuple[str, Target], AnswerTree] = {}

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """The stored verdict; without one, or for a `fresh` one, that of `otherwise` or INCOMPLETE."""
        if fresh:
            message = "a replay measures nothing; ask an evaluator that does"
            return self._missing(program, level, fresh, message)
        context = self._context(program.workload, program.target)
        if context is None:
            held = "nothing"
        else:
            record = self._record(context, program.ir_key, level)
            if record is not None and self._counts(record):
                made = record.evaluation(program.ir_key)
                return replace(made, replayed_from=context.machine)
            held = "no verdict on this program"
        message = f"store {self.store.path} holds {held} for {program.workload}, {program.target}"
        return self._missing(program, level, fresh, message)

    def answers(self, workload: Workload, target: Target) -> AnswerTree:
        """The stored walks of a workload, read once.

        Raises InvalidValueError if there are none, TargetMismatchError if they contradict each other.
        """
        place = (workload.uri, target)
        if place not in self._trees:
            context = self._context(workload, target)
            walks = [] if context is None else self.store.walks(context)
            tree = AnswerTree(walks, f"{workload} in store {self.store.path}")
            if not tree.size:
                accepted = (
                    f"one that store {self.store.path} holds answers for, for {target} "
                    "(`tirgym store show` lists them, `tirgym store record` adds some)"
                )
                raise InvalidValueError("workload to replay", str(workload), accepted)
            self._trees[place] = tree
        return self._trees[place]

    def close(self) -> None:
        """Close `otherwise`, and a store that was opened here."""
        if self.otherwise is not None:
            self.otherwise.close()
        if self._owns_store:
            self.store.close()

    def _counts(self, record: Record) -> bool:
        """Whether the record is the answer: one that does not stand gives way to a measurement."""
        stands = record.status in SETTLED or record.status is Status.ILLEGAL
        return stands or self.otherwise is None

    def _missing(self, program: Program, level: Level, fresh: bool, message: str) -> Evaluation:
        if self.otherwise is not None:
            return self.otherwise.evaluate(program, level, fresh=fresh)
        return Evaluation(Status.INCOMPLETE, program.ir_key, message=message, level=level)

    def _record(self, context: Context, ir_key: str, level: Level) -> Record | None:
        key = self.store.code_key(context, ir_key) or f"ir:{ir_key}"
        for stored_level in _ORDER[level]:
            record = self.store.get(context, key, stored_level)
            if record is not None:
                return record
        return None

    def _context(self, workload: Workload, target: Target) -> Context | None:
        """Where verdicts on `workload` and `target` stand: this machine's and versions' first."""
        place = (workload.uri, target)
        if place not in self._found:
            here = context_of(workload, target)
            fits = [
                context
                for context in self._contexts
                if (context.workload, context.target) == (here.workload, here.target)
                and self.machine in (None, context.machine)
            ]
            fits.sort(key=lambda context: _distance(context, here))
            self._found[place] = fits[0] if fits else None
        return self._found[place]


def _distance(context: Context, here: Context) -> tuple[bool, bool, int]:
    """Smallest for the context whose verdicts answer `here`: of this machine, versions, the newest
    protocol."""
    return (context.machine != here.machine, context.versions != here.versions, -context.protocol)


def stored_contexts(store: Store, wanted: Target) -> list[Context]:
    """Where a replay for `stored_target(store, wanted)` finds its verdicts, one context a workload: those
    of this machine, else of the only other one.

    Raises InvalidValueError, naming what there is, where target or machine are not clear.
    """
    target = stored_target(store, wanted)
    fits = [context for context in store.contexts() if context.target == target]
    machines = sorted({context.machine for context in fits})
    if len(machines) > 1 and fingerprint() in machines:
        machines = [fingerprint()]
    if len(machines) > 1:
        accepted = (
            f"one with numbers of one machine for {target}, not of {', '.join(machines)} "
            "(tirgym store export OUT --machine ID makes a store of one)"
        )
        raise InvalidValueError("store", str(store.path), accepted)
    versions = versions_of(target)
    found: dict[str, Context] = {}
    for context in fits:
        if context.machine in machines:
            here = replace(context, versions=versions)
            best = found.setdefault(context.workload, context)
            if _distance(context, here) < _distance(best, here):
                found[context.workload] = context
    return list(found.values())


def stored_target(store: Store, wanted: Target) -> Target:
    """`wanted` if the store has it, else the one target with its backend and thread count.

    Raises InvalidValueError, listing what the store has, when there is none or more than one.
    """
    targets = sorted({context.target for context in store.contexts()})
    if wanted in targets:
        return wanted
    fits = [
        t for t in targets if (t.backend, t.num_threads) == (wanted.backend, wanted.num_threads)
    ]
    if len(fits) == 1:
        return fits[0]
    held = ", ".join(map(str, targets)) or "none: the store is empty"
    accepted = f"one that store {store.path} has ({held})"
    raise InvalidValueError("target to replay", str(wanted), accepted)
