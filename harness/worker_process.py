"""What runs inside a worker: one loop that answers requests, and the only `except Exception`."""

from __future__ import annotations

import pickle
import re
import socket
from importlib import import_module

from tirgym.errors import WorkerDiedError
from tirgym.harness.channel import Channel

__all__ = ["is_out_of_memory", "serve", "warm_up"]

_MEMORY = re.compile(r"bad_alloc|out of memory|cannot allocate memory|memoryerror", re.IGNORECASE)


def is_out_of_memory(text: str) -> bool:
    """Whether an error message or a dying worker's last words say that memory ran out."""
    return _MEMORY.search(text) is not None


def warm_up() -> None:
    """Import everything and build and run one serial kernel, so that forks start warm."""
    import gc

    import tvm

    from tirgym.harness import operations, workbench
    from tirgym.harness.backend import backend
    from tirgym.kernels_suite import registry

    assert operations
    assert registry
    made = backend("llvm")
    tensor = tvm.te.placeholder((64,), name="a")
    copy = tvm.te.compute((64,), lambda i: tensor[i] + tvm.tirx.const(1, "float32"), name="b")
    func = tvm.te.create_prim_func([tensor, copy]).with_attr("global_symbol", "main")
    text = tvm.ir.save_json(tvm.IRModule({"main": func}))
    workbench.smoke_test(made.build(text, made.target()).load())
    gc.collect()
    gc.freeze()


def serve(sock: socket.socket, operations_class: str) -> None:
    """Answer requests until the other end closes; every exception of a request becomes an answer.

    The requests are the methods of `operations_class`, "module:Class".
    """
    module, _, name = operations_class.partition(":")
    channel = Channel(sock)
    make = getattr(import_module(module), name)
    operations = make(lambda note: channel.send(("note", note)))
    while True:
        try:
            operation, arguments = channel.receive()
        except WorkerDiedError:
            return
        try:
            answer = ("result", getattr(operations, operation)(*arguments))
            data = pickle.dumps(answer, 5)
        except MemoryError as error:
            data = pickle.dumps(("memory", f"out of memory: {_one_line(error)}"), 5)
        except Exception as error:  # noqa: BLE001 - the worker-process border
            kind = "memory" if is_out_of_memory(f"{type(error).__name__} {error}") else "error"
            data = pickle.dumps((kind, _one_line(error)), 5)
        channel.send(data)


def _one_line(error: BaseException) -> str:
    """The last line of the message that says something, with the error's type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
