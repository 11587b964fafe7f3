"""The recipe of a Triton program as an observation: meta-parameters and passes beside the graph."""

from __future__ import annotations

from functools import cache

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.triton.pass_rules import ARGUMENTS, LEVELS, MAX_PASSES, insertable, stock_runs
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.recipe import Recipe
from tirgym.kernels_suite.triton.sources import all_meta_parameters
from tirgym.spaces.augmented import AugmentedObservation, Part
from tirgym.spaces.observation import Observation

__all__ = ["pass_names", "pass_sequence", "recipe_names", "recipe_vector", "with_recipe"]

_RUNS = 4
"""Runs of a pass that the vector tells apart."""
_NTH = 2
"""Runs of a pass whose arguments are shown."""


@cache
def pass_names() -> tuple[str, ...]:
    """Every pass of the stock pipelines before their tails, and every one that can be inserted."""
    names = [name for level in LEVELS for name in (*stock_runs(level), *insertable(level))]
    return tuple(dict.fromkeys(names))


@cache
def recipe_names() -> tuple[str, ...]:
    """Names of the entries of `recipe_vector`."""
    names = list(all_meta_parameters())
    for level in LEVELS:
        names += [f"{level}.{what}.{name}" for name in pass_names() for what in ("runs", "first")]
    names += [f"{name}.{argument}.{nth}" for name, argument in ARGUMENTS for nth in range(_NTH)]
    return tuple(names)


def recipe_vector(program: Program) -> NDArray[np.float32]:
    """(len(recipe_names()),), float32 in [0, 1].

    Meta-parameters as log2(1 + x) / 16, 0 where the source has none; of each pass how often it runs,
    of 4, and where it runs first, as a share of the longest pipeline; of arguments that may be set the
    value's place among those offered, counted from 1 and divided by their number, 0 for another one.
    """
    recipe = _recipe_of(program)
    values: list[float] = [
        np.log2(1.0 + recipe.values.get(name, 0)) / 16 for name in all_meta_parameters()
    ]
    for level in LEVELS:
        names, longest = recipe.names[level], MAX_PASSES[level]
        for name in pass_names():
            count = names.count(name)
            first = (1 + names.index(name)) / longest if count else 0.0
            values += [min(1.0, count / _RUNS), first]
    for (name, argument), offered in ARGUMENTS.items():
        given = [call.arguments for call in recipe.calls("ttgir") if call.name == name][:_NTH]
        for arguments in [*given, *[()] * (_NTH - len(given))]:
            value = int(arguments[argument]) if argument < len(arguments) else -1
            values.append((1 + offered.index(value)) / len(offered) if value in offered else 0.0)
    return np.array(values, np.float32)


def pass_sequence(program: Program) -> NDArray[np.int32]:
    """(sum of MAX_PASSES,), int32: the passes of "ttir", then of "ttgir", each padded with 0.

    Numbers are 1 + the place in `pass_names()`, and one more than all of these for passes of the tail
    that are in no table.
    """
    recipe = _recipe_of(program)
    number = {name: place for place, name in enumerate(pass_names(), 1)}
    found = np.zeros(sum(MAX_PASSES.values()), np.int32)
    start = 0
    for level in LEVELS:
        numbers = [number.get(name, len(number) + 1) for name in recipe.names[level]]
        found[start : start + len(numbers)] = numbers
        start += MAX_PASSES[level]
    return found


def _recipe_of(program: Program) -> Recipe:
    if not isinstance(program, TritonProgram):
        raise TypeError(f"expected a TritonProgram, got {type(program).__name__}")
    return program.recipe


def with_recipe(inner: Observation) -> AugmentedObservation:
    """`inner` with the recipe as "recipe" and "passes" (`pass_sequence`) beside it.

    Text shows it as comments.
    """
    vector = Box(0.0, 1.0, (len(recipe_names()),), np.float32)
    passes = Box(0, len(pass_names()) + 1, (sum(MAX_PASSES.values()),), np.int32)
    parts: dict[str, Part] = {"recipe": (vector, recipe_vector), "passes": (passes, pass_sequence)}
    return AugmentedObservation(inner, parts)
