"""`CpuSpace`: the open choices of TensorIR on `llvm`.

The sketches follow MetaSchedule's rules for CPUs (auto-inline, rfactor, multi-level tiling SSRSRS
with write cache, compute locations, parallel, vectorize, unroll; Shao et al., "Tensor Program
Optimization with Probabilistic Programs", NeurIPS 2022), but they are made of tirgym's own
transforms, one at a time, and not by translating the traces of TVM's generator. So every state on
the way passes the same legality rules as any other program, what is finished replays and is stored
like any other trace, and the reduction is decomposed under our rules: TVM's own postprocessor
RewriteReductionBlock hoists initialisations out of recomputing loops and miscompiles attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.harness.decisions.calls import Calls
from tirgym.harness.decisions.lanes import Lanes
from tirgym.harness.decisions.marks import Marks
from tirgym.harness.decisions.nests import loop_tree, tensorir
from tirgym.harness.decisions.stages import Inline, Locate, Partial
from tirgym.harness.decisions.transposes import Transpose
from tirgym.harness.decisions.walk import Next, Question, Task
from tirgym.harness.hardware import cpu_facts
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import NodeRef

__all__ = ["CpuSpace"]


class CpuSpace:
    """Design space of TensorIR programs on CPUs; `powers` offers powers of two alone as factors."""

    def __init__(self, powers: bool = False) -> None:
        self.powers = powers

    def tasks(self, program: Program) -> tuple[Task, ...]:
        """Inline and split reductions first, then structure the blocks, then mark loops."""
        state = tensorir(program)
        names = [block.facts.name for block in state.nest.blocks]
        names = [name for name in names if names.count(name) == 1]
        lanes = max(1, cpu_facts(program.target).vector_bytes // 4)
        tasks: list[Task] = [Inline(name) for name in names]
        tasks += [Calls(name) for name in names]
        tasks += [Partial(name, lanes) for name in names]
        tasks.append(_Structure(lanes, self.powers))
        tasks.append(Marks(lanes, program.target.num_threads))
        return tuple(tasks)

    def snippet(self, program: Program, node: NodeRef) -> str:
        """The loops and blocks around `node`."""
        return loop_tree(tensorir(program), node)


@dataclass(frozen=True, slots=True)
class _Structure:
    """Opens the questions about each block that there is by now, consumers before producers."""

    lanes: int
    powers: bool

    def ask(self, program: Program) -> Question | None:
        """Nothing."""
        return None

    def take(self, program: Program, value: int | None) -> Next:
        """Location and sketch of each block."""
        blocks = [block.facts.name for block in tensorir(program).nest.blocks]
        tasks: list[Task] = []
        for name in reversed(blocks):
            if blocks.count(name) == 1:
                tasks += [
                    Locate(name),
                    Transpose(name, self.lanes, self.powers),
                    Lanes(name, self.lanes, self.powers),
                ]
        return Next(program, tuple(tasks))
