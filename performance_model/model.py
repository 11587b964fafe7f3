"""`PerformanceModel`: the speedup of a program as learned from measurements, with its uncertainty."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import DamagedFileError
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Kernel
from tirgym.performance_model.archive import read_archive, write_archive
from tirgym.performance_model.header import Header
from tirgym.performance_model.learner import Encoded, Learner, Member, make_learner
from tirgym.performance_model.scores import Prediction
from tirgym.performance_model.view import ProgramView, view_of

__all__ = ["PerformanceModel"]

Vector = NDArray[np.float64]

_HEADER = "header.json"
_REMEMBERED = 1 << 14
"""Programs whose opinions are kept."""
_STARTS = 64
"""Workloads whose unscheduled program is kept."""


class _Start(NamedTuple):
    """The unscheduled program of a workload."""

    kernel: Kernel
    view: ProgramView
    encoded: Encoded
    said: Vector
    """(members,): what each member says of it, to be taken off"""


class PerformanceModel:
    """An ensemble that corrects the static cost; a `CostModel` and a `SpeedupModel`.

        model = PerformanceModel.load("runs/model.tirgym")
        model.predict([program])           # expected log-speedup over unscheduled, with interval
        optimize("softmax", cost=model)    # or: tirgym optimize softmax --model runs/model.tirgym

    Each member was trained without some kernel families, so that their disagreement says how far a
    program is from what was measured. The unscheduled program has log-speedup 0 exactly. A pure
    function of the model file and the program.
    """

    def __init__(self, header: Header, learner: Learner, members: Sequence[Member]) -> None:
        self.header = header
        self._learner, self._members = learner, tuple(members)
        self._starts: OrderedDict[str, _Start] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    # -- predictions ------------------------------------------------------------------------

    def opinions(self, programs: Sequence[Program]) -> Vector:
        """(members, len(programs)): log-speedup over the unscheduled program by each member.

        Raises TargetMismatchError for a program on another target than the model's.
        """
        if not programs:
            return np.zeros((len(self._members), 0))
        places = [(program.workload.uri, program.ir_key) for program in programs]
        starts = [self._start(program) for program in programs]
        new = {place: i for i, place in enumerate(places) if place not in self._known}
        if new:
            chosen = [programs[i] for i in new.values()]
            found = self._judge(chosen, [starts[i] for i in new.values()])
            for place, column in zip(new, found.T, strict=True):
                self._known[place] = column
        columns = np.stack([self._known[place] for place in places], axis=1)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return columns

    def predict(self, programs: Sequence[Program]) -> Prediction:
        """Expected log-speedup, and the interval that holds the truth `header.level` of the time."""
        opinions = self.opinions(programs)
        expected = opinions.mean(axis=0)
        half = self.header.doubts * spread(opinions, self.header.floor)
        return Prediction(expected, expected - half, expected + half)

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs: the unscheduled program's static cost over the speedup.

        It ranks programs of one workload; between workloads it is as wrong as the static cost.
        """
        expected = float(self.opinions([program]).mean())
        return math.exp(self.start_cost(program) - expected)

    def start_cost(self, program: Program) -> float:
        """Static cost of the unscheduled program of the same workload, as the logarithm of µs."""
        return float(self._start(program).view.cost[0])

    def _judge(self, programs: Sequence[Program], starts: Sequence[_Start]) -> Vector:
        """(members, len(programs)): the opinions, computed."""
        views = [view_of(program) for program in programs]
        encoded = [
            self._learner.encode(view, start.view)
            for view, start in zip(views, starts, strict=True)
        ]
        static = [
            start.view.cost[0] - view.cost[0] for view, start in zip(views, starts, strict=True)
        ]
        said = np.stack([member.predict(encoded) for member in self._members])
        constant = np.stack([start.said for start in starts], axis=1)
        return np.asarray(said - constant + np.array(static))

    def _start(self, program: Program) -> _Start:
        if program.target != self.header.target:
            self.header.require(program.target)
        workload = program.workload
        held = self._starts.get(workload.uri)
        if held is None or held.kernel is not workload.kernel:
            view = view_of(backend(program.target.backend).start(workload, program.target))
            encoded = self._learner.encode(view, view)
            said = np.array([float(member.predict([encoded])[0]) for member in self._members])
            held = self._starts[workload.uri] = _Start(workload.kernel, view, encoded, said)
            self._known = OrderedDict(
                (place, column) for place, column in self._known.items() if place[0] != workload.uri
            )
            while len(self._starts) > _STARTS:
                self._starts.popitem(last=False)
        return held

    # -- file -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model whole or not at all; the same model makes the same bytes."""
        files = {_HEADER: self.header.to_json().encode()}
        for number, member in enumerate(self._members):
            for name, data in member.files().items():
                files[f"member{number}/{name}"] = data
        write_archive(path, files)

    @classmethod
    def load(cls, path: str | os.PathLike[str], target: Target | None = None) -> PerformanceModel:
        """Read a model that is to be used for `target`, or for the one that it was trained for.

        Raises DamagedFileError, TargetMismatchError where the model does not hold (see `Header`),
        and MissingExtraError without the package of its kind.
        """

        def damaged(problem: str) -> DamagedFileError:
            return DamagedFileError(str(path), "performance model", problem)

        files = read_archive(path)
        if _HEADER not in files:
            raise damaged(f"no {_HEADER} in it")
        try:
            header = Header.from_json(files.pop(_HEADER).decode("utf-8"))
        except (ValueError, LookupError, RecursionError) as error:
            raise damaged(f"{_HEADER}: {error}") from None
        header.require(target or header.target, str(path))
        learner = make_learner(header.kind)
        try:
            members = [
                learner.load(_part(files, f"member{number}/"))
                for number in range(len(header.folds))
            ]
        except ValueError as error:
            raise damaged(str(error)) from None
        if not members:
            raise damaged("it has no members")
        return cls(header, learner, members)


def _part(files: dict[str, bytes], prefix: str) -> dict[str, bytes]:
    return {
        name.removeprefix(prefix): data for name, data in files.items() if name.startswith(prefix)
    }


def spread(opinions: Vector, floor: float) -> Vector:
    """(programs,): standard deviation of the members (members, programs) with the least there is."""
    return np.asarray(np.sqrt(opinions.var(axis=0) + floor**2))
