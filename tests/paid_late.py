"""The static reward, paid with the last step alone."""

from __future__ import annotations

from tirgym.harness.static_cost import StaticCostModel
from tirgym.rewards.static_cost import StaticCost

__all__ = ["PaidLate"]


class PaidLate(StaticCost):
    """Made without arguments, as trainings make rewards."""

    def __init__(self) -> None:
        super().__init__(StaticCostModel(), every_step=False)
