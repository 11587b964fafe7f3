"""The pass pipeline as data: which MLIR passes make TTIR and TTGIR, in which order, with what arguments.

Triton's passes are functions `add_NAME(pass_manager, *arguments)` in a few namespaces. The registry
lists those of the Triton that is installed; the stock pipeline is recorded from that version's own
stage functions, run with stand-ins that write calls down in place of adding passes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import FunctionType
from typing import Any

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.triton.gpus import Gpu

__all__ = ["PassCall", "Pipeline", "pass_registry", "run_passes", "stock_pipeline"]

PassArgument = bool | int | str
_PATHS = {
    "common": "passes.common",
    "ttir": "passes.ttir",
    "ttgpuir": "passes.ttgpuir",
    "nvidia": "nvidia.passes.ttnvgpuir",
    "hopper": "nvidia.passes.hopper",
    "amd": "amd.passes.ttgpuir",
}
"""Namespace → where its functions lie in `triton._C.libtriton`."""
_NAMESPACES = {path: name for name, path in _PATHS.items()}
_VENDOR = {"nvidia": ("nvidia", "hopper"), "amd": ("amd",)}


@dataclass(frozen=True, slots=True)
class PassCall:
    """One pass with its arguments: `ttgpuir.pipeline(3, False)`."""

    name: str
    """namespace.pass"""
    arguments: tuple[PassArgument, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The passes of the two levels that an agent may arrange; lower levels stay as they are."""

    ttir: tuple[PassCall, ...]
    ttgir: tuple[PassCall, ...]
    """starts with `ttir.convert_to_ttgpuir`"""

    @property
    def key(self) -> str:
        """Equal for equal pipelines, in every Triton version; part of the cache's key."""
        return json.dumps(self.to_lists(), separators=(",", ":"))

    def to_lists(self) -> dict[str, list[list[Any]]]:
        """{"ttir": [[name, *arguments], …], "ttgir": …}, JSON values."""
        return {
            level: [[call.name, *call.arguments] for call in calls]
            for level, calls in (("ttir", self.ttir), ("ttgir", self.ttgir))
        }

    @classmethod
    def from_lists(cls, lists: Mapping[str, Any]) -> Pipeline:
        """What `to_lists` wrote; raises InvalidValueError for anything else."""
        try:
            ttir, ttgir = (
                tuple(PassCall(str(name), tuple(arguments)) for name, *arguments in lists[level])
                for level in ("ttir", "ttgir")
            )
        except (KeyError, TypeError, ValueError):
            accepted = '{"ttir": [["namespace.pass", argument, …], …], "ttgir": […]}'
            raise InvalidValueError("Triton pass pipeline", lists, accepted) from None
        return cls(ttir, ttgir)

    def without(self, *names: str) -> Pipeline:
        """The pipeline without every call of the passes `names`."""

        def kept(calls: tuple[PassCall, ...]) -> tuple[PassCall, ...]:
            return tuple(call for call in calls if call.name not in names)

        return Pipeline(kept(self.ttir), kept(self.ttgir))

    def with_arguments(self, name: str, *arguments: PassArgument) -> Pipeline:
        """The pipeline with other arguments for every call of the pass `name`."""

        def changed(calls: tuple[PassCall, ...]) -> tuple[PassCall, ...]:
            return tuple(
                replace(call, arguments=arguments) if call.name == name else call for call in calls
            )

        return Pipeline(changed(self.ttir), changed(self.ttgir))

    def require_known(self, gpu: Gpu) -> None:
        """Raises UnknownNameError for a pass that this Triton has not for `gpu`."""
        known = pass_registry(gpu.vendor)
        for call in (*self.ttir, *self.ttgir):
            if call.name not in known:
                raise UnknownNameError(f"Triton pass for {gpu.arch}", call.name, known)


@cache
def pass_registry(vendor: str) -> Mapping[str, Callable[..., None]]:
    """Name → function of every pass of the installed Triton that makes sense for `vendor`."""
    from triton._C import libtriton

    found: dict[str, Callable[..., None]] = {}
    foreign = {name for other, names in _VENDOR.items() if other != vendor for name in names}
    for namespace, path in _PATHS.items():
        if namespace in foreign:
            continue
        module: Any = libtriton
        for part in path.split("."):
            module = getattr(module, part, None)
        for name in sorted(dir(module)):
            if name.startswith("add_"):
                found[f"{namespace}.{name.removeprefix('add_')}"] = getattr(module, name)
    return found


def run_passes(module: Any, calls: tuple[PassCall, ...], vendor: str, tag: str) -> Any:
    """`module` after `calls`, in place. Raises InvalidValueError for wrong arguments, and what the
    pass manager raises."""
    from triton._C.libtriton import ir

    registry = pass_registry(vendor)
    manager = ir.pass_manager(module.context)
    for call in calls:
        try:
            registry[call.name](manager, *call.arguments)
        except TypeError:
            signature = (registry[call.name].__doc__ or "").strip().splitlines()
            accepted = signature[0] if signature else "other arguments"
            raise InvalidValueError(f"pass {call.name}", call.arguments, accepted) from None
    manager.run(module, tag)
    return module


@cache
def stock_pipeline(gpu: Gpu, num_warps: int, num_stages: int) -> Pipeline:
    """What the installed Triton runs for these options, as a list."""
    from triton.compiler.compiler import make_backend

    compiler = make_backend(gpu.triton_target())
    options = compiler.parse_options(
        {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    )
    last = (gpu.capability,) if gpu.vendor == "nvidia" else ()
    return Pipeline(
        *(_recorded(getattr(type(compiler), stage), options, last) for stage in _STAGES)
    )


_STAGES = ("make_ttir", "make_ttgir")


def _recorded(stage: FunctionType, options: Any, last: tuple[int, ...]) -> tuple[PassCall, ...]:
    """The passes that `stage` adds. Its code runs with stand-ins for Triton's bindings."""
    calls: list[PassCall] = []
    scope = dict(stage.__globals__)
    for name in ("passes", "nvidia", "amd"):
        if name in scope:
            scope[name] = _Recording(name, scope[name], calls)
    scope["ir"] = _NoIR()
    copy = FunctionType(
        stage.__code__, scope, stage.__name__, stage.__defaults__, stage.__closure__
    )
    copy(_NoIR(), {}, options, *last)
    return tuple(calls)


class _Recording:
    """A namespace whose `add_…` functions write their call down; all else is the real one."""

    def __init__(self, path: str, real: Any, calls: list[PassCall]) -> None:
        self._path, self._real, self._calls = path, real, calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if self._path in _NAMESPACES and name.startswith("add_"):
            called = f"{_NAMESPACES[self._path]}.{name.removeprefix('add_')}"
            return lambda _, *arguments: self._note(called, arguments)
        if name == "passes" or self._path == "passes" or self._path.endswith(".passes"):
            return _Recording(f"{self._path}.{name}", real, self._calls)
        return real

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        plain = tuple(False if isinstance(a, _NoIR) else a for a in arguments)
        if all(isinstance(argument, PassArgument) for argument in plain):
            self._calls.append(PassCall(name, plain))


class _NoIR:
    """Stands in for MLIR's module, context and pass manager: does nothing, is never true.

    As an argument of a pass it is the answer of `enable_debug`, which is False.
    """

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False
