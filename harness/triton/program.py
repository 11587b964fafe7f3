"""`TritonProgram`: a kernel's Triton source with one configuration and one pass pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import IllegalTransformError
from tirgym.harness.target import Target
from tirgym.harness.transforms.base import Transform
from tirgym.harness.triton.compiling import cache_key
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.request import CompileRequest
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.triton.source import Config

__all__ = ["TritonProgram"]


@dataclass(frozen=True)
class TritonProgram:
    """One candidate. Transforms of loops do not apply: it is changed by `with_config` and
    `with_pipeline`."""

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
        """With other meta-parameters; raises InvalidValueError or UnknownNameError."""
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
    def request(self) -> CompileRequest:
        """What the compiler is asked for, down to the binary."""
        return CompileRequest.of(
            self.workload, self.target.arch, dict(self.config), pipeline=self.pipeline
        )

    @cached_property
    def ir_key(self) -> str:
        """16 hex digits of everything that the compiler is given."""
        return cache_key(self.request)[:16]

    def why_illegal(self, transform: Transform) -> IllegalTransformError:
        """Always: there are no loops to transform."""
        reason = "a Triton program is changed by meta-parameters and passes"
        return IllegalTransformError(str(transform), "dialect", reason)

    def apply(self, transform: Transform) -> Any:
        """Raises IllegalTransformError."""
        raise self.why_illegal(transform)

    def legal_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Nothing is legal."""
        return np.zeros(len(vocabulary), np.bool_)

    def text(self) -> str:
        """The Python source, with the configuration as comments."""
        source = self.request.source
        launch = self.request.launch
        chosen = ", ".join(
            f"{name}={value}" for name, value in source.config(self.config_dict).items()
        )
        types = ", ".join(f"{a.name}: {a.type}{_known(a)}" for a in launch.arguments)
        head = (
            f"# {self.workload} for {self.target.arch}: {chosen}; grid {launch.grid}\n# {types}\n"
        )
        return f"{head}{source.text}"

    @property
    def config_dict(self) -> dict[str, int]:
        """`config` as a dictionary."""
        return dict(self.config)


def _known(argument: Any) -> str:
    """What is compiled in of an argument."""
    if argument.type == "constexpr":
        return f" = {argument.value}"
    return " % 16" if argument.divisible else ""
