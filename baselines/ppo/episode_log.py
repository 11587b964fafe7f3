"""`EpisodeLog`: the training episodes since the last look, as a few figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["EpisodeLog"]


class EpisodeLog:
    """Collects the "episode" infos of `CurriculumEnv`."""

    def __init__(self) -> None:
        self._episodes: list[Mapping[str, Any]] = []

    def see(self, infos: Iterable[Mapping[str, Any]]) -> None:
        """Keep the episodes that ended with a step."""
        self._episodes += [info["episode"] for info in infos if "episode" in info]

    def take(self) -> dict[str, float]:
        """Figures of the episodes so far, which are then forgotten; empty if none ended.

        `verified_speedup` is there only if some episode ended verified: a geometric mean like
        `speedup`, of those.
        """
        episodes, self._episodes = self._episodes, []
        if not episodes:
            return {}
        figures = {
            "episodes": float(len(episodes)),
            "episode_return": _mean(e["r"] for e in episodes),
            "episode_steps": _mean(e["l"] for e in episodes),
            "invalid_actions": _mean(e["invalid"] for e in episodes),
            "speedup": _geomean(e["speedup"] for e in episodes),
        }
        verified = [e["speedup"] for e in episodes if e["verified"]]
        if verified:
            figures["verified_speedup"] = _geomean(verified)
            figures["verified_share"] = len(verified) / len(episodes)
        return figures


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _geomean(values: Iterable[float]) -> float:
    return math.exp(_mean(math.log(max(value, 1e-9)) for value in values))
