"""How long Triton IR takes to be read, shown as a graph, and executed on NumPy.

Run: python -m tirgym.benchmarks.triton_execution --json

Every kernel of triton-v0 is compiled to TTIR and TTGIR for one architecture and launched at its tiny
shape, and at the ragged shapes of the gate's own test (`triton_mutants`). Times are CPU milliseconds of
this process, the median of a few runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tirgym.benchmarks.triton_mutants import SUBJECTS
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Regime, Workload

__all__ = ["ExecutionRow", "execution_times"]


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """One kernel at one shape and level."""

    workload: str
    arch: str
    level: str
    operations: int
    programs: int
    parse_ms: float
    compile_ms: float
    """to steps on NumPy"""
    run_ms: float
    """one launch of all programs"""
    graph_ms: float


def _median_ms(action: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        action()
        times.append((time.process_time() - started) * 1e3)
    return round(statistics.median(times), 3)


def execution_times(
    kernels: Sequence[str], arch: str = "sm_90", repeats: int = 5
) -> list[ExecutionRow]:
    """Rows of `kernels`."""
    import numpy as np

    from tirgym.harness.triton.compiling import compile_here
    from tirgym.harness.triton.executor.executable import Executable
    from tirgym.harness.triton.executor.parser import parse_module
    from tirgym.harness.triton.request import CompileRequest
    from tirgym.kernels_suite.problem import make_inputs, tensors
    from tirgym.kernels_suite.registry import load_kernel, load_workload
    from tirgym.spaces.triton import triton_graph

    rows = []
    for name in kernels:
        kernel = load_kernel(f"triton-v0/{name}")
        launches: list[tuple[Workload, Mapping[str, int]]] = [
            (Workload.of(kernel, kernel.tiny_shape), {})
        ]
        if name in SUBJECTS:
            uri, config = SUBJECTS[name]
            launches.append((load_workload(uri), config))
        for workload, config in launches:
            request = CompileRequest.of(workload, arch, config, until="ttgir")
            ins, outs = tensors(workload)
            arrays: dict[str, Any] = dict(
                zip(
                    [tensor.name for tensor in ins],
                    make_inputs(workload, np.random.default_rng(0), Regime.NORMAL),
                    strict=True,
                )
            )
            arrays.update({t.name: np.zeros(t.shape, t.dtype) for t in outs})
            given = [a for a in request.launch.arguments if a.type != "constexpr"]
            arguments = [arrays[str(a.value)] if a.is_pointer else a.value for a in given]
            for level, text in compile_here(request).texts.items():
                module = parse_module(text)
                executable = Executable(module)
                run = _Launch(executable, request.launch.grid, arguments)
                rows.append(
                    ExecutionRow(
                        str(workload),
                        arch,
                        level,
                        sum(1 for _ in module.walk()),
                        request.launch.programs,
                        _median_ms(_Of(parse_module, text), repeats),
                        _median_ms(_Of(Executable, module), repeats),
                        _median_ms(run, repeats),
                        _median_ms(_Of(triton_graph, module, Target("triton", arch)), repeats),
                    )
                )
    return rows


class _Of:
    """A call with its arguments."""

    def __init__(self, function: Callable[..., object], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self) -> object:
        return self._function(*self._arguments)


class _Launch(_Of):
    def __init__(self, executable: Any, grid: Sequence[int], arguments: list[Any]) -> None:
        super().__init__(executable.run, grid, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    from tirgym.kernels_suite.triton.sources import SOURCES

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="default: all of triton-v0")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="rows on stdout")
    given = parser.parse_args(arguments)
    rows = execution_times(given.kernels or tuple(SOURCES), given.arch, given.repeats)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            print(
                f"{row.workload:48s} {row.level:5s} {row.operations:4d} ops {row.programs:6d} "
                f"programs: parse {row.parse_ms:6.1f}, compile {row.compile_ms:6.1f}, "
                f"run {row.run_ms:8.1f}, graph {row.graph_ms:5.1f} ms"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
