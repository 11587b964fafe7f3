"""`SetMeta`: another value for a meta-parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.recipe import Recipe, follows
from tirgym.harness.triton.transforms.base import Refusal, TritonTransform
from tirgym.kernels_suite.triton.sources import all_meta_parameters

__all__ = ["MAX_GRID", "MAX_THREADS", "SetMeta"]

MAX_THREADS = 1024
"""threads of a block (CUDA C++ Programming Guide, technical specifications by compute capability; HIP:
work-items of a work-group)"""
MAX_GRID = (2**31 - 1, 65535, 65535)
"""blocks of a grid in x, y and z (the same table)"""


@dataclass(frozen=True, slots=True)
class SetMeta(TritonTransform):
    """Set a block size, a group size, num_warps or num_stages.

        matmul, BLOCK_M=128, num_warps=4     →     matmul, BLOCK_M=64, num_warps=4

    With num_warps and num_stages the passes change that have them as arguments, unless they were
    given others. Refused for a parameter or value that the source has not, the value that it has, and
    more threads or programs than a GPU can launch.
    """

    parameter: str
    value: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[SetMeta]:
        """Every value of every parameter of every source."""
        for parameter, values in all_meta_parameters().items():
            for value in values:
                yield cls(parameter, value)

    def check(self, recipe: Recipe) -> None:
        """See the class; as long as `applied_to`."""
        self.applied_to(recipe)

    def applied_to(self, recipe: Recipe) -> Recipe:
        """See the class."""
        known = {parameter.name: parameter.values for parameter in recipe.source.parameters}
        if self.parameter not in known:
            accepted = ", ".join(known)
            raise Refusal("parameter", f"{recipe.source.name} has {accepted}")
        if self.value not in known[self.parameter]:
            accepted = ", ".join(map(str, known[self.parameter]))
            raise Refusal("value", f"{self.parameter} is one of {accepted}")
        if recipe.values[self.parameter] == self.value:
            raise Refusal("nothing", f"{self.parameter} is {self.value} already")
        config = tuple(
            (name, self.value if name == self.parameter else value) for name, value in recipe.config
        )
        made = replace(recipe, config=config)
        self._require_launchable(made)
        return replace(made, pipeline=self._pipeline(recipe, made))

    def _require_launchable(self, recipe: Recipe) -> None:
        warps = recipe.values["num_warps"]
        threads = warps * recipe.gpu.warp_size
        if warps & (warps - 1) or threads > MAX_THREADS:
            limit = f"a block has at most {MAX_THREADS} threads in a power of two of warps"
            raise Refusal("threads", f"{limit}, not {threads}")
        x, y, z = (*recipe.source.grid(recipe.workload.shape, recipe.values), 1, 1)[:3]
        for axis, size, limit_size in zip("xyz", (x, y, z), MAX_GRID, strict=True):
            if size > limit_size:
                reason = f"a grid has at most {limit_size} programs in {axis}, not {size}"
                raise Refusal("grid", reason)

    def _pipeline(self, before: Recipe, after: Recipe) -> Pipeline:
        if self.parameter not in ("num_warps", "num_stages"):
            return before.pipeline
        made = follows(before.pipeline, before.stock, after.stock)
        if made is None:
            reason = (
                f"the stock pipeline has other passes with {self.parameter}={self.value}; "
                "set it before passes are changed"
            )
            raise Refusal("passes", reason)
        return made
