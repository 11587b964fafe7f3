"""`Desk`: what the parent process holds for one workload; `Limits`; the key of stored verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tirgym.harness.backend import backend
from tirgym.harness.hardware import fingerprint, roofline_floor_us, runs_on_cpu
from tirgym.harness.outcome import Anchor
from tirgym.harness.portable import callables_of, kernel_digest, to_bytes
from tirgym.harness.store import Context
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Shape, Workload
from tirgym.kernels_suite.problem import build_of, bytes_of, flops_of
from tirgym.kernels_suite.registry import LOCAL_SUITE

__all__ = ["Desk", "Limits", "context_of", "roofline_floor", "versions_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one evaluation. The worker is killed when a phase takes longer."""

    build_s: float = 20.0
    gate_s: float = 10.0
    """beyond what the slowdown limit allows the gate's runs to take"""
    timing_s: float = 120.0
    prepare_s: float = 300.0
    """naive build, references and unscheduled outputs: not the candidate's time"""
    lock_s: float = 1800.0
    """for the timings of other processes on this machine"""
    memory_bytes: int | None = 4 << 30
    slowdown: float = 20.0
    """TOO_SLOW beyond this multiple of the naive time …"""
    slow_floor_s: float = 5e-3
    """… and this time"""


def context_of(workload: Workload, target: Target) -> Context:
    """Under what a verdict on this machine is stored."""
    kernel = workload.kernel
    uri = workload.uri
    if kernel.suite == LOCAL_SUITE:
        uri = f"{uri}#{kernel_digest(kernel)}{_unscheduled_key(workload, target)}"
    return Context(uri, target, versions_of(target), fingerprint())


@lru_cache(maxsize=64)
def versions_of(target: Target) -> str:
    """Versions of all that decides the machine code and runs it."""
    found = backend(target.backend).describe(target)["versions"]
    return " ".join(f"{name}={text}" for name, text in sorted(found.items()))


@lru_cache(maxsize=256)
def _unscheduled_key(workload: Workload, target: Target) -> str:
    """IR key of the program that speedups are relative to: another one after `build` is edited."""
    return backend(target.backend).start(workload, target).ir_key


def roofline_floor(workload: Workload, target: Target) -> float:
    """µs that no correct run can be below; 0 for a device whose peaks are not known."""
    if not runs_on_cpu(target):
        return 0.0
    return roofline_floor_us(flops_of(workload), bytes_of(workload), target, workload.kernel.dtype)


@dataclass(frozen=True, slots=True)
class _Built:
    """A kernel's `build` at one shape, run already: TVMScript reads its own source code, which a
    worker does not have."""

    func: Any

    def __call__(self, shape: Shape) -> Any:
        return self.func


def _portable(workload: Workload) -> Workload:
    """`workload` as it is sent to a worker."""
    return replace(workload, kernel=replace(workload.kernel, build=_Built(build_of(workload))))


class Desk:
    """The parent's side of one workbench."""

    def __init__(
        self,
        key: str,
        workload: Workload,
        target: Target,
        floor_us: Callable[[Workload, Target], float],
    ) -> None:
        self.key, self.workload, self.target = key, workload, target
        start = backend(target.backend).start(workload, target)
        self.naive_json = backend(target.backend).module_json(start)
        self.workload_bytes = to_bytes(_portable(workload), *callables_of(workload.kernel).values())
        self.floor_us = floor_us(workload, target)
        self.anchors: list[Anchor] = []
        self.naive_key, self.naive_s = "", 0.0
