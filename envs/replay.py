"""What `reward="replay"` is made of: the store, its target, and what happens to missing states."""

from __future__ import annotations

from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.hardware import fingerprint
from tirgym.harness.replay_evaluator import ReplayEvaluator, stored_contexts, stored_target
from tirgym.harness.shipped_store import is_shipped, to_read
from tirgym.harness.store import Store
from tirgym.harness.store_contents import read_contents
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import opens_file
from tirgym.performance_model.dataset import versions_text

__all__ = ["MISSING", "make_replay", "replay_target", "replay_workloads"]

MISSING = ("measure", "refuse")
"""What may be done with a state that the store lacks."""


def make_replay(store: Any, target: Target, missing: str | None) -> ReplayEvaluator:
    """The evaluator that answers from `store`: a path, the name of a store that ships, a `Store`, or
    None for the user's store.

    A missing state is measured here and stored, or refused. None refuses for a store that ships, and
    measures for another one if all its numbers for `target` are of this machine and these compiler
    versions; numbers of two machines do not mix. Raises InvalidValueError for "measure" where they would.
    """
    if missing is not None and missing not in MISSING:
        raise InvalidValueError("missing", missing, f"one of {', '.join(MISSING)}, or None")
    evaluator = ReplayEvaluator(store if isinstance(store, Store) else to_read(store))
    if missing == "refuse" or (missing is None and is_shipped(store)):
        return evaluator
    held = {(c.machine, c.versions) for c in evaluator.store.contexts() if c.target == target}
    here = {(fingerprint(), versions_text())}
    if held == here or (missing == "measure" and not held):
        evaluator.otherwise = _measuring(store)
    elif missing == "measure":
        evaluator.close()
        raise InvalidValueError(
            "missing",
            missing,
            f'"refuse": store {evaluator.store.path} holds numbers of another machine or compiler '
            f"for {target}, and numbers of two do not mix",
        )
    return evaluator


def _measuring(store: Any) -> Evaluator:
    """Measures into `store`; what ships is never written to, so then into the user's store."""
    from tirgym.harness.local_evaluator import LocalEvaluator

    return LocalEvaluator(store=None if is_shipped(store) else store)


def replay_target(store: Any, wanted: Target) -> Target:
    """The target whose verdicts `store` holds; raises InvalidValueError if that is not clear."""
    if isinstance(store, Store):
        return stored_target(store, wanted)
    opened = Store(to_read(store), read_only=True)
    try:
        return stored_target(opened, wanted)
    finally:
        opened.close()


def replay_workloads(
    store: Any,
    split: Split | str | None = None,
    target: Target | None = None,
    *,
    files: bool = False,
) -> list[str]:
    """URIs of the workloads that `store` holds answers for, of one split or of all: what
    `kernel=` of a decision environment takes. What is trained to ship takes "train".

    With a `target` those that a replay for it answers (`stored_contexts`), else of all targets and
    machines. Kernels outside the suites belong to no split. Those from Python files, which an
    environment would run, are left out unless `files`, which is for a store of one's own. Raises
    InvalidValueError for an unknown split, and what `stored_contexts` raises.
    """
    if split is not None and split not in list(Split):
        raise InvalidValueError("split", split, f"one of {', '.join(Split)}, or None")
    opened = store if isinstance(store, Store) else Store(to_read(store), read_only=True)
    try:
        found = [held for held in read_contents(opened) if held.walks]
        if target is not None:
            answering = set(stored_contexts(opened, target))
            found = [held for held in found if held.context in answering]
    finally:
        if opened is not store:
            opened.close()
    wanted = [held for held in found if split is None or held.split == split]
    uris = dict.fromkeys(held.context.workload.partition("#")[0] for held in wanted)
    return [uri for uri in uris if files or not opens_file(uri)]
