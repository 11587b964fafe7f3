"""The `triton` backend: Triton kernels, compiled ahead of time for NVIDIA and AMD GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from tirgym.errors import BackendUnavailableError, InvalidValueError, UnknownNameError
from tirgym.harness.backend import Build
from tirgym.harness.cuda.capability import cuda_capability
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.gpus import GPUS, NVIDIA_LEVELS, gpu
from tirgym.harness.triton.machine_code import assembly_of, code_key_of
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.pool import compile_apart
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = ["TritonBackend"]

_SUPPORTED = ((3, 6), (3, 9))


class TritonBackend:
    """Python to TTIR, TTGIR, LLVM IR and machine code. Kernels are compiled here, never run."""

    name = "triton"
    levels: tuple[str, ...] = (*NVIDIA_LEVELS, "amdgcn")
    """of NVIDIA GPUs, then what AMD GPUs have in place of "ptx" and "sass" """

    def why_unavailable(self) -> str | None:
        """Without triton, or with a version that this package does not know."""
        if find_spec("triton") is None:
            return "backend triton needs triton (Linux); pip install 'tirgym[triton]'"
        try:
            found = version("triton")
        except PackageNotFoundError:
            found = "0.0 (unknown)"
        numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
        if not _SUPPORTED[0] <= numbers <= _SUPPORTED[1]:
            return (
                f"backend triton knows triton 3.6 to 3.9, not {found}; pip install 'tirgym[triton]'"
            )
        return None

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """`arch` is one of `GPUS`; None means this machine's GPU.

        Raises BackendUnavailableError where None finds no GPU.
        """
        if num_threads != 1:
            raise InvalidValueError("num_threads of backend triton", num_threads, "1")
        arch = arch or cuda_capability()
        if arch is None:
            raise BackendUnavailableError(
                f"backend triton: this machine has no GPU to compile for; name one with --arch: "
                f"{', '.join(GPUS)}"
            )
        return Target(self.name, gpu(arch).arch, 1)

    def why_cannot_run(self, target: Target) -> str | None:
        """Always: kernels are compiled and profiled, not run."""
        found = cuda_capability()
        here = f"this machine's GPU is {found}" if found else "this machine has no GPU driver"
        return (
            f"code for {target.arch} cannot run here: {here}, and backend triton compiles and "
            "profiles without running; see tirgym show and tirgym profile"
        )

    def start(self, workload: Workload, target: Target) -> TritonProgram:
        """The kernel's Triton source with its default configuration.

        Raises InvalidValueError for a kernel without one.
        """
        return TritonProgram.start(workload, target)

    def module_json(self, program: Program) -> str:
        """Workload, configuration and pass pipeline as JSON."""
        request = _triton(program).request
        return json.dumps(
            {
                "workload": request.workload,
                "config": dict(request.config),
                "pipeline": request.pipeline.to_lists() if request.pipeline else None,
            },
            sort_keys=True,
        )

    def build(self, module_json: str, target: Target) -> Build:
        """Compile; `Build.load` raises BackendUnavailableError: there is no launcher."""
        fields = json.loads(module_json)
        request = CompileRequest.of(
            load_workload(fields["workload"]),
            target.arch,
            fields["config"],
            pipeline=Pipeline.from_lists(fields["pipeline"]) if fields["pipeline"] else None,
        )
        assembly = assembly_of(compile_here(request), target.arch)

        def load() -> Callable[..., None]:
            raise BackendUnavailableError(str(self.why_cannot_run(target)))

        return Build(code_key_of(assembly), load)

    def ir_level(self, program: Program, level: str) -> str:
        """`program` as text at `level`, compiled in a process of its own.

        Raises UnknownNameError or CompileFailedError.
        """
        program = _triton(program)
        arch = program.target.arch
        accepted = gpu(arch).levels
        if level not in accepted:
            raise UnknownNameError(f"IR level of backend {self.name} for {arch}", level, accepted)
        if level == "python":
            return program.text()
        if level == "sass":
            return assembly_of(compile_apart(program.request), arch)
        return compile_apart(program.request.changed(until=level)).texts[level]

    def describe(self, target: Target) -> dict[str, Any]:
        """Published facts of the GPU, and the version of Triton."""
        facts = asdict(gpu(target.arch))
        return {"backend": self.name, **facts, "versions": {"triton": version("triton")}}


def _triton(program: Program) -> TritonProgram:
    if not isinstance(program, TritonProgram):
        raise InvalidValueError("dialect for backend triton", program.dialect, "triton")
    return program
