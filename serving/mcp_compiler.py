"""What a session asks of the compiler itself, in a process that may crash or be ended.

Code generation can run for minutes or bring its process down; a session outlives both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tirgym.errors import UsageError, WorkerDiedError
from tirgym.harness.backend import backend
from tirgym.harness.channel import DeadlineError
from tirgym.harness.evaluation_run import static_finding
from tirgym.harness.program import Program
from tirgym.harness.replay import replay
from tirgym.harness.static_profile import static_profile
from tirgym.harness.trace import Trace
from tirgym.harness.worker import RemoteError, Worker, WorkerLimits

__all__ = ["Compiler", "compiled_text", "instructions_of"]

_OPERATIONS = "tirgym.serving.mcp_compiler:Compiler"
_TIMEOUT_S = 60.0


class Compiler:
    """The requests that the process answers, by method name."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def text(self, trace: str, level: str) -> str:
        """The program of a trace at an IR level."""
        program = replay(Trace.from_json(trace))
        return backend(program.target.backend).ir_level(program, level)

    def instructions(self, trace: str) -> dict[str, float]:
        """Instruction counts of the program of a trace; empty where machine code is not read."""
        mix = static_profile(replay(Trace.from_json(trace))).mix
        return {} if mix is None else {k: v for k, v in asdict(mix).items() if _is_number(v)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compiled_text(program: Program, trace: Trace, level: str) -> str:
    """`program`, which `trace` makes, at an IR level; raises UsageError if the compiler refuses."""
    return str(_ask(program, trace, "text", level))


def instructions_of(program: Program, trace: Trace) -> dict[str, float]:
    """Instructions in the machine code of `program` by kind; empty where they are not counted."""
    found: dict[str, float] = _ask(program, trace, "instructions")
    return found


def _ask(program: Program, trace: Trace, operation: str, *arguments: str) -> Any:
    finding = static_finding(program, size_only=True)
    if finding:
        raise UsageError(f"the program is too large to compile: {finding}; level tir shows it")
    worker = Worker(WorkerLimits(), _OPERATIONS)
    try:
        return worker.call(operation, trace.to_json(), *arguments, timeout_s=_TIMEOUT_S)
    except RemoteError as error:
        raise UsageError(f"the compiler refuses the program: {error.message}") from None
    except DeadlineError:
        raise UsageError(f"the compiler did not end in {_TIMEOUT_S:.0f} s") from None
    except WorkerDiedError as error:
        raise UsageError(f"the compiler crashed on the program: {error}") from None
    finally:
        worker.kill()
