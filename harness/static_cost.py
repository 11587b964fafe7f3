"""`StaticCostModel`: predicted time of a TensorIR program from its loops and accesses alone.

Time is the roofline sum of two parts (Williams, Waterman and Patterson, Roofline, CACM 2009): cycles
to issue the instructions (`static_issue`), and cycles to move cache lines (`static_footprint`).
What counts as a feature follows Ansor (Zheng et al., OSDI 2020) and TVM's `PerStoreFeature`; the
weights are fixed constants, not learned ones, so the answer depends on the program and its target
and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tirgym.errors import InvalidValueError
from tirgym.harness.hardware import auto_vector_bits, cpu_of, vector_unit
from tirgym.harness.program import Program
from tirgym.harness.static_block_cost import BlockCost, around_blocks, block_cost
from tirgym.harness.static_footprint import (
    LINE,
    LINES,
    PAGES,
    Cache,
    CallTraffic,
    PartTraffic,
    Prices,
)
from tirgym.harness.static_issue import CoreModel
from tirgym.harness.static_private import buffers_of, own_buffers, private_in_part
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import PARALLEL, LoopNest, NestPart
from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["BlockCost", "CostParts", "MachineModel", "StaticCostModel", "machine_model"]


_FROM_L2 = Prices(2.0, 3.0, 3.5, 3.0)
_FROM_L3 = Prices(9.0, 12.0, 6.0, 6.0)
_FROM_DRAM = Prices(30.0, 50.0, 20.0, 20.0)
_LOOK_UP = Prices(1.2, 4.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class MachineModel:
    """A core, its caches, and what moving a line costs.

    Line prices in cycles, close to the bandwidths of one core of a shared server (see
    `calibration`) and rounded after a fit to measured random schedules.
    """

    core: CoreModel = field(default_factory=CoreModel)
    ghz: float = 3.8
    l1_lines: float = 48 * 1024 / LINE
    l2_lines: float = 1.5 * 1024**2 / LINE
    l3_lines: float = 32 * 1024**2 / LINE
    """what one of several users of a shared cache can count on"""
    tlb_pages: float = 64.0
    """entries of the first-level data TLB, pages of 4 KiB"""
    from_l2: Prices = _FROM_L2
    from_l3: Prices = _FROM_L3
    from_dram: Prices = _FROM_DRAM
    look_up: Prices = _LOOK_UP
    """of a page in the second-level TLB"""
    overlap: float = 0.3
    """share of the smaller part (issue or memory) that the larger does not hide"""
    call_us: float = 0.3
    """of one call of an empty kernel"""
    parallel_us: float = 5.0
    """to wake the threads of one parallel loop"""
    caches: tuple[Cache, Cache, Cache, Cache] = field(init=False, repr=False)
    """L1, L2, L3 and the TLB, as `CallTraffic` takes them"""

    def __post_init__(self) -> None:
        caches = (
            (LINES, self.l1_lines, self.from_l2),
            (LINES, self.l2_lines, self.from_l3),
            (LINES, self.l3_lines, self.from_dram),
            (PAGES, self.tlb_pages, self.look_up),
        )
        object.__setattr__(self, "caches", caches)


@lru_cache(maxsize=32)
def machine_model(target: Target) -> MachineModel:
    """The model for `target`: the vector unit of its mcpu, caches of a plain server core.

    Nothing is asked of this machine, so that a prediction is the same on every machine.
    """
    cpu = cpu_of(target)
    bits, _, registers = vector_unit(cpu)
    core = CoreModel(
        vector_bytes=bits // 8,
        auto_vector_bytes=auto_vector_bits(cpu) // 8,
        registers=registers,
    )
    return MachineModel(core)


@dataclass(frozen=True, slots=True)
class CostParts:
    """What a prediction is made of; cycles of one thread."""

    issue_cycles: float
    memory_cycles: float
    l1_miss_lines: float
    l2_miss_lines: float
    l3_miss_lines: float
    register_vectors: float
    """vector registers with reused values, in the block that holds most"""
    total_us: float


class PartCost:
    """What one part of a nest costs on one target; kept with the part."""

    __slots__ = (
        "blocks",
        "busiest",
        "cycles",
        "launches",
        "loops",
        "own",
        "registers",
        "target",
        "traffic",
    )

    def __init__(self, part: NestPart, own: tuple[int, ...], target: Target) -> None:
        """`own` are the intermediate buffers that no other part accesses."""
        core = machine_model(target).core
        private = private_in_part(part, own)
        self.target, self.own = target, own
        self.blocks = tuple(
            [
                block_cost(
                    place,
                    around,
                    tuple([(b, private[b]) for b in buffers_of(place) if b in private]),
                    core,
                    target,
                )
                for place, around in zip(part.blocks, around_blocks(part), strict=True)
            ]
        )
        self.cycles = sum([cost.cycles for cost in self.blocks])
        self.busiest = sum([cost.busiest for cost in self.blocks])
        self.registers = max([cost.registers for cost in self.blocks], default=0.0)
        self.loops = len(part.extents)
        self.launches = part.shape.kinds.count(PARALLEL)
        self.traffic = PartTraffic(part, tuple([cost.touched for cost in self.blocks]))


def part_costs(nest: LoopNest, target: Target) -> list[PartCost]:
    """The costs of the parts of a nest, in order."""
    found = []
    for entry, own in zip(nest.parts, own_buffers(nest), strict=True):
        cost = entry.part.cost
        if cost is None or cost.own != own or not (cost.target is target or cost.target == target):
            cost = entry.part.cost = PartCost(entry.part, own, target)
        found.append(cost)
    return found


class StaticCostModel:
    """Deterministic analytic cost; a `CostModel`. About 0.1 ms a program that shares parts with
    programs seen before.

    Raises InvalidValueError for a program in another dialect than TensorIR.
    """

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""
        return self.parts(program).total_us

    def parts(self, program: Program) -> CostParts:
        """The prediction with what it is made of."""
        return self.analysis(program)[0]

    def analysis(self, program: Program) -> tuple[CostParts, list[BlockCost]]:
        """The prediction with what it is made of, and each block's part in order."""
        if not isinstance(program, TensorIRProgram):
            raise InvalidValueError("dialect of the static cost model", program.dialect, "tensorir")
        model = machine_model(program.target)
        costs = part_costs(program.nest, program.target)
        serial = sum([cost.cycles for cost in costs])
        issue = sum([cost.busiest for cost in costs])
        order = [cost for cost in costs if cost.loops] + [cost for cost in costs if not cost.loops]
        traffic = CallTraffic([cost.traffic for cost in order])
        l1_cache, l2_cache, l3_cache, tlb = model.caches
        l1, from_l2 = traffic.of(l1_cache)
        l2, from_l3 = l3, from_dram = 0.0, 0.0
        if l1:
            l2, from_l3 = traffic.of(l2_cache)
        if l2:
            l3, from_dram = traffic.of(l3_cache)
        _, look_ups = traffic.of(tlb)
        memory = from_l2 + from_l3 + from_dram + look_ups
        memory *= issue / serial if serial else 1.0
        cycles = max(issue, memory) + model.overlap * min(issue, memory)
        launches = sum([cost.launches for cost in costs])
        total = cycles / (model.ghz * 1e3) + model.call_us + launches * model.parallel_us
        held = max([cost.registers for cost in costs], default=0.0)
        blocks = [block for cost in costs for block in cost.blocks]
        return CostParts(issue, memory, l1, l2, l3, held, total), blocks
