"""`attribute`: how a gain that was measured over several steps is laid on each of them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["attribute"]


def attribute(measured: float, static: Sequence[float]) -> list[float]:
    """The part of each step in the gain `measured` over all of them.

    Gains are natural logarithms of time before / time after. Each step gets what the static cost
    says of it, and an equal share of what the static cost got wrong:

        gain_i = static_i + (measured - sum(static)) / n

    so that the parts add up to what was measured, and a step about which the model is right keeps
    its sign.
    """
    rest = (measured - sum(static)) / max(1, len(static))
    return [gain + rest for gain in static]
