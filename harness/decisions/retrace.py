"""`Retrace`: the walk that leads to a decision point, made from the point alone."""

from __future__ import annotations

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.point import DecisionPoint
from tirgym.harness.decisions.space import design_space
from tirgym.harness.decisions.walk import Walk
from tirgym.harness.program import Program
from tirgym.harness.target import Target

__all__ = ["Retrace"]


class Retrace:
    """Makes the walk that asks a point, from what stands in it.

    Points of one walk are asked in order, so the walks to earlier ones are kept and gone on from.
    `start` is only needed for the unscheduled program of a workload that has no name. Without `files`,
    which is for points that others wrote, a kernel in a Python file is refused.
    """

    def __init__(self, start: Program | None = None, *, files: bool = True) -> None:
        self._start, self._files = start, files
        self._place = ("", "")
        self._walks: list[Walk] = []

    def walk(self, point: DecisionPoint) -> Walk:
        """The walk; raises InvalidValueError for a point that no walk from its workload leads to."""
        place = (point.workload, point.target)
        if place != self._place:
            self._place, self._walks = place, [self._root(point)]
        for number, answer in enumerate(point.answers):
            if number + 1 < len(self._walks):
                taken = self._walks[number + 1].answers[number]
                if (taken.key, taken.value) == answer:
                    continue
            self._walks[number + 1 :] = [_after(self._walks[number], *answer)]
        walk = self._walks[len(point.answers)]
        asked = walk.question
        if asked is None or (asked.key, len(asked.options)) != (point.key, len(point.options)):
            raise InvalidValueError("decision point", point.key, "the question after its answers")
        return walk

    def _root(self, point: DecisionPoint) -> Walk:
        from tirgym.harness.backend import backend
        from tirgym.kernels_suite.registry import load_workload

        start, target = self._start, Target.parse(point.target)
        if start is None or (start.workload.uri, start.target) != (point.workload, target):
            workload = load_workload(point.workload, files=self._files)
            start = backend(target.backend).start(workload, target)
        return design_space(start)


def _after(walk: Walk, key: str, value: int) -> Walk:
    """`walk` with its question `key` answered by `value`."""
    question = walk.question
    values = [option.value for option in question.options] if question else []
    if question is None or question.key != key or value not in values:
        raise InvalidValueError(
            "answers of the decision point", f"{key}={value}", "those of a walk"
        )
    return walk.answer(values.index(value))
