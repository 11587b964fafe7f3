"""From the words of `gym.make` to objects: workloads, rewards, evaluators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.backend import home_name
from tirgym.harness.cost import CostModel, SpeedupModel, static_cost_model
from tirgym.harness.evaluator import UNMEASURED, Evaluator
from tirgym.harness.macros import VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.target import Target
from tirgym.harness.transforms import slot_limits
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Kernel, Shape, Workload
from tirgym.rewards.reward import Reward

__all__ = [
    "REWARDS",
    "SHAPE_SETS",
    "EvaluatorSource",
    "KernelLike",
    "WorkloadSampler",
    "load_cost",
    "make_reward",
    "make_vocabulary",
]

KernelLike = str | Kernel | Workload
"""A name, URI or "file.py:NAME", a kernel, or a kernel at one shape."""

REWARDS = ("measured", "final", "static", "model", "replay")
"""Reward names: measured at every step, measured at the end, predicted by formulas, predicted by a
learned model, and read from the store."""

SHAPE_SETS = ("default", "train", "holdout", "tiny")
"""Names that stand for shapes of each kernel; one of several is drawn at each reset."""


class WorkloadSampler:
    """Draws the workload of an episode from given kernels and shapes."""

    def __init__(
        self,
        kernel: KernelLike | Sequence[KernelLike],
        shape: Shape | str | None = None,
        backend: str = "llvm",
    ) -> None:
        """Bare names mean kernels of the suite that `backend` compiles."""
        many = isinstance(kernel, Sequence) and not isinstance(kernel, str)
        kernels = list(kernel) if many else [kernel]  # type: ignore[arg-type]
        if not kernels:
            raise InvalidValueError("kernel", kernel, "a kernel name, or a list of at least one")
        self.choices: list[list[Workload]] = [_workloads(one, shape, backend) for one in kernels]  # type: ignore[arg-type]

    def sample(self, rng: np.random.Generator) -> Workload:
        """A kernel, then one of its shapes, each uniform; draws only where there is a choice."""
        shapes = self.choices[_draw(rng, len(self.choices))]
        return shapes[_draw(rng, len(shapes))]


def _draw(rng: np.random.Generator, n: int) -> int:
    return int(rng.integers(n)) if n > 1 else 0


def _workloads(kernel: KernelLike, shape: Shape | str | None, backend: str) -> list[Workload]:
    from tirgym.kernels_suite.problem import require_reference
    from tirgym.kernels_suite.registry import load_workload

    if isinstance(kernel, str):
        base = load_workload(home_name(kernel, backend))
    elif isinstance(kernel, Kernel | Workload):
        base = Workload.of(kernel) if isinstance(kernel, Kernel) else kernel
        require_reference(base.kernel)
    else:
        raise InvalidValueError("kernel", kernel, "a kernel name, a URI, a Kernel or a Workload")
    if shape is None or shape == "default":
        return [base]
    if isinstance(shape, Mapping):
        return [Workload.of(base.kernel, {**base.shape, **shape})]
    sets: dict[str, Sequence[Shape]] = {
        "train": base.kernel.train,
        "holdout": base.kernel.holdout,
        "tiny": (base.kernel.tiny_shape,),
    }
    if shape not in sets:
        accepted = f"dimensions such as {base.shape}, or one of {', '.join(SHAPE_SETS)}"
        raise InvalidValueError("shape", shape, accepted)
    if not sets[shape]:
        raise InvalidValueError(
            "shape", shape, f"another set: {base.kernel.name} has none of these"
        )
    return [Workload.of(base.kernel, one) for one in sets[shape]]


def make_reward(reward: str | Reward, cost: CostModel | None, backend: str = "llvm") -> Reward:
    """The reward called `reward`, or the object itself; raises UnknownNameError."""
    if not isinstance(reward, str):
        return reward
    if reward in ("measured", "replay"):
        from tirgym.rewards.log_speedup import LogSpeedup

        return LogSpeedup()
    if reward == "final":
        from tirgym.rewards.final_speedup import FinalSpeedup

        return FinalSpeedup()
    if reward == "static":
        return _static_reward(static_cost_model(backend) if cost is None else cost, backend)
    if reward == "model":
        from tirgym.rewards.model_speedup import ModelSpeedup

        return ModelSpeedup(_require_speedups(cost))
    raise UnknownNameError("reward", reward, REWARDS)


def load_cost(cost: CostModel | str | os.PathLike[str] | None, target: Target) -> CostModel | None:
    """A cost model given as itself, as the path of a trained one, or not at all.

    Raises what `PerformanceModel.load` raises for a file that does not hold for `target`.
    """
    if isinstance(cost, str | os.PathLike):
        from tirgym.performance_model.model import PerformanceModel

        return PerformanceModel.load(cost, target)
    return cost


def _require_speedups(cost: CostModel | None) -> SpeedupModel:
    if not callable(getattr(cost, "opinions", None)):
        accepted = 'the path of a model that `tirgym model train` wrote, with reward="model"'
        raise InvalidValueError("cost", cost, accepted)
    return cast(SpeedupModel, cost)


def _static_reward(cost: CostModel, backend: str) -> Reward:
    """TensorIR's rules of legality stand for the meaning of a program; elsewhere it is checked."""
    from tirgym.rewards.checked_static_cost import CheckedStaticCost
    from tirgym.rewards.static_cost import StaticCost

    return (CheckedStaticCost if backend in UNMEASURED else StaticCost)(cost)


def make_vocabulary(
    vocabulary: str | Vocabulary, backend: str, factors: Sequence[int] | None = None
) -> Vocabulary:
    """The action table called `vocabulary`, or the object itself.

    `factors` are the tile sizes of single transforms in a table that is named. Raises
    UnknownNameError, and InvalidValueError for factors that are none or that a given table ignores.
    """
    if isinstance(vocabulary, Vocabulary):
        if factors is not None:
            raise InvalidValueError("factors", factors, "none: the vocabulary is given")
        return vocabulary
    if not isinstance(vocabulary, str):
        accepted = f"a Vocabulary, or one of {', '.join(VOCABULARY_NAMES)}"
        raise InvalidValueError("vocabulary", vocabulary, accepted)
    limits = None
    if factors is not None:
        if not factors or any(type(f) is not int or f < 2 for f in factors):
            raise InvalidValueError("factors", factors, "whole numbers of at least 2")
        limits = slot_limits(backend, factors=tuple(factors))
    return named_vocabulary(vocabulary, backend, limits=limits)


class EvaluatorSource:
    """One evaluator, shared by an environment and its forks, and made when it is first needed.

    `close` ends an evaluator that was made here, never one that was passed in; the next `get`
    makes a new one.
    """

    def __init__(self, given: Evaluator | None, make: Callable[[], Evaluator]) -> None:
        self._given, self._make = given, make
        self._made: Evaluator | None = None

    def get(self) -> Evaluator:
        """The evaluator."""
        if self._given is not None:
            return self._given
        if self._made is None:
            self._made = self._make()
        return self._made

    def close(self) -> None:
        """End the evaluator that was made here, if any."""
        if self._made is not None:
            made, self._made = self._made, None
            made.close()
