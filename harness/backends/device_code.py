"""`compile_device`: source and launches of a thread-bound program for a GPU-like device, by TVM.

TVM lowers host and device together and splits them in its pass `SplitHostDevice`. The host half that
leaves that pass is a list of launches: which kernel, on which buffers, with which thread extents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import s_tir
from tvm.ir.instrument import pass_instrument

from tirgym.errors import CompileFailedError
from tirgym.harness.launches import DeviceCode, Launch
from tirgym.harness.tensorir.device_limits import DeviceLimits
from tirgym.harness.tensorir.nest import read_nest
from tirgym.harness.tensorir.pipelines import copies_asynchronously, with_ordinary_copies
from tirgym.harness.tensorir.wmma import is_fragment

__all__ = ["DeviceCode", "Launch", "compile_device", "split_host_device"]

_AXES = ("x", "y", "z")


class _Splits:
    """Keeps the module that leaves SplitHostDevice."""

    def __init__(self) -> None:
        self.after: Any = None

    def run_after_pass(self, mod: Any, info: Any) -> None:
        """Called by TVM."""
        if str(info.name).endswith("SplitHostDevice"):
            self.after = mod


def split_host_device(
    mod: Any, target: Any, limits: DeviceLimits, pipeline: str = "default"
) -> tuple[Any, Any]:
    """The executable of `mod`, and its module as it left SplitHostDevice.

    `pipeline` is the name of one of TVM's pipelines. Copies of software pipelines are asynchronous if all of
    them can be. TVM's pass StorageRewrite lets shared buffers of different types share memory, which
    instructions on fragments do not take ("tvm_access_ptr element type must match"), so it is left out
    where there are any. Raises what the compiler raises.
    """
    found = pass_instrument(_Splits)()
    asynchronous = "cp.async" in limits.features and copies_asynchronously(read_nest(mod))
    if not asynchronous:
        mod = with_ordinary_copies(mod)
    buffers = mod["main"].body.block.alloc_buffers
    config = {
        "tirx.disable_storage_rewrite": any(is_fragment(str(buffer.scope())) for buffer in buffers),
        "tirx.use_async_copy": asynchronous,
    }
    with tvm.transform.PassContext(instruments=[found], config=config):
        executable = tvm.compile(mod, target=target, tir_pipeline=pipeline)
    return executable, found.after


def compile_device(
    mod: Any, target: Any, limits: DeviceLimits, pipeline: str = "default"
) -> tuple[DeviceCode, Any]:
    """Compile `mod`, whose blocks are all bound to threads, for `target` (TVM's, with a host).

    Answers the code and TVM's device module. Raises CompileFailedError beyond the limits of the
    device, or where the host would have to do more than launch kernels.
    """
    executable, split = split_host_device(mod, target, limits, pipeline)
    functions = {str(name.name_hint): func for name, func in split.functions.items()}
    host = functions.pop("main")
    for name, func in functions.items():
        _require_within(name, func, limits)
    launches, workspaces = _host_plan(host)
    imports = executable.mod.imports
    if not launches or len(imports) != 1:
        raise CompileFailedError("kernels", "the program launches no kernel")
    source = str(imports[0].inspect_source())
    return DeviceCode(source, tuple(launches), tuple(workspaces)), imports[0]


def _require_within(name: str, func: Any, limits: DeviceLimits) -> None:
    """TVM's VerifyGPUCode with the limits of the device."""
    for what, constraints in _constraints(limits).items():
        if not s_tir.analysis.verify_gpu_code(func, constraints):
            raise CompileFailedError("kernels", f"VerifyGPUCode: {name} has {what}")


def _constraints(limits: DeviceLimits) -> Mapping[str, dict[str, int]]:
    x, y, z = limits.thread_extents
    return {
        f"more than {limits.max_threads} threads in a block": {
            "max_threads_per_block": limits.max_threads
        },
        f"blocks of more than {x} x {y} x {z} threads": {
            "max_thread_x": x,
            "max_thread_y": y,
            "max_thread_z": z,
        },
        f"more than {limits.shared_bytes} bytes of shared memory": {
            "max_shared_memory_per_block": limits.shared_bytes
        },
        f"more than {limits.local_bytes} bytes of memory for one thread": {
            "max_local_memory_per_block": limits.local_bytes
        },
    }


def _host_plan(host: Any) -> tuple[list[Launch], list[int]]:
    """The launches of the host half, and the bytes of the buffers that it allocates."""
    places = {hash(param): number for number, param in enumerate(host.params)}
    workspaces: list[int] = []
    launches: list[Launch] = []
    body = host.body
    for statement in body.seq if type(body).__name__ == "SeqStmt" else [body]:
        kind = type(statement).__name__
        if kind == "AllocBuffer":
            places[hash(statement.buffer)] = len(host.params) + len(workspaces)
            workspaces.append(_nbytes(statement.buffer))
        elif kind == "DeclBuffer":
            places[hash(statement.buffer)] = places[_buffer_of(statement.data)]
        elif kind == "Evaluate" and _name(statement.value) == "tirx.call_ffi_kernel":
            launches.append(_launch(statement.value, places))
        else:
            raise CompileFailedError(
                "launches", f"the host would have to run a statement of kind {kind} between kernels"
            )
    return launches, workspaces


def _name(call: Any) -> str:
    return str(getattr(getattr(call, "op", None), "name", ""))


def _buffer_of(data: Any) -> int:
    """Handle of the buffer whose memory an expression means."""
    if _name(data) != "tirx.buffer_data":
        raise CompileFailedError("launches", f"the host passes {data} to a kernel")
    return hash(data.args[0])


def _nbytes(buffer: Any) -> int:
    dtype = tvm.DataType(str(buffer.dtype))
    elements = math.prod(int(extent) for extent in buffer.shape)
    return elements * ((int(dtype.bits) * int(dtype.lanes) + 7) // 8)


def _launch(call: Any, places: Mapping[int, int]) -> Launch:
    """A launch from its call: name, buffers, extents of the launch parameters."""
    names = [str(name) for name in call.attrs.launch_params]
    cut = len(call.args) - len(names)
    extents = {name: int(value) for name, value in zip(names, call.args[cut:], strict=True)}
    unknown = set(extents) - {f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in _AXES}
    if unknown:
        raise CompileFailedError(
            "launches", f"launch parameters {', '.join(sorted(unknown))} are not known"
        )
    grid, block = (
        tuple(extents.get(f"{kind}Idx.{axis}", 1) for axis in _AXES) for kind in ("block", "thread")
    )
    arguments = tuple(places[_buffer_of(value)] for value in call.args[1:cut])
    return Launch(str(call.args[0].value), grid, block, arguments)
