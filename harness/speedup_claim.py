"""`claim_holds`: whether a stated speedup stands up to the one that was measured."""

from __future__ import annotations

__all__ = ["CLAIM_MARGIN", "claim_holds"]

CLAIM_MARGIN = 1.25
"""A claim of more than this many times the measured speedup does not hold."""


def claim_holds(claimed: float | None, measured: float | None) -> bool | None:
    """Whether a speedup of `claimed` holds where `measured` was found; None without either.

    Nothing else that the claimant writes is asked, such as an interval.
    """
    if claimed is None or measured is None:
        return None
    return claimed <= CLAIM_MARGIN * measured  # a claim that is no number does not hold
