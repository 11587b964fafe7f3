"""`small_workload`: a kernel at sizes that the executor can afford, under which the same code is right.

Triton compiles in what it knows of arguments: multiples of 16, ones, constants that follow from the
shape. Sizes that agree in all of that are launched with the very same code, so the code of a large
workload is checked on a small one: at least two tiles along every axis of the grid, the last of them
not full, and enough turns of every loop to fill and drain its software pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tirgym.harness.triton.pass_rules import max_num_stages
from tirgym.harness.triton.recipe import Recipe
from tirgym.kernels_suite.kernel import Workload

__all__ = ["small_workload"]

_TILES = 2
_EVERY = 64
"""Sizes up to here are all tried; beyond, those that keep the remainder by 16."""


def small_workload(recipe: Recipe) -> Workload:
    """The workload of `recipe` with every dimension as small as that allows; itself at worst."""
    workload = recipe.workload
    shape = workload.shape
    for name in shape:
        for size in _candidates(shape[name]):
            smaller = {**shape, name: size}
            same = specialisation(recipe, smaller) == specialisation(recipe, shape)
            if same and size >= _wanted(recipe, shape, name):
                shape = smaller
                break
    return Workload.of(workload.kernel, shape)


def specialisation(recipe: Recipe, shape: Mapping[str, int]) -> tuple[object, ...]:
    """Equal for shapes whose launches run the same code."""
    source = recipe.source
    constants, numbers = source.constants(shape), {**shape, **source.scalars(shape)}
    known: list[object] = [tuple(sorted(constants.items()))]
    for name in source.function.arg_names:
        value = numbers.get(name)
        if isinstance(value, int):
            known.append(1 if value == 1 else (value % 16 == 0, value >= 2**31))
    return tuple(known)


def _candidates(size: int) -> Iterator[int]:
    """Sizes below `size`, ascending."""
    yield from range(1, min(size, _EVERY + 1))
    remainder = size % 16
    yield from range(_EVERY + remainder, size, 16)


def _wanted(recipe: Recipe, shape: Mapping[str, int], name: str) -> int:
    """Least size of a dimension; more than it has where it should not be made smaller."""
    tiles = _tile_size(recipe, shape, name) * (_TILES - 1)
    stages = max(recipe.values["num_stages"], max_num_stages(recipe.pipeline.ttgir))
    looped = _loop_tile(recipe, shape, name) * (stages + 1)
    return max(tiles, looped) + 1


def _programs(recipe: Recipe, shape: Mapping[str, int], config: Mapping[str, int]) -> int:
    return math.prod(recipe.source.grid(dict(shape), config))


def _tile_size(recipe: Recipe, shape: Mapping[str, int], name: str) -> int:
    """Largest size that adds no program to that of 1; 0 where the grid does not depend on it."""
    size, of = shape[name], recipe.values
    if _programs(recipe, {**shape, name: 1}, of) == _programs(recipe, {**shape, name: size}, of):
        return 0
    low, high = 1, size  # as many programs as for 1 | more
    while high - low > 1:
        middle = (low + high) // 2
        same = _programs(recipe, {**shape, name: middle}, of) == _programs(
            recipe, {**shape, name: 1}, of
        )
        low, high = (middle, high) if same else (low, middle)
    return low


def _loop_tile(recipe: Recipe, shape: Mapping[str, int], name: str) -> int:
    """Tile by which a loop goes along the dimension, 0 without one: a block size of that name, or the
    only one, that the grid does not depend on."""
    values, parameter = recipe.values, f"BLOCK_{name.upper()}"
    if parameter not in values and _tile_size(recipe, shape, name) == 0:
        parameter = "BLOCK"
    if parameter not in values:
        return 0
    other = {**values, parameter: 4 * values[parameter]}
    big = {**shape, name: max(shape[name], 64 * values[parameter])}
    on_grid = _programs(recipe, big, values) != _programs(recipe, big, other)
    return 0 if on_grid else values[parameter]
