"""`KeyedStates`: the IR key and static cost of every state on the way to the visited ones.

Records hold transforms; keys of the states between them come from a replay, about 0.4 ms a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import cast

from tirgym.errors import TirgymError
from tirgym.harness.backend import backend
from tirgym.harness.cost import CostModel
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Workload

__all__ = ["COSTS", "KeyedStates", "Steps", "default_cost"]

Steps = tuple[str, ...]
"""Transforms as text, from the unscheduled program on."""

COSTS: dict[str, str] = {"tensorir": "tirgym.harness.static_cost:StaticCostModel"}
"""IR dialect → "module:Class" of its static cost model; others have none."""


def default_cost(dialect: str) -> CostModel | None:
    """The static cost model of an IR dialect, None if it has none."""
    if dialect not in COSTS:
        return None
    module, _, name = COSTS[dialect].partition(":")
    return cast(CostModel, getattr(import_module(module), name)())


class KeyedStates:
    """The states of one workload and target that lie on the given ways."""

    def __init__(self, workload: Workload, target: Target, cost: CostModel | None = None) -> None:
        """Raises UnknownNameError or BackendUnavailableError for a backend that is not here."""
        self.start = backend(target.backend).start(workload, target)
        self._cost = default_cost(self.start.dialect) if cost is None else cost
        self.keys: dict[Steps, str] = {}
        """IR key by transforms; every beginning of a way that was replayed"""
        self.costs: dict[str, float] = {}
        """static cost in µs by IR key"""
        self.failures: dict[Steps, str] = {}
        """why a way could not be replayed"""
        self.keys[()] = self.note(self.start)

    def replay(self, ways: Iterable[Steps], advance: Callable[[], None] = lambda: None) -> None:
        """Take in `ways` and all that lies on them; `advance` is called after each way.

        In sorted order neighbours share their beginning, so that no state is made twice and only
        the programs of one way are held at a time.
        """
        line: list[Program] = [self.start]
        walked: Sequence[str] = ()
        for way in sorted(set(ways)):
            shared = _shared(walked, way)
            del line[shared + 1 :]
            walked = way[:shared]
            try:
                for at in range(shared, len(way)):
                    program = line[-1].apply(parse_transform(way[at]))
                    line.append(program)
                    walked = way[: at + 1]
                    self.keys[walked] = self.note(program)
            except TirgymError as error:
                self.failures[way] = str(error)
            advance()

    def note(self, program: Program) -> str:
        """The IR key of `program`, whose static cost is kept."""
        key = program.ir_key
        if self._cost is not None and key not in self.costs:
            self.costs[key] = self._cost.predict_us(program)
        return key


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many first items are equal."""
    number = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        number += 1
    return number
