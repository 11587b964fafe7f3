"""Vocabulary rules: what tirgym refuses beyond what the compiler refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirgym.harness.tensorir.nest import VECTORIZED
from tirgym.harness.transforms.base import Transform

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["first_refusal"]


def first_refusal(program: TensorIRProgram, transform: Transform) -> tuple[str, str, str] | None:
    """Rule, reason and location of the first rule that refuses `transform`; None if none does."""
    nest = program.nest
    kind = transform.name
    loop, block = getattr(transform, "loop", None), getattr(transform, "block", None)
    if loop is not None and not 0 <= loop < len(nest.loops):
        return "exists", f"the program has {len(nest.loops)} loops", f"loop {loop}"
    if block is not None and not 0 <= block < len(nest.blocks):
        return "exists", f"the program has {len(nest.blocks)} blocks", f"block {block}"
    if loop is not None:
        this = nest.loops[loop]
        if any(nest.loops[i].kind == VECTORIZED for i in this.chain):
            return "frozen", "a vectorized loop is never changed", f"loop {loop}"
        if kind == "Split":
            factor = transform.factor  # type: ignore[attr-defined]
            if this.extent % factor or this.extent <= factor:
                return "divides", f"{factor} does not divide {this.extent}", f"loop {loop}"
        if kind in ("Reorder", "Fuse") and this.body != "loop":
            return "perfect nest", "the body is not exactly one loop", f"loop {loop}"
        if kind in ("Reorder", "Fuse") and nest.loops[loop + 1].kind == VECTORIZED:
            return "frozen", "a vectorized loop is never changed", f"loop {loop}"
        if kind == "Vectorize" and this.body != "block":
            return "vector body", "the body is not exactly one block", f"loop {loop}"
        if kind == "Vectorize" and this.extent > 64:
            return "vector extent", "the extent is over 64", f"loop {loop}"
        if kind == "Unroll" and this.extent > 16:
            return "unroll extent", "the extent is over 16", f"loop {loop}"
        if kind == "Parallel" and (program.target.num_threads < 2 or this.parent >= 0):
            return "threads", "parallel needs threads, on an outermost loop", f"loop {loop}"
        if kind == "DecomposeReduction" and not any(
            nest.blocks[b].facts.has_init for b in this.blocks
        ):
            return "reduction below", "no reduction block lies below", f"loop {loop}"
    if kind == "CacheRead" and transform.read >= len(nest.blocks[block].facts.reads):  # type: ignore
        return "exists", "no such read region", f"block {block}"
    return None
