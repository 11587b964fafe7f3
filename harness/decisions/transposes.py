"""`Transpose`: whether a copy across memory is transposed in vector registers, square by square."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore

from tirgym.harness.decisions.nests import attempt, find, own_loops, tensorir
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.stages import Sketch
from tirgym.harness.decisions.tiling import in_order
from tirgym.harness.decisions.walk import Next, Question
from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import Access, Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.split import Split
from tirgym.harness.transforms.tensorize import Tensorize

__all__ = ["Transpose"]

SQUARES = (16, 8)
"""Elements on a side, the static choice first."""


@dataclass(frozen=True, slots=True)
class Transpose:
    """Copy squares through vector registers, so that whole rows are read and whole rows are written.

    Asked where a copy reads down the columns of what it writes along the rows. The static choice is
    the largest square that divides both and that the target has vectors for.
    """

    block: str
    lanes: int
    powers: bool = False

    def ask(self, program: Program) -> Question | None:
        """Which squares."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or self._loops(state, block) is None:
            return None
        found = [size for size in SQUARES if self._made(state, block, size) is not None]
        if not found:
            return None
        squares = [Option(f"{size}x{size} in vector registers", size) for size in found]
        return Question(
            f"{self.block}.transpose",
            DecisionKind.SKETCH,
            f"{self.block}: reads columns and writes rows; one by one, or squares at a time?",
            (Option("element by element", 0), *squares),
            1,
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Make the squares, and ask for the order in which they are copied."""
        state = tensorir(program)
        block = find(state, self.block)
        made = self._made(state, block, value) if block is not None and value else None
        if made is None or block is None:
            return Next(state)
        name = made.nest.blocks[block.index].facts.name
        return Next(made, (Sketch(name, self.lanes, self.powers),))

    def _loops(self, program: TensorIRProgram, block: Block) -> tuple[int, int] | None:
        """The loops along the rows of what is read and of what is written; None for other blocks."""
        body = block.facts.node.body
        if type(body) is not BufferStore or type(body.value) is not TensorLoad:
            return None
        own = own_loops(program.nest, block)
        read, written = (
            self._along_rows(program, block, access, own)
            for access in (block.facts.reads[0], block.facts.writes[0])
        )
        return None if read is None or written is None or read == written else (read, written)

    def _along_rows(
        self, program: TensorIRProgram, block: Block, access: Access, own: tuple[int, ...]
    ) -> int | None:
        """The one loop of `own` that moves an access to the next element."""
        found = []
        for i in own:
            var = program.nest.loops[i].var
            stride = 0.0
            for handle, binding in zip(block.facts.iter_handles, block.bindings, strict=True):
                stride += access.strides.get(handle, 0.0) * binding.coefficients.get(var, 0.0)
            if stride == 1.0:
                found.append(i)
        return found[0] if len(found) == 1 else None

    def _made(self, program: TensorIRProgram, block: Block, size: int) -> TensorIRProgram | None:
        """The program that copies squares of `size`; None if that is illegal."""
        loops = self._loops(program, block)
        if loops is None:
            return None
        own = own_loops(program.nest, block)
        state: TensorIRProgram | None = program
        labels: list[tuple[int, int]] = []
        for i in own:
            inner = (1, loops.index(i)) if i in loops else None
            whole = inner is not None and program.nest.loops[i].extent == size
            if inner is None or not whole:
                labels.append((0, i))
            if inner is not None:
                if not whole:
                    state = attempt(state, Split(own[0] + len(labels) - 1, size)) if state else None
                labels.append(inner)
        if state is None:
            return None
        state = in_order(state, own[0], labels)
        if labels != sorted(labels):
            return None
        square = own[0] + len(labels) - 2
        return attempt(state, Tensorize(square, f"transpose_{size}x{size}"))
