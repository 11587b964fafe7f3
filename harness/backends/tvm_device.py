"""`TVMDeviceBackend`: what TVM's backends for GPU-like devices share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tvm

from tirgym.errors import UnknownNameError
from tirgym.harness.backend import Build
from tirgym.harness.backends.device_code import compile_device, split_host_device
from tirgym.harness.collector import spare_collector
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.launches import DeviceCode
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.device_limits import DeviceLimits, device_limits
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Workload

__all__ = ["TVMDeviceBackend"]


class TVMDeviceBackend:
    """TensorIR whose loops are bound to blocks and threads.

    Subclasses say for which devices, and how TVM calls them. A program is completed before it is
    compiled: see `completion`.
    """

    name: ClassVar[str]
    levels: tuple[str, ...]

    # --- what a subclass says ------------------------------------------------------------------

    def tvm_target(self, target: Target) -> Any:
        """TVM's target, with a host."""
        raise NotImplementedError

    def why_unavailable(self) -> str | None:
        """None when usable here, else one line with the remedy."""
        raise NotImplementedError

    # --- the Backend protocol ------------------------------------------------------------------

    def start(self, workload: Workload, target: Target) -> TensorIRProgram:
        """The unscheduled program."""
        spare_collector()
        return TensorIRProgram.start(workload, target)

    def module_json(self, program: Program) -> str:
        """TVM's JSON of the completed module."""
        return tvm.ir.save_json(self._completed(program).mod)  # type: ignore[no-any-return]

    def build(self, module_json: str, target: Target) -> Build:
        """Lower, check against the device's limits and generate code; `Build.load` makes it
        callable. Raises CompileFailedError or what the compiler raises."""
        code, _ = self._compiled(tvm.ir.load_json(module_json), target)
        return Build(code.code_key, self._loader(code, target))

    def ir_level(self, program: Program, level: str) -> str:
        """`program` as text at `level`; raises UnknownNameError, or what the compiler raises.

        "tir" is the schedule state, "lowered" the completed program after TVM's lowering, split into
        kernels and the host's launches.
        """
        if level not in self.levels:
            raise UnknownNameError(f"IR level of backend {self.name}", level, self.levels)
        assert isinstance(program, TensorIRProgram)
        if level == "tir":
            return program.text()
        mod = self._completed(program).mod
        if level == "lowered":
            _, split = split_host_device(
                mod, self.tvm_target(program.target), self._limits(program.target)
            )
            return split.script()  # type: ignore[no-any-return]
        code, module = self._compiled(mod, program.target)
        return self._text(code, module, level, program.target)

    def describe(self, target: Target) -> dict[str, Any]:
        """The limits that decide legality, and versions of the compiler."""
        limits = self._limits(target)
        return {
            "backend": self.name,
            "arch": target.arch,
            "num_threads": target.num_threads,
            "versions": compiler_versions(),
            "max_threads": limits.max_threads,
            "thread_extents": list(limits.thread_extents),
            "shared_bytes": limits.shared_bytes,
        }

    def code(self, program: TensorIRProgram, target: Target) -> DeviceCode:
        """Source and launches of a completed program; raises CompileFailedError or what TVM raises."""
        return self._compiled(program.mod, target)[0]

    # --- inside --------------------------------------------------------------------------------

    def _text(self, code: DeviceCode, module: Any, level: str, target: Target) -> str:
        """One of the levels below "lowered"."""
        return code.text()

    def _loader(self, code: DeviceCode, target: Target) -> Callable[[], Callable[..., None]]:
        raise NotImplementedError

    def _completed(self, program: Program) -> TensorIRProgram:
        assert isinstance(program, TensorIRProgram)
        return completed(program)

    def _limits(self, target: Target) -> DeviceLimits:
        limits = device_limits(target)
        assert limits is not None
        return limits

    def _compiled(self, mod: Any, target: Target) -> tuple[DeviceCode, Any]:
        return compile_device(mod, self.tvm_target(target), self._limits(target))
