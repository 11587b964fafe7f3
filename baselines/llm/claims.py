"""Claims of a language model beside their effect: what it predicted, why, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tirgym.baselines.llm.transcript import Saved

__all__ = ["Claim", "claims_of", "summary"]

BAND = 0.02
"""Relative changes of the time up to this count as none."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One measured proposal; gains are ratios of times, before over after."""

    number: int
    base: int | None
    actions: tuple[str, ...]
    why: str
    status: str
    predicted_speedup: float | None
    """over the unscheduled program"""
    measured_speedup: float | None
    predicted_gain: float | None
    """over the program that it started from"""
    measured_gain: float | None

    @property
    def verdict(self) -> str:
        """ "right direction", "wrong direction", or why nothing can be said."""
        if self.predicted_gain is None:
            return "no prediction" if self.predicted_speedup is None else "base has no number"
        if self.measured_gain is None:
            return f"no number: {self.status}"
        same = _direction(self.predicted_gain) == _direction(self.measured_gain)
        return "right direction" if same else "wrong direction"


def _direction(gain: float) -> int:
    return 0 if abs(math.log(gain)) <= BAND else 1 if gain > 1 else -1


def claims_of(lines: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """The claims of the `measured` lines of a transcript, in order."""
    speedups = {line.get("number"): line.get("speedup") for line in lines}
    return [_claim(line, speedups) for line in lines if not line.get("name")]


def _claim(line: Mapping[str, Any], speedups: Mapping[Any, Any]) -> Claim:
    predicted, measured = line.get("predicted_speedup"), line.get("speedup")
    before = speedups.get(line.get("base"))
    return Claim(
        number=int(line["number"]),
        base=line.get("base"),
        actions=tuple(map(str, line.get("actions", ()))),
        why=str(line.get("why", "")),
        status=str(line.get("status", "")),
        predicted_speedup=predicted,
        measured_speedup=measured,
        predicted_gain=predicted / before if predicted and before else None,
        measured_gain=measured / before if measured and before else None,
    )


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """JSON values: how many claims were right about the direction, and how far off they were."""
    claims = claims_of(lines)
    checked = [c for c in claims if c.predicted_gain is not None and c.measured_gain is not None]
    right = sum(claim.verdict == "right direction" for claim in checked)
    errors = [
        abs(math.log(claim.predicted_speedup / claim.measured_speedup))
        for claim in checked
        if claim.predicted_speedup and claim.measured_speedup
    ]
    off = math.exp(median(errors)) if errors else None
    text = f"{right} of {len(checked)} right about the direction"
    if off is not None:
        text += f", off by a factor of {off:.2f} in the median"
    return {
        "made": len(claims),
        "checked": len(checked),
        "right_direction": right,
        "median_factor_off": off,
        "text": text if claims else "none",
    }


def saved_claims(saved: Saved) -> list[Claim]:
    """The claims of a transcript."""
    return claims_of(saved.of("measured"))
