"""`autotuned`: the choice of Triton's own autotuner among given configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tirgym.harness.triton.device.device import Tuned
from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, Launch, TritonSource

__all__ = ["autotuned"]

_OPTIONS = ("num_warps", "num_stages")
Benchmark = Callable[..., Sequence[float]]


def autotuned(
    source: TritonSource,
    shape: Shape,
    launch: Launch,
    configs: Sequence[Config],
    tensors: Mapping[str, Any],
    benchmark: Benchmark | None = None,
) -> Tuned:
    """`triton.autotune` over `configs` (each with every meta-parameter) on `tensors` by name.

    `benchmark` takes the place of Triton's `do_bench(call, quantiles=…)`. Triton catches what needs
    too many resources; anything else that it raises passes through.
    """
    import triton

    made = [_triton_config(config) for config in configs]
    extra = {} if benchmark is None else {"do_bench": benchmark}
    tuner = triton.autotune(configs=made, key=[], **extra)(source.function)
    names = {parameter.name for parameter in source.parameters}
    given = {
        a.name: tensors[str(a.value)] if a.is_pointer else a.value
        for a in launch.arguments
        if a.name not in names
    }
    tuner[lambda meta: source.grid(shape, meta)](**given)
    if len(made) == 1:  # then it measures nothing
        return Tuned(dict(configs[0]), (math.nan,), "triton.autotune")
    times = [float(tuner.configs_timings[config][0]) * 1e3 for config in made]
    return Tuned(dict(configs[made.index(tuner.best_config)]), tuple(times), "triton.autotune")


def _triton_config(config: Config) -> Any:
    import triton

    blocks = {name: value for name, value in config.items() if name not in _OPTIONS}
    return triton.Config(blocks, num_warps=config["num_warps"], num_stages=config["num_stages"])
