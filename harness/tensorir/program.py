"""`TensorIRProgram`: an immutable TensorIR schedule state."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm.s_tir import SBlockRealize, Schedule

from tirgym.errors import IllegalTransformError
from tirgym.harness.macros.base import Macro
from tirgym.harness.macros.draft import play
from tirgym.harness.target import Target
from tirgym.harness.tensorir import legality
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.nest import LoopNest, read_nest
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import build_of

__all__ = ["TensorIRProgram"]


class TensorIRProgram:
    """A TensorIR schedule that is never mutated: `apply` works on a copy (about 10 µs)."""

    dialect = "tensorir"

    def __init__(
        self,
        workload: Workload,
        target: Target,
        steps: tuple[Transform, ...],
        schedule: Schedule,
        before: LoopNest | None = None,
    ) -> None:
        """`before` is the nest of a program that this one was made from, as far as it is known."""
        self.workload, self.target, self.steps = workload, target, steps
        self._schedule, self._before = schedule, before
        self.masks: dict[int, tuple[Vocabulary, NDArray[np.bool_]]] = {}
        """those made so far, by identity of the vocabulary"""

    @classmethod
    def start(cls, workload: Workload, target: Target) -> TensorIRProgram:
        """The unscheduled program of `workload`."""
        func = build_of(workload).with_attr("global_symbol", "main")
        # TVM changes blocks in place unless they have two owners. The cached function owns the root
        # only through its realize, which TVM does not count: a realize of our own is a second owner.
        root = func.body
        func = func.with_body(SBlockRealize(root.iter_values, root.predicate, root.block))
        return cls(workload, target, (), new_schedule(tvm.IRModule({"main": func})))

    @property
    def mod(self) -> Any:
        """The IRModule, with one function "main"."""
        return self._schedule.mod

    @property
    def schedule(self) -> Schedule:
        """A private copy of the TVM schedule; the caller may do with it what it likes."""
        return self._schedule.copy()

    @cached_property
    def nest(self) -> LoopNest:
        """Loops, blocks and accesses."""
        before, self._before = self._before, None
        return read_nest(self.mod, before)

    @cached_property
    def facts(self) -> Facts:
        """What rules ask of the nest."""
        return Facts(self._schedule, self.nest, self.target)

    @cached_property
    def ir_key(self) -> str:
        """Structural hash of the module, 16 hex digits; blind to names."""
        return f"{tvm_ffi.structural_hash(self.mod) & (2**64 - 1):016x}"

    def text(self) -> str:
        """TVMScript."""
        return self.mod.script()  # type: ignore[no-any-return]

    def apply(self, transform: Transform) -> TensorIRProgram:
        """The program after `transform`; raises IllegalTransformError with rule and location.

        A macro leaves its transforms in `steps`, not itself.
        """
        if isinstance(transform, Macro):
            return play(transform, self)
        schedule = legality.apply(self, transform)
        before = self.__dict__.get("nest", self._before)
        steps = (*self.steps, transform)
        return TensorIRProgram(self.workload, self.target, steps, schedule, before)

    def why_illegal(self, transform: Transform) -> IllegalTransformError | None:
        """None when legal, else the error that `apply` would raise."""
        try:
            if isinstance(transform, Macro):
                play(transform, self)
            else:
                legality.apply(self, transform)
        except IllegalTransformError as error:
            return error
        return None

    def is_legal(self, transform: Transform) -> bool:
        """Whether `why_illegal` answers None; faster, since most answers need no trial."""
        if transform.dialect != self.dialect:
            return False
        if isinstance(transform, Macro):
            return self.why_illegal(transform) is None
        return legality.is_legal(self, transform)

    def legal_mask(self, vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Shape (len(vocabulary),), bool, read-only."""
        found = self.masks.get(id(vocabulary))
        if found is None and vocabulary.dialect not in (self.dialect, ""):
            found = self.masks[id(vocabulary)] = vocabulary, np.zeros(len(vocabulary), np.bool_)
        if found is None:
            found = self.masks[id(vocabulary)] = vocabulary, legality.mask(self, vocabulary)
        return found[1]
