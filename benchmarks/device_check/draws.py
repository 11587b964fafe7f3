"""Random configurations, their neighbours, and pipelines with a pass left out; all from a seed."""

from __future__ import annotations

import math

import numpy as np

from tirgym.harness.triton.pipeline import Pipeline
from tirgym.kernels_suite.triton.source import Config, TritonSource

__all__ = ["neighbours", "random_configs", "shortened"]

_LOWERING = ("ttir.convert_to_ttgpuir", "convert_to_ttgpuir")


def random_configs(
    source: TritonSource, rng: np.random.Generator, count: int
) -> list[dict[str, int]]:
    """Up to `count` different configurations, every meta-parameter given, uniformly drawn."""
    sizes = [len(parameter.values) for parameter in source.parameters]
    total = math.prod(sizes)
    drawn = rng.permutation(total)[:count] if total <= 1 << 20 else rng.integers(0, total, count)
    places = (np.unravel_index(int(number), sizes) for number in dict.fromkeys(drawn.tolist()))
    return [
        {p.name: p.values[int(i)] for p, i in zip(source.parameters, place, strict=True)}
        for place in places
    ]


def neighbours(source: TritonSource, config: Config) -> list[dict[str, int]]:
    """Configurations in which one meta-parameter is one step up or down its candidates."""
    found = []
    for parameter in source.parameters:
        place = parameter.values.index(config[parameter.name])
        for other in (place - 1, place + 1):
            if 0 <= other < len(parameter.values):
                found.append({**config, parameter.name: parameter.values[other]})
    return found


def shortened(stock: Pipeline, rng: np.random.Generator, count: int) -> list[tuple[str, Pipeline]]:
    """Up to `count` different stock pipelines without one pass, with its name; the one that makes
    TTGIR of TTIR stays."""
    names = dict.fromkeys(call.name for call in (*stock.ttir, *stock.ttgir))
    kept = [name for name in names if not name.endswith(_LOWERING)]
    chosen = rng.permutation(len(kept))[:count]
    return [(kept[int(place)], stock.without(kept[int(place)])) for place in chosen]
