"""`CompileRequest` and `Compiled`: what goes into one compilation and what comes out, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.harness.triton.gpus import Gpu, gpu
from tirgym.harness.triton.pipeline import Pipeline, stock_pipeline
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.triton.source import Config, Launch, TritonSource
from tirgym.kernels_suite.triton.sources import triton_source

__all__ = ["CompileRequest", "Compiled"]


@dataclass(frozen=True)
class CompileRequest:
    """One candidate: a workload, a configuration, a pass pipeline, and how far to lower it.

    Small and picklable, so that it crosses a process border. Of `config` only what differs from the
    defaults of the kernel's source need be there; `pipeline` None is the stock one. `ir` starts
    from edited text instead of from the Python source.
    """

    workload: str
    """URI"""
    arch: str
    config: tuple[tuple[str, int], ...] = ()
    """meta-parameters, sorted"""
    pipeline: Pipeline | None = None
    until: str = ""
    """last level wanted: "ttir", "ttgir", "llir", "ptx" / "amdgcn", or "" for the binary"""
    ir: tuple[str, str] | None = None
    """(level, text): "ttir", "ttgir" or "llir" """

    @classmethod
    def of(
        cls,
        workload: Workload,
        arch: str,
        config: Config | None = None,
        *,
        pipeline: Pipeline | None = None,
        until: str = "",
        ir: tuple[str, str] | None = None,
    ) -> CompileRequest:
        """A request; raises InvalidValueError or UnknownNameError for what cannot be compiled."""
        request = cls(
            workload.uri, arch, tuple(sorted((config or {}).items())), pipeline, until, ir
        )
        request.__dict__["_workload"] = workload
        request.require_valid()
        return request

    def require_valid(self) -> None:
        """Raises unless architecture, configuration, pipeline and levels exist."""
        levels = {*self.gpu.levels[1:], ""} - {"sass"}
        if self.until not in levels:
            accepted = f"one of {', '.join(sorted(levels - {''}))}, or nothing for all"
            raise InvalidValueError(f"last level for {self.arch}", self.until, accepted)
        if self.ir is not None and self.ir[0] not in _STARTS:
            raise InvalidValueError("level of the IR to start from", self.ir[0], str(_STARTS))
        self.source.config(dict(self.config))
        if self.pipeline is not None:
            self.pipeline.require_known(self.gpu)

    @cached_property
    def _workload(self) -> Workload:
        return load_workload(self.workload)

    @property
    def gpu(self) -> Gpu:
        """The GPU to compile for."""
        return gpu(self.arch)

    @cached_property
    def source(self) -> TritonSource:
        """The Triton source of the kernel."""
        return triton_source(self._workload.kernel)

    @cached_property
    def launch(self) -> Launch:
        """Arguments and grid."""
        return self.source.launch(self._workload, dict(self.config))

    @cached_property
    def passes(self) -> Pipeline:
        """The pipeline that runs, the stock one if none was given."""
        stock = stock_pipeline(self.gpu, self.launch.num_warps, self.launch.num_stages)
        return self.pipeline or stock

    def __getstate__(self) -> dict[str, Any]:
        """The fields and the launch, so that the other side need not build the kernel's IR; what
        else is derived from them holds functions."""
        fields = {name: self.__dict__[name] for name in self.__dataclass_fields__}
        return {**fields, "launch": self.launch}

    def changed(self, **changes: Any) -> CompileRequest:
        """A copy with other fields, checked anew."""
        other = replace(self, **changes)
        other.require_valid()
        return other


_STARTS = ("ttir", "ttgir", "llir")


@dataclass(frozen=True)
class Compiled:
    """What the compiler made: texts, the binary, and what it said about them."""

    texts: Mapping[str, str]
    """level → text without source locations, from "ttir" down to what was asked for; "sass" is made
    from the binary (`tirgym.harness.triton.sass`)"""
    binary: bytes
    """cubin or hsaco; empty if lowering ended before"""
    name: str
    """of the function in the binary; "" before "ptx" or "amdgcn" """
    shared_bytes: int
    """dynamic shared memory of one block"""
    tmem_columns: int
    """columns of tensor memory that one block takes (sm_100)"""
    num_warps: int
    stage_ms: Mapping[str, float]
    """time of each level in ms; empty when it came from the cache"""
    assembler_log: str
    """what ptxas -v said: registers, stack, spills"""
    log: str
    """what the compiler wrote on stderr"""

    def to_json(self) -> str:
        """JSON text, the binary in hexadecimal."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps({**fields, "binary": self.binary.hex()})

    @classmethod
    def from_json(cls, text: str) -> Compiled:
        """What `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        fields = json.loads(text)
        return cls(**{**fields, "binary": bytes.fromhex(fields["binary"]), "stage_ms": {}})
