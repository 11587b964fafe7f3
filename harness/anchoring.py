"""Anchoring: which baseline a candidate is timed against, and its speedup over naive from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tirgym.harness.evaluation import Measurement
from tirgym.harness.outcome import Anchor
from tirgym.harness.timing import COLD, Paired, stats_of

__all__ = ["ANCHOR_WIDTH", "PROMOTION", "measurement_of", "nearest"]

LONG_S = 3e-3
SHARP = 0.05
"""A slow candidate is timed against an anchor shorter than LONG_S whose ratio is known this well,
instead of a baseline as slow as itself."""
PROMOTION = 2.0
"""A candidate this much faster than the baseline it was timed against is measured in full against
naive, and becomes an anchor …"""
ANCHOR_WIDTH = 0.5
"""… unless half the interval of its ratio is wider than this share of it. An anchor's uncertainty is
part of the interval of everything that is timed against it, and the same for all of it."""


def nearest(anchors: Sequence[Anchor], naive_s: float, seconds: float) -> Anchor | None:
    """The anchor closest in time, None for the naive program.

    Where that would be a long baseline and a sharp shorter one is there, the closest of those.
    """
    choices: list[tuple[float, Anchor | None]] = [(naive_s, None)]
    choices += [(a.seconds, a) for a in anchors]
    closest = _closest(choices, seconds)
    if closest[0] > LONG_S:
        sharp = [c for c in choices if c[1] and c[1].half_width <= SHARP and c[0] <= LONG_S]
        closest = _closest(sharp, seconds) if sharp else closest
    return closest[1]


def measurement_of(
    paired: Paired,
    anchor: Anchor | None,
    is_naive: bool,
    timer: str,
    clock_mhz: tuple[int, int] | None = None,
) -> Measurement:
    """Speedup over naive; the naive binary itself is exactly 1."""
    baseline, cache = stats_of(paired.baseline), "cold" if timer.endswith(COLD) else "hot"
    told: dict[str, Any] = {"cache": cache, "timer": timer, "clock_mhz": clock_mhz}
    if is_naive:
        return Measurement(baseline, baseline, 1.0, (1.0, 1.0), **told)
    ratio, (low, high) = paired.ratio, paired.interval
    if anchor is not None:
        # Relative errors of the two ratios are independent: they add in quadrature.
        low = ratio * max(0.0, 1.0 - math.hypot(1.0 - low / ratio, anchor.half_width))
        high = ratio * (1.0 + math.hypot(high / ratio - 1.0, anchor.half_width))
    scale = 1.0 if anchor is None else anchor.ratio
    return Measurement(
        stats_of(paired.candidate),
        baseline,
        ratio * scale,
        (low * scale, high * scale),
        scale,
        **told,
    )


def _closest(
    choices: Sequence[tuple[float, Anchor | None]], seconds: float
) -> tuple[float, Anchor | None]:
    return min(choices, key=lambda choice: abs(math.log(choice[0] / seconds)))
