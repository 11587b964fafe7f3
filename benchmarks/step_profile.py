"""Where the time of a static step goes: copy, primitive, walk, facts, mask, trials.

Run: python -m tirgym.benchmarks.step_profile --steps 1000

Fresh random episodes over several kernels, so caches by node are as warm as training makes them and
masks are never met twice. Wall time of this process; on a busy machine look at the medians.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from tirgym.harness.target import Target
from tirgym.harness.tensorir import legality
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel

__all__ = ["main", "profile"]

KERNELS = ("matmul", "softmax", "layernorm", "conv2d", "matmul_bias_gelu", "attention")


class _Clock:
    """Seconds by phase, one entry for each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.trials = 0

    def run(self, phase: str, call: Any) -> Any:
        started = perf_counter()
        answer = call()
        self.seconds[phase].append(perf_counter() - started)
        return answer


def profile(steps: int, seed: int, depth: int = 20) -> dict[str, Any]:
    """Microseconds a step by phase, over `steps` random steps in episodes of `depth`."""
    vocabulary = default_vocabulary("llvm")
    target = Target("llvm", "skylake-avx512", 1)
    starts = [TensorIRProgram.start(Workload.of(load_kernel(name)), target) for name in KERNELS]
    rng, clock = np.random.default_rng(seed), _Clock()
    tried, spent = legality._tried, [0.0]

    def timed_trial(program: TensorIRProgram, transform: Any) -> bool:
        started = perf_counter()
        answer = tried(program, transform)
        spent[0] += perf_counter() - started
        clock.trials += 1
        return answer

    legality._tried = timed_trial
    began, taken = process_time(), 0
    try:
        while taken < steps:
            first = starts[taken % len(starts)]
            program = TensorIRProgram(first.workload, target, (), first.schedule)
            for _ in range(depth):
                clock.run("walk", lambda: program.nest)  # noqa: B023
                clock.run("facts", lambda: program.facts)  # noqa: B023
                spent[0] = 0.0
                mask = clock.run("mask", lambda: program.legal_mask(vocabulary))  # noqa: B023
                clock.seconds["of which trials"].append(spent[0])
                step = draw_transform(vocabulary, mask, rng)
                if step is None:
                    break
                clock.run("copy", lambda: program.schedule)  # noqa: B023
                program = clock.run("apply", lambda: program.apply(step))  # noqa: B023
                taken += 1
    finally:
        legality._tried = tried
    phases = {
        name: {"mean_us": fmean(found) * 1e6, "median_us": median(found) * 1e6}
        for name, found in clock.seconds.items()
    }
    whole = [phases[name] for name in ("walk", "facts", "mask", "apply")]
    return {
        "steps": taken,
        "actions": len(vocabulary),
        "trials_per_step": clock.trials / taken,
        "phases": phases,
        "total": {key: sum(phase[key] for phase in whole) for key in ("mean_us", "median_us")},
        "cpu_us_per_step": (process_time() - began) / taken * 1e6,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    profile(100, args.seed + 1)
    found = profile(args.steps, args.seed)
    if args.json:
        print(json.dumps(found))
        return 0
    print(f"{'phase':16} {'mean':>8} {'median':>8}   µs a step, {found['steps']} steps")
    for name, phase in [*found["phases"].items(), ("total", found["total"])]:
        print(f"{name:16} {phase['mean_us']:8.0f} {phase['median_us']:8.0f}")
    print(
        f"total = walk + facts + mask + apply; apply includes one copy; {found['actions']} actions"
    )
    print(f"{found['trials_per_step']:.2f} trials, {found['cpu_us_per_step']:.0f} µs CPU a step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
