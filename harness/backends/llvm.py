"""The `llvm` backend: TVM's LLVM code generation for the CPU."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import tvm

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.backend import Build
from tirgym.harness.backends.code_key import code_key
from tirgym.harness.backends.llvm_levels import (
    PassRecord,
    lowered_module,
    render_passes,
    run_passes,
)
from tirgym.harness.backends.llvm_options import compiler_for, compiler_with
from tirgym.harness.collector import spare_collector
from tirgym.harness.hardware import (
    compiler_versions,
    cpu_facts,
    cpu_model,
    fingerprint,
    host_cpu,
    missing_features,
)
from tirgym.harness.program import Program
from tirgym.harness.target import Target, require_threads
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload

__all__ = ["LLVMBackend", "tvm_target"]


@lru_cache(maxsize=64)
def tvm_target(target: Target) -> Any:
    """The TVM target of `target`, with the compiler's own options."""
    return compiler_with("", target).target


class LLVMBackend:
    """TVM to LLVM to this machine's CPU."""

    name = "llvm"
    levels: tuple[str, ...] = ("tir", "lowered", "llvm", "asm", "passes")

    def why_unavailable(self) -> str | None:
        """None: TVM's LLVM is part of the core install."""
        if not tvm.runtime.enabled("llvm"):
            return "backend llvm: this TVM was built without LLVM; install apache-tvm==0.27.0.post1"
        return None

    def target(self, arch: str | None = None, num_threads: int = 1) -> Target:
        """`arch` is an LLVM mcpu name; None means this machine's."""
        num_threads = require_threads(num_threads, os.cpu_count() or 1, "this machine")
        arch = arch or host_cpu()
        host = tvm.target.Target({"kind": "llvm"})
        known = {str(name) for name in tvm.target.codegen.llvm_get_cpu_archlist(host)}
        if arch not in known:
            raise InvalidValueError("arch of backend llvm", arch, "an LLVM mcpu name")
        return Target("llvm", arch, num_threads)

    def why_cannot_run(self, target: Target) -> str | None:
        """The instructions that this CPU lacks for `target`, or None."""
        missing = missing_features(target.arch)
        if not missing:
            return None
        names = ", ".join(missing)
        return (
            f"code for {target.arch} cannot run here: this CPU has no {names}; it runs {host_cpu()}"
        )

    def start(self, workload: Workload, target: Target) -> TensorIRProgram:
        """The unscheduled program."""
        spare_collector()
        return TensorIRProgram.start(workload, target)

    def module_json(self, program: Program) -> str:
        """TVM's JSON of the IR module."""
        assert isinstance(program, TensorIRProgram)
        return tvm.ir.save_json(program.mod)  # type: ignore[no-any-return]

    def build(self, module_json: str, target: Target) -> Build:
        """Lower and generate code; `Build.load` JIT-links."""
        return self.build_module(tvm.ir.load_json(module_json), target)

    def build_module(self, mod: Any, target: Target) -> Build:
        """`build` for a module that is already in this process."""
        executable = compiler_for(mod, target).compile(mod)
        return Build(code_key(executable.mod, mod, target), lambda: executable["main"])

    def ir_level(self, program: Program, level: str) -> str:
        """`program` as text at `level`; raises UnknownNameError, or what the compiler raises.

        "tir" is the schedule state, "lowered" what code generation is given, "llvm" and "asm"
        what it makes, "passes" a table of all lowering passes with times and differences.
        """
        if level not in self.levels:
            raise UnknownNameError(f"IR level of backend {self.name}", level, self.levels)
        assert isinstance(program, TensorIRProgram)
        if level == "tir":
            return program.text()
        if level == "passes":
            return render_passes(self.passes(program))
        compiler = compiler_for(program.mod, program.target)
        if level == "lowered":
            return lowered_module(program.mod, compiler).script()  # type: ignore[no-any-return]
        executable = compiler.compile(program.mod)
        return executable.mod.inspect_source("ll" if level == "llvm" else "asm")  # type: ignore[no-any-return]

    def passes(self, program: Program) -> tuple[PassRecord, ...]:
        """Every pass that lowers `program`, in order, with its time and the IR around it."""
        assert isinstance(program, TensorIRProgram)
        return run_passes(program.mod, compiler_for(program.mod, program.target))

    def describe(self, target: Target) -> dict[str, Any]:
        """Hardware facts of `target` and versions of the compiler."""
        facts = cpu_facts(target)
        return {
            "backend": self.name,
            "arch": target.arch,
            "num_threads": target.num_threads,
            "cpu": cpu_model(),
            "fingerprint": fingerprint(),
            "versions": compiler_versions(),
            **asdict(facts),
        }
