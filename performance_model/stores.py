"""`TensorIRViewer`: TensorIR programs as models see them, with a row for each block, that is each store.

What counts follows Ansor's features of innermost statements (Zheng et al., OSDI 2020, appendix B)
and TVM's `PerStoreFeature`: arithmetic, vectorization, unrolling, footprint and reuse at several loop
levels; here taken from the analysis that the static cost has made anyway, so that a program takes a
fraction of a millisecond.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.static_cost import BlockCost, CostParts, StaticCostModel
from tirgym.harness.tensorir.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED
from tirgym.performance_model.view import ProgramView
from tirgym.spaces.graph import encoder_for

__all__ = ["COST_FEATURES", "STORE_FEATURES", "TensorIRViewer"]

LEVELS = (0, 1, 2, 3, 4)
"""Numbers of innermost loops whose footprint is a feature."""
L1_LINES, L2_LINES = 512.0, 16384.0
"""Round cache sizes that footprints are held against: 32 KiB and 1 MiB in lines of 64 bytes."""

STORE_FEATURES: tuple[str, ...] = (
    "log_cycles", "log_executions", "log_cycles_each", "log_lanes", "explicit_vector",
    "log_run_length", "registers", "promoted", "has_init", "predicated",
    "vector_ops", "divisions", "calls", "branches", "index_ops", "loads", "accumulates", "floating",
    "log_parallel", "log_unrolled", "log_vectorized", "serial_loops", "log_innermost",
    *(f"log_lines{level}" for level in LEVELS), "log_lines_all",
    *(f"log_trips{level}" for level in LEVELS[1:]),
    "log_trips_in_l1", "log_lines_in_l1", "log_trips_in_l2", "log_lines_in_l2",
    "unit_reads", "constant_reads", "strided_reads", "write_stride", "buffers",
)  # fmt: skip
"""Names of the columns; `log_x` is the natural logarithm of 1 + x."""

COST_FEATURES: tuple[str, ...] = (
    "log_us", "log_issue", "log_memory", "log_l1_lines", "log_l2_lines", "log_l3_lines", "registers",
)  # fmt: skip
"""Names of the parts of the static cost."""


class TensorIRViewer:
    """A `Viewer`; about 1 ms a program, nearly all of it for static cost and graph."""

    cost_features = COST_FEATURES
    store_features = STORE_FEATURES

    def __init__(self) -> None:
        self._static = StaticCostModel()

    def view(self, program: Program) -> ProgramView:
        """What there is to see of `program`."""
        parts, costs = self._static.analysis(program)
        rows = np.array([_row(cost) for cost in costs]).reshape(-1, len(STORE_FEATURES))
        busiest = np.array([cost.busiest for cost in costs])
        total = busiest.sum()
        shares = busiest / total if total else np.full(len(costs), 1.0 / max(1, len(costs)))
        return ProgramView(_cost(parts), rows, shares, encoder_for(program.dialect).encode(program))


def _cost(parts: CostParts) -> NDArray[np.float64]:
    return np.array(
        [
            math.log(parts.total_us),
            math.log1p(parts.issue_cycles),
            math.log1p(parts.memory_cycles),
            math.log1p(parts.l1_miss_lines),
            math.log1p(parts.l2_miss_lines),
            math.log1p(parts.l3_miss_lines),
            parts.register_vectors,
        ]
    )


def _row(cost: BlockCost) -> list[float]:
    executions = math.prod(shape.extent for shape in cost.loops)
    issue, ops = cost.issue, cost.plan.ops
    row = [
        math.log1p(cost.busiest),
        math.log1p(executions),
        math.log1p(cost.cycles / executions),
        math.log1p(issue.lanes),
        float(issue.explicit),
        math.log1p(issue.run_length),
        issue.registers,
        float(issue.promoted),
        float(cost.plan.has_init),
        float(cost.predicated),
        *map(float, (ops.vector_ops, ops.divisions, ops.calls, ops.branches, ops.index_ops)),
        float(sum(ops.loads.values())),
        float(ops.accumulates),
        float(ops.floating),
    ]
    for kind in (PARALLEL, UNROLLED, VECTORIZED):
        extents = [shape.extent for shape in cost.loops if shape.kind == kind]
        row.append(math.log1p(math.prod(extents)))
    row.append(float(sum(shape.kind == SERIAL for shape in cost.loops)))
    row.append(math.log1p(cost.loops[0].extent) if cost.loops else 0.0)
    return [*row, *_footprint(cost), *_strides(cost)]


def _footprint(cost: BlockCost) -> list[float]:
    """Lines touched inside, and trips of, the innermost loops; and of those that fit each cache."""
    lines = cost.touched.totals[0]
    trips = [1]
    for extent in cost.touched.extents:
        trips.append(trips[-1] * extent)
    last = len(lines) - 1
    row = [math.log1p(lines[min(level, last)]) for level in LEVELS]
    row.append(math.log1p(lines[last]))
    row += [math.log1p(trips[min(level, last)]) for level in LEVELS[1:]]
    for capacity in (L1_LINES, L2_LINES):
        fits = max((level for level in range(last + 1) if lines[level] <= capacity), default=0)
        row += [math.log1p(trips[fits]), math.log1p(lines[fits])]
    return row


def _strides(cost: BlockCost) -> list[float]:
    """How reads and the write move with the innermost loop."""
    inner = cost.loops[0].variable if cost.loops else 0
    moves = [(access.write, abs(access.strides.get(inner, 0.0))) for access in cost.accesses]
    reads = [stride for write, stride in moves if not write]
    writes = [stride for write, stride in moves if write]
    return [
        float(sum(stride == 1.0 for stride in reads)),
        float(sum(stride == 0.0 for stride in reads)),
        float(sum(stride not in (0.0, 1.0) for stride in reads)),
        math.log1p(writes[-1]) if writes else 0.0,
        float(len({access.buffer for access in cost.accesses})),
    ]
