"""`CudaProgram`: one program of CUDA kernels as plain data, with all that a gate must know to judge it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tirgym.harness.launches import DeviceCode
from tirgym.kernels_suite.kernel import Shape, Tensor, Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = ["CudaProgram", "Problem"]


@dataclass(frozen=True)
class Problem:
    """What a workload asks for, as far as TVM would have to be asked for it."""

    workload: str
    """URI"""
    tensors: tuple[Tensor, ...]
    """inputs, then outputs"""
    terms: int
    """longest chain of roundings behind one output element"""
    nbytes: int
    """bytes that must move at least"""
    flops: int
    """arithmetic operations"""

    def stated(self) -> Workload:
        """The workload whose kernel states all this, so that it is judged without TVM.

        Raises UnknownNameError or InvalidValueError for a URI of a kernel that is not here.
        """
        found = load_workload(self.workload, files=False)
        kernel = replace(
            found.kernel,
            parameters=self._parameters,
            terms=self._terms,
            bytes=lambda _: self.nbytes,
            flops=lambda _: self.flops,
        )
        return Workload(kernel, found.dims)

    def _parameters(self, _: Shape) -> tuple[Tensor, ...]:
        return self.tensors

    def _terms(self, _: Shape) -> int:
        return self.terms


@dataclass(frozen=True)
class CudaProgram:
    """CUDA C with its launches, and a binary where one was made."""

    problem: Problem
    arch: str
    """"sm_90": of the binary, and what the source was written for"""
    code: DeviceCode
    cubin: bytes = b""
    """machine code for `arch`; empty where none was made"""

    @property
    def workload(self) -> str:
        """URI."""
        return self.problem.workload

    @cached_property
    def code_key(self) -> str:
        """16 hex digits of the binary and its launches; without a binary, of source and launches."""
        if not self.cubin:
            return self.code.code_key
        launched = f"{self.code.launches}\n{self.code.workspaces}".encode()
        return hashlib.sha256(self.cubin + launched).hexdigest()[:16]

    def stated_workload(self) -> Workload:
        """What it computes."""
        return self.problem.stated()

    def misfits(self) -> str:
        """How launches and tensors do not fit; "" if they do."""
        places = len(self.problem.tensors) + len(self.code.workspaces)
        for launch in self.code.launches:
            if not all(0 <= place < places for place in launch.arguments):
                return f"{launch.kernel} takes buffer {max(launch.arguments)} of {places}"
            if not all(_extents(sizes) for sizes in (launch.grid, launch.block)):
                return f"{launch.kernel} has grid {launch.grid} and block {launch.block}"
        return "" if self.code.launches else "it launches nothing"


def _extents(sizes: Sequence[int]) -> bool:
    return len(sizes) == 3 and all(type(n) is int and n > 0 for n in sizes)
