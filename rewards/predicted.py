"""`PredictedSpeedup`: what rewards share that pay a prediction and run nothing."""

from __future__ import annotations

from tirgym.harness.program import Program
from tirgym.rewards.reward import EpisodeReward, Needs, Transition

__all__ = ["PredictedSpeedup"]


class PredictedSpeedup(EpisodeReward):
    """Pays the change of a predicted log speedup; never a verified one.

    With `every_step=False` it pays once, at the end, for the program that the episode stops with: the
    same return for one prediction an episode, and no opinion on programs that are half decided, which
    nobody would measure and no model has learned from.
    """

    needs = Needs.NOTHING

    def __init__(self, penalty: float, illegal_penalty: float, every_step: bool) -> None:
        super().__init__(penalty=penalty, illegal_penalty=illegal_penalty)
        self.every_step, self.pays_at_end = every_step, not every_step

    def predicted_level(self, program: Program) -> float:
        """Log of the predicted speedup over the program that the episode began with, on the grid."""
        raise NotImplementedError

    def _next_level(self, transition: Transition) -> float:
        unchanged = transition.after is transition.before
        if unchanged if self.every_step else not transition.final:
            return self._level
        return self.predicted_level(transition.after)
