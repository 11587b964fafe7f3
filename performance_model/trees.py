"""`TreeLearner`: gradient-boosted trees on the features of a program (Chen and Guestrin, XGBoost,
KDD 2016), as TVM's and Ansor's cost models use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from tirgym.performance_model.features import row
from tirgym.performance_model.learner import Examples
from tirgym.performance_model.view import ProgramView

__all__ = ["Args", "TreeLearner", "TreeMember"]

_FILE = "trees.ubj"


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the trees.

    The defaults were chosen on families that the models in question had not learned from. Which ones was
    not recorded, and what judges models here (`report.held_out`) takes the val and the test families
    together: count both as used.
    """

    rounds: int = 100
    depth: int = 6
    learning_rate: float = 0.1
    rows: float = 0.7
    """share of the programs that each tree sees"""
    columns: float = 0.5
    """share of the features that each tree sees"""
    leaf_weight: float = 4.0
    """programs in a leaf at least"""
    shrinkage: float = 10.0
    """L2 penalty on the leaves"""


class TreeMember:
    """One boosted ensemble; a `Member`."""

    def __init__(self, booster: xgboost.Booster) -> None:
        booster.set_param({"nthread": 1})
        self._booster = booster

    def predict(self, programs: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
        """(len(programs),)."""
        if not programs:
            return np.zeros(0)
        made = self._booster.inplace_predict(np.stack(programs))
        return np.asarray(made, dtype=np.float64)

    def files(self) -> dict[str, bytes]:
        """XGBoost's own UBJSON."""
        return {_FILE: bytes(self._booster.save_raw("ubj"))}


class TreeLearner:
    """A `Learner`. One thread: the sums of several would depend on how many there are."""

    def __init__(self, args: Args | None = None) -> None:
        self.args = args or Args()

    def encode(self, view: ProgramView, start: ProgramView) -> NDArray[np.float32]:
        """`features.row`."""
        return row(view, start)

    def fit(self, examples: Examples, seed: int) -> TreeMember:
        """Trees fitted to the squared error; what they say of a start is taken off when asked."""
        args = self.args
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_bin": 64,
            "max_depth": args.depth,
            "eta": args.learning_rate,
            "subsample": args.rows,
            "colsample_bytree": args.columns,
            "min_child_weight": args.leaf_weight,
            "reg_lambda": args.shrinkage,
            "nthread": 1,
            "seed": seed,
            "verbosity": 0,
        }
        table = xgboost.DMatrix(np.stack(examples.programs), examples.targets, nthread=1)
        return TreeMember(xgboost.train(parameters, table, args.rounds))

    def load(self, files: Mapping[str, bytes]) -> TreeMember:
        """The member of `files`; raises ValueError for damaged ones."""
        if _FILE not in files:
            raise ValueError(f"no {_FILE}")
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(files[_FILE]))
        except xgboost.core.XGBoostError as error:
            raise ValueError(str(error).splitlines()[0]) from None
        return TreeMember(booster)
