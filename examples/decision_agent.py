"""An agent that a compiler asks: tirgym serve --agent examples.decision_agent:Cheapest"""

from tirgym.harness.decisions import DecisionPoint, Recommendation


class Cheapest:
    """Takes the option of lowest static cost, if it is cheaper than the static choice by a margin."""

    def __init__(self, margin: float = 1.05) -> None:  # --option margin=1.2
        self.margin = margin

    def decide(self, point: DecisionPoint) -> Recommendation:
        costs = [option.cost_us for option in point.options]
        if None in costs:  # who asks shows no costs
            return Recommendation(point.default, confidence=0.0)
        best = min(range(len(costs)), key=costs.__getitem__)
        gain = costs[point.default] / costs[best]
        if gain < self.margin:
            return Recommendation(point.default, 1.0, 1.0, "nothing is much cheaper")
        return Recommendation(best, 1.0 - 1.0 / gain, gain, f"{gain:.2f}x cheaper at once")
