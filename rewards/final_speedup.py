"""`FinalSpeedup`: one payment at the end, for the program that the episode stops with."""

from __future__ import annotations

from tirgym.rewards.log_speedup import log_speedup
from tirgym.rewards.reward import EpisodeReward, Needs, Transition

__all__ = ["FinalSpeedup"]


class FinalSpeedup(EpisodeReward):
    """0 until the end, then the log of the final program's speedup over the unscheduled one.

    A sparse reward that costs one evaluation an episode; penalties as everywhere.
    """

    needs = Needs.FINAL
    pays_at_end = True

    def _next_level(self, transition: Transition) -> float:
        if transition.evaluation is None or not transition.final:
            return self._level
        level = log_speedup(transition.evaluation)
        return self._level if level is None else level
