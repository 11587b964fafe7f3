"""What an exported library of variants computes, and what its dispatcher costs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirgym.errors import EvaluationError
from tirgym.harness.export import c_compiler
from tirgym.harness.own_process import call_apart
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tuned_library import TunedLibrary
from tirgym.kernels_suite.kernel import Workload

__all__ = ["ShapeCheck", "check_library", "dispatch_ns"]


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """The gate's verdict on one shape, called through the dispatcher."""

    workload: str
    variant: str
    """workload of the variant that took it, or "any shape" """
    status: Status
    message: str = ""


def check_library(
    path: Path, workloads: Sequence[Workload], target: Target, timeout_s: float = 300.0
) -> list[ShapeCheck]:
    """Pass the library through the gate, all regimes, at each of `workloads`, in another process.

    Shapes that no program takes are left out. If that process ends, all of them are a CRASH.
    """
    library = TunedLibrary(path)
    asked = [(w.uri, v) for w in workloads if (v := _variant(library, w))]
    uris = tuple(uri for uri, _ in asked)
    try:
        verdicts = call_apart(
            _judge, str(path), uris, target, num_threads=target.num_threads, timeout_s=timeout_s
        )
    except TimeoutError as error:
        verdicts = [(Status.TIMEOUT, str(error))] * len(asked)
    except EvaluationError as error:
        verdicts = [(Status.CRASH, str(error))] * len(asked)
    return [
        ShapeCheck(uri, variant, status, message)
        for (uri, variant), (status, message) in zip(asked, verdicts, strict=True)
    ]


def _variant(library: TunedLibrary, workload: Workload) -> str:
    from tirgym.kernels_suite.problem import tensors

    return library.variant_of([tensor.shape for tensor in tensors(workload)[0]])


def _judge(path: str, uris: Sequence[str], target: Target) -> list[tuple[Status, str]]:
    from tirgym.harness.vendor import gate_call
    from tirgym.harness.worker_device import BoundCall
    from tirgym.kernels_suite.registry import load_workload

    library = TunedLibrary(path)
    inputs = len(library.inputs)

    def bind(arrays: tuple[Any, ...]) -> BoundCall:
        return BoundCall(lambda: library(*arrays[:inputs], out=arrays[inputs:]))

    outcomes = [gate_call(load_workload(uri), target, bind).outcome for uri in uris]
    return [(outcome.status, outcome.report.failure) for outcome in outcomes]


def dispatch_ns(path: Path) -> float:
    """Nanoseconds in which the dispatcher finds the variant, mean over all variants in turn.

    A C program links the library and asks it a few million times; the kernels do not run.
    Raises EvaluationError where that program cannot be built or run.
    """
    library = TunedLibrary(path)
    compiler = c_compiler()
    if compiler is None:
        raise EvaluationError("no C compiler to measure the dispatcher with")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "ask.c"), Path(folder, "ask")
        source.write_text(_program(library), encoding="utf-8")
        place = path.absolute()
        command = [*compiler, "-O1", "-std=c11", str(source), str(place), "-o", str(program)]
        for step in (command, [str(program)]):
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode != 0:
                words = " ".join(done.stderr.split())[-300:]
                raise EvaluationError(f"the dispatcher could not be measured: {words}")
    return float(done.stdout)


def _program(library: TunedLibrary) -> str:
    name = library.info["function"]
    arrays, tables = [], []
    for number, variant in enumerate(library.variants):
        pointers = []
        for place, shape in enumerate(variant["shapes"]):
            dims = ", ".join(map(str, shape)) or "0"
            arrays.append(f"static const int64_t s{number}_{place}[] = {{{dims}}};")
            pointers.append(f"s{number}_{place}")
        tables.append("{" + ", ".join(pointers) + "}")
    return _ASK.format(
        name=name,
        arrays="\n".join(arrays),
        variants=len(library.variants),
        count=len(library.arguments),
        tables=", ".join(tables),
    )


_ASK = """\
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <time.h>
int {name}_variant(const int64_t *const *shapes);
{arrays}
static const int64_t *const shapes[{variants}][{count}] = {{{tables}}};
int main(void) {{
  struct timespec a, b;
  enum {{ ROUNDS = 2000000 }};
  for (int v = 0; v < {variants}; ++v)
    if ({name}_variant(shapes[v]) != v) return 1;
  volatile int sink = 0;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < ROUNDS; ++i) sink += {name}_variant(shapes[i % {variants}]);
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("%f\\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / ROUNDS);
  return 0;
}}
"""
