"""`Learner`: a way to learn from measured programs; the table of learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import MissingExtraError, UnknownNameError
from tirgym.performance_model.view import ProgramView

__all__ = ["LEARNERS", "Encoded", "Examples", "Learner", "Member", "make_learner"]

Vector = NDArray[np.float64]

Encoded = Any
"""A program in the form that a learner wants; only that learner looks into it."""


@dataclass(frozen=True, slots=True)
class Examples:
    """What a member learns from: programs, each with its workload and what is to be predicted."""

    programs: Sequence[Encoded]
    starts: Sequence[Encoded]
    """the unscheduled program of each workload"""
    workloads: NDArray[np.int64]
    """(programs,): index into `starts`"""
    targets: Vector
    """(programs,): what the static cost gets wrong about the log-speedup"""


class Member(Protocol):
    """One fitted opinion: how much slower than its static cost a program is, up to a constant."""

    def predict(self, programs: Sequence[Encoded]) -> Vector:
        """(len(programs),): minus the log of (time over static cost), up to a constant of the
        workload. A pure function of each program."""

    def files(self) -> Mapping[str, bytes]:
        """The member as data, by file name."""


class Learner(Protocol):
    """Fits members. Everything is a function of its arguments, so a seed fixes what is learned."""

    def encode(self, view: ProgramView, start: ProgramView) -> Encoded:
        """A program as this learner sees it; `start` is its unscheduled one."""

    def fit(self, examples: Examples, seed: int) -> Member:
        """A member whose difference between a program and its start predicts the targets."""

    def load(self, files: Mapping[str, bytes]) -> Member:
        """The member that `files` were made of; raises ValueError for what is none."""


LEARNERS: Mapping[str, tuple[str, str, str]] = {
    "trees": ("tirgym.performance_model.trees:TreeLearner", "xgboost", "model"),
    "gnn": ("tirgym.performance_model.gnn:GnnLearner", "torch", "rl"),
}
"""Name → "module:Class", the package that it needs, and the extra that installs it."""


def make_learner(name: str) -> Learner:
    """The learner called `name`; raises UnknownNameError, and MissingExtraError without its package."""
    if name not in LEARNERS:
        raise UnknownNameError("kind of performance model", name, LEARNERS)
    where, package, extra = LEARNERS[name]
    if find_spec(package) is None:
        raise MissingExtraError(f"a performance model of kind {name}", package, extra)
    module, _, attribute = where.partition(":")
    return cast(Learner, getattr(import_module(module), attribute)())
