"""`PointObserver`: decision points as the Decision environments show them, for trained policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.cost import static_cost_model
from tirgym.harness.decisions.point import DecisionPoint
from tirgym.harness.decisions.retrace import Retrace
from tirgym.harness.decisions.walk import Walk
from tirgym.harness.program import Program
from tirgym.spaces.decision_space import OptionSpace, make_decision_observation
from tirgym.spaces.graph import encoder_for

__all__ = ["PointObserver"]


class PointObserver:
    """Called with a point, answers what `tirgym/Decision-v0` observes there, and the action mask.

    `observation` is one of the environment's forms. `costs` says whether options are shown with their
    static cost, as with `candidate_costs`: True prices them here, None shows the costs that the point
    has, if any. `start` and `files` are those of `Retrace`.
    """

    def __init__(
        self,
        observation: str = "dict",
        start: Program | None = None,
        costs: bool | None = None,
        *,
        files: bool = True,
    ) -> None:
        self._actions, self._priced = OptionSpace(), costs
        self._form = make_decision_observation(observation, self._actions)
        self._retrace = Retrace(start, files=files)

    def __call__(self, point: DecisionPoint) -> tuple[Any, NDArray[np.bool_]]:
        """Observation, and mask of shape (MAX_OPTIONS,); raises InvalidValueError."""
        walk = self._retrace.walk(point)
        costs = self._costs(point, walk)
        graph = encoder_for(walk.program.dialect).encode(walk.program)
        observation = self._form.observe(walk.program, graph, walk.question, costs)
        return observation, self._actions.mask(walk.question).astype(np.bool_)

    def _costs(self, point: DecisionPoint, walk: Walk) -> Sequence[float] | None:
        if self._priced is not None:
            backend = walk.program.target.backend
            return walk.costs(static_cost_model(backend)) if self._priced else None
        known = [option.cost_us for option in point.options if option.cost_us is not None]
        return known if len(known) == len(point.options) else None
