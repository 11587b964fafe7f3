"""`PolicyAgent`: a trained policy answers decision points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.point import DecisionPoint, Recommendation

__all__ = ["Observe", "Policy", "PolicyAgent"]

Observe = Callable[[DecisionPoint], tuple[Any, NDArray[np.bool_]]]
"""Shows a point as the observation that a policy was trained on, with its action mask; for the
observations of the Decision environments see `tirgym.spaces.point_observer.PointObserver`."""


class Policy(Protocol):
    """What `sb3_contrib.MaskablePPO` has, and any object with this method."""

    def predict(self, observation: Any, *, action_masks: NDArray[np.bool_]) -> tuple[Any, Any]:
        """The action, alone or as an array of one, and whatever the policy keeps between calls."""


class PolicyAgent:
    """Asks `policy.predict(observation, action_masks=mask)`; the action is the option.

    An action that is masked comes out as it is: a `Guard` overrules and counts it.
    """

    def __init__(self, policy: Policy, observe: Observe) -> None:
        self.policy, self._observe = policy, observe

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The policy's choice; raises InvalidValueError unless it is one whole number."""
        observation, mask = self._observe(point)
        action, _ = self.policy.predict(observation, action_masks=mask)
        found = np.asarray(action)
        if found.size != 1 or not np.issubdtype(found.dtype, np.integer):
            raise InvalidValueError("action of the policy", action, "one whole number")
        return Recommendation(int(found.item()), explanation="the policy's choice")
