"""The compiler's own choices, measured once: what a policy has to beat.

tirgym optimize matmul --agent static
"""

from __future__ import annotations

from tirgym.harness.agent import Search
from tirgym.harness.decisions import design_space

__all__ = ["StaticAgent"]


class StaticAgent:
    """Answers every open question with the static choice; one trial, whatever the budget."""

    name = "static"
    spaces = ("decision",)

    def run(self, search: Search) -> None:
        """Measure the one program; raises UnknownNameError for a backend without a design space."""
        walk = design_space(search.start).finish()
        search.decided[walk.program.ir_key] = {answer.key: answer.value for answer in walk.answers}
        for _ in search.evaluate_many([walk.program]):
            pass
