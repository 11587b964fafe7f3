"""Committed IR texts of Triton 3.9 with their launches, for tests that have no Triton.

Written again by `python tests/triton_ir.py`, with Triton installed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tirgym.benchmarks.triton_mutants import SUBJECTS
from tirgym.harness.triton.executor.gate import SemanticGate
from tirgym.harness.triton.executor.ir import Module
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.triton.source import Argument, Launch

FOLDER = Path(__file__).parent / "harness" / "triton" / "executor" / "ir"

MADE = {
    **SUBJECTS,
    "softmax": ("tirgym://triton-v0/softmax?m=6&n=20&dtype=float32", {}),
}


@dataclass(frozen=True)
class Fixture:
    """One committed text."""

    name: str
    text: str
    workload: Workload
    launch: Launch

    @property
    def module(self) -> Module:
        return parse_module(self.text, self.name)


@cache
def fixture(kernel: str, arch: str, level: str) -> Fixture:
    """The text of `kernel` at `level`; TTIR is the same for all architectures."""
    name = f"{kernel}.ttir" if level == "ttir" else f"{kernel}.{arch}.{level}"
    text = (FOLDER / name).read_text()
    header = json.loads(text.partition("\n")[0].removeprefix("// "))
    launch = Launch(
        tuple(Argument(*argument) for argument in header["arguments"]),
        tuple(header["grid"]),
        header["num_warps"],
        header["num_stages"],
    )
    return Fixture(name, text, load_workload(header["workload"]), launch)


@cache
def gate_of(kernel: str) -> SemanticGate:
    """The gate of a kernel, its own TTIR trusted."""
    stock = fixture(kernel, "", "ttir")
    return SemanticGate(stock.workload, stock.launch, stock.module, secret=b"tests")


def _write() -> None:
    import triton

    from tirgym.harness.triton.compiling import compile_here
    from tirgym.harness.triton.request import CompileRequest

    FOLDER.mkdir(parents=True, exist_ok=True)
    for kernel, (uri, config) in MADE.items():
        for arch in ("sm_80", "sm_90"):
            request = CompileRequest.of(load_workload(uri), arch, config, until="ttgir")
            launch = request.launch
            header = {
                "triton": triton.__version__,
                "workload": uri,
                "grid": launch.grid,
                "num_warps": launch.num_warps,
                "num_stages": launch.num_stages,
                "arguments": [[a.name, a.type, a.value, a.divisible] for a in launch.arguments],
            }
            for level, text in compile_here(request).texts.items():
                name = f"{kernel}.ttir" if level == "ttir" else f"{kernel}.{arch}.{level}"
                (FOLDER / name).write_text(f"// {json.dumps(header)}\n{text}")


if __name__ == "__main__":
    _write()
