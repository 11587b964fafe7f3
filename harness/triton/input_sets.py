"""`InputSets`: fresh secret inputs with all that judges outputs on them, where a trusted program runs."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tirgym.errors import TrustedProgramError
from tirgym.harness.buffers import Poison
from tirgym.harness.gate import Bench, InputSet
from tirgym.harness.judge import Expected, Verdict, judge, judge_with
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    make_inputs,
    reference_of,
    scale_of,
    terms_of,
)

__all__ = ["InputSets"]


class InputSets:
    """Draws inputs of one workload; `trusted` on `bench` gives what its outputs look like.

    The trusted program takes the place of the unscheduled one: its own error widens the tolerance,
    and it must pass its own gate first.
    """

    def __init__(
        self,
        workload: Workload,
        bench: Bench,
        trusted: Callable[..., Any],
        *,
        secret: bytes | None = None,
        seed: int = 0,
    ) -> None:
        """`secret` None draws one."""
        self.workload = workload
        self._bench, self._trusted = bench, trusted
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._seed = seed
        self._terms, self._accumulator = terms_of(workload), accumulator_of(workload)

    def draw(self, regime: Regime, purpose: str) -> InputSet:
        """Inputs, references, scales and the trusted program's outputs; equal purposes give equal
        inputs. Raises TrustedProgramError if the trusted program is wrong on them."""
        parts = (self._seed, self.workload.uri, str(regime), purpose)
        digest = hashlib.sha256(self._secret + repr(parts).encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, np.uint32))
        inputs = make_inputs(self.workload, rng, regime)
        references = reference_of(self.workload, inputs)
        scales: Sequence[Any] = scale_of(self.workload, inputs) or (None,) * len(references)
        self._bench.run(self._trusted, InputSet(regime, inputs, ()), Poison.NAN)
        expected = tuple(
            Expected.of(
                b.tensor.name, reference, b.array.copy(), self._terms, scale, self._accumulator
            )
            for b, reference, scale in zip(self._bench.outputs, references, scales, strict=True)
        )
        return self._sound(InputSet(regime, inputs, expected))

    def _sound(self, made: InputSet) -> InputSet:
        """The trusted program must be right before anything is judged against it."""
        failure = self._bench.damage(made)
        verdicts: list[Verdict] = []
        if not failure:
            own = tuple(e.unscheduled for e in made.expected)
            compare = self.workload.kernel.compare
            verdicts = (
                judge_with(compare, made.inputs, own, made.expected)
                if compare is not None
                else [judge(y, e) for y, e in zip(own, made.expected, strict=True)]
            )
            failure = next((v.failure for v in verdicts if v.failure), "")
        if failure:
            raise self.unsound(f"{made.regime}: {failure}")
        known = zip(made.expected, verdicts, strict=True)
        return replace(made, expected=tuple(replace(e, own=v) for e, v in known))

    def unsound(self, failure: str) -> TrustedProgramError:
        """What is raised where the trusted program is wrong."""
        return TrustedProgramError(
            f"the stock program of {self.workload} fails its own gate: {failure}; "
            "it and its reference disagree"
        )
