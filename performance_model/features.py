"""`row`: one program as numbers for trees: static cost, pooled stores, pooled graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tirgym.performance_model.view import ProgramView, Viewer
from tirgym.spaces.features import FEATURE_NAMES, features

__all__ = ["row", "row_names"]


def row_names(viewer: Viewer) -> tuple[str, ...]:
    """Names of the entries of `row`. "of start" is the unscheduled program, "more" what exceeds it;
    "mean" weighs blocks by their share of the work, "hot" is the block with the largest."""
    costs, stores = viewer.cost_features, viewer.store_features
    pooled = [f"{pool}.{name}" for pool in ("mean", "hot") for name in stores]
    pooled += ["hot.share", "blocks"]
    return (
        *costs,
        *(f"more.{name}" for name in costs),
        *(f"start.{name}" for name in costs),
        *pooled,
        *(f"more.{name}" for name in pooled),
        *FEATURE_NAMES,
    )


def row(view: ProgramView, start: ProgramView) -> NDArray[np.float32]:
    """(len(row_names),), float32; `start` is the view of the unscheduled program."""
    pooled = _pooled(view)
    parts = (
        view.cost,
        view.cost - start.cost,
        start.cost,
        pooled,
        pooled - _pooled(start),
        features(view.graph),
    )
    return np.concatenate(parts).astype(np.float32)


def _pooled(view: ProgramView) -> NDArray[np.float64]:
    stores, shares = view.stores, view.shares
    if not len(stores):
        return np.zeros(2 * stores.shape[1] + 2)
    hot = int(shares.argmax())
    return np.concatenate([shares @ stores, stores[hot], [shares[hot], float(len(stores))]])
