"""`TritonProgram`: a kernel's Triton source with one configuration and one pass pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import IllegalTransformError
from tirgym.harness.target import Target
from tirgym.harness.transforms.base import Transform
from tirgym.harness.triton.compiling import request_key
from tirgym.harness.triton.pass_rules import LEVELS
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.request import CompileRequest
from tirgym.harness.triton.transforms.base import Refusal, TritonTransform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.triton.source import Config

__all__ = ["TritonProgram", "legal_actions"]


@dataclass(frozen=True)
class TritonProgram:
    """One candidate. Its transforms are `tirgym.harness.triton.transforms`; `with_config` and
    `with_pipeline` change it outside of any action table, and leave no step."""

    workload: Workload
    target: Target
    config: tuple[tuple[str, int], ...] = ()
    """meta-parameters that differ from the source's defaults, sorted"""
    pipeline: Pipeline | None = None
    """None is the stock pipeline"""
    steps: tuple[Transform, ...] = ()
    dialect: str = "triton"

    @classmethod
    def start(cls, workload: Workload, target: Target) -> TritonProgram:
        """The source with its defaults; raises InvalidValueError for a kernel without a source."""
        program = cls(workload, target)
        program.request.require_valid()
        return program

    def with_config(self, config: Config) -> TritonProgram:
        """With other meta-parameters; raises InvalidValueError or UnknownNameError.

        A pipeline that was given stays as it is, whatever num_warps and num_stages say.
        """
        chosen = tuple(sorted({**dict(self.config), **config}.items()))
        return self._checked(TritonProgram(self.workload, self.target, chosen, self.pipeline))

    def with_pipeline(self, pipeline: Pipeline | None) -> TritonProgram:
        """With another pass pipeline; raises UnknownNameError for passes that are not there."""
        return self._checked(TritonProgram(self.workload, self.target, self.config, pipeline))

    @staticmethod
    def _checked(program: TritonProgram) -> TritonProgram:
        program.request.require_valid()
        return program

    @cached_property
    def recipe(self) -> Recipe:
        """What transforms change: every meta-parameter and every pass."""
        request = self.request
        values = request.source.config(dict(self.config))
        return Recipe(
            self.workload, request.gpu, request.source, tuple(values.items()), request.passes
        )

    @cached_property
    def request(self) -> CompileRequest:
        """What the compiler is asked for, down to the binary."""
        return CompileRequest.of(
            self.workload, self.target.arch, dict(self.config), pipeline=self.pipeline
        )

    @cached_property
    def ir_key(self) -> str:
        """16 hex digits of everything that the compiler is given."""
        return request_key(self.request)[:16]

    def apply(self, transform: Transform) -> TritonProgram:
        """The program after `transform`; raises IllegalTransformError.

        Nothing is compiled: what the compiler refuses shows when the program is asked for its code.
        """
        if not isinstance(transform, TritonTransform):
            reason = "a Triton program is changed by meta-parameters and passes"
            raise IllegalTransformError(str(transform), "dialect", reason)
        try:
            recipe = transform.applied_to(self.recipe)
        except Refusal as refused:
            rule, reason, location = refused.rule, refused.reason, refused.location
            raise IllegalTransformError(str(transform), rule, reason, location) from None
        defaults = recipe.source.default_config
        config = tuple(sorted(item for item in recipe.config if defaults[item[0]] != item[1]))
        pipeline = None if recipe.pipeline == recipe.stock else recipe.pipeline
        made = TritonProgram(self.workload, self.target, config, pipeline, (*self.steps, transform))
        made.__dict__["recipe"] = recipe
        return made

    def why_illegal(self, transform: Transform) -> IllegalTransformError | None:
        """None when legal, else the error that `apply` would raise."""
        try:
            self.apply(transform)
        except IllegalTransformError as error:
            return error
        return None

    def legal_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Shape (len(vocabulary),), bool, read-only: what `apply` accepts."""
        return legal_actions(vocabulary, self.recipe)

    def text(self) -> str:
        """The Python source, with the configuration and an edited pipeline as comments."""
        source = self.request.source
        launch = self.request.launch
        chosen = ", ".join(
            f"{name}={value}" for name, value in source.config(self.config_dict).items()
        )
        types = ", ".join(f"{a.name}: {a.type}{_known(a)}" for a in launch.arguments)
        head = (
            f"# {self.workload} for {self.target.arch}: {chosen}; grid {launch.grid}\n# {types}\n"
        )
        return f"{head}{source.text}{self._passes_text()}"

    def _passes_text(self) -> str:
        """The pipeline as comments, one pass a line; "" for the stock one."""
        if self.pipeline is None:
            return ""
        lines = [
            line
            for level in LEVELS
            for line in (
                f"# passes of {level}:",
                *(f"#   {call}" for call in self.recipe.calls(level)),
            )
        ]
        return "\n".join(["", *lines, ""])

    @property
    def config_dict(self) -> dict[str, int]:
        """`config` as a dictionary."""
        return dict(self.config)


@lru_cache(maxsize=1024)
def legal_actions(vocabulary: Vocabulary, recipe: Recipe) -> NDArray[np.bool_]:
    """Shape (len(vocabulary),), bool, read-only: what may be applied to programs of `recipe`."""
    found = np.zeros(len(vocabulary), np.bool_)
    for action, transform in enumerate(vocabulary):
        if isinstance(transform, TritonTransform):
            try:
                transform.check(recipe)
            except Refusal:
                continue
            found[action] = True
    found.flags.writeable = False
    return found


def _known(argument: Any) -> str:
    """What is compiled in of an argument."""
    if argument.type == "constexpr":
        return f" = {argument.value}"
    return " % 16" if argument.divisible else ""
