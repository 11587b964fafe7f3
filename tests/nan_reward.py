"""A reward that is no number from the third step of an episode on."""

from __future__ import annotations

import math

from tirgym.rewards.reward import EpisodeReward, Transition

__all__ = ["NanReward"]


class NanReward(EpisodeReward):
    """0, 0, then NaN."""

    def _next_level(self, transition: Transition) -> float:
        return math.nan if len(transition.before.steps) >= 2 else 0.0
