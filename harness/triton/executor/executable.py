"""`Executable`: a module of Triton IR that runs on NumPy, all programs of a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.harness.status import Status
from tirgym.harness.triton.executor.accesses import ACCESSES
from tirgym.harness.triton.executor.control import CONTROL, CompiledRegion, compile_region
from tirgym.harness.triton.executor.elementwise import ELEMENTWISE
from tirgym.harness.triton.executor.faults import Diverged, Fault, uncovered
from tirgym.harness.triton.executor.gpu import GPU
from tirgym.harness.triton.executor.ir import Module, Operation, Region
from tirgym.harness.triton.executor.memory import GlobalMemory
from tirgym.harness.triton.executor.numbers import Array, compute_dtype, is_covered
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.harness.triton.executor.shaping import SHAPING
from tirgym.harness.triton.executor.shared import Unfinished
from tirgym.harness.triton.executor.steps import Compile, Frame, Run, Step
from tirgym.harness.triton.executor.types import PointerType, TensorType

__all__ = ["COVERED", "Executable", "uncovered_operations"]

COVERED: dict[str, Compile] = {**ELEMENTWISE, **SHAPING, **ACCESSES, **GPU, **CONTROL}
"""Every operation that the executor covers → how it is compiled; terminators aside."""

BATCH_ELEMENTS = 1 << 20
"""Programs that run together: as many as keep their largest tensors within this many elements."""
STEP_LIMIT = 20_000_000
"""Operations that one launch may execute, those of one batch counted once."""
_NO_STEP = frozenset({"scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br",
                      "tt.reduce.return", "tt.scan.return"})  # fmt: skip


def uncovered_operations(module: Module) -> tuple[Operation, ...]:
    """Operations that `Executable` would refuse for their name, in the order of the text."""
    return tuple(o for o in module.walk() if o.name not in COVERED and o.name not in _NO_STEP)


class _Compiler:
    """Compiles a module; functions when they are first called."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._functions: dict[str, CompiledRegion] = {}
        self._open: set[str] = set()

    def body(self, region: Region) -> CompiledRegion:
        return compile_region(region, self._step)

    def called(self, name: str, operation: Operation) -> CompiledRegion:
        if name in self._open:
            raise uncovered(operation, "recursion")
        if name not in self._functions:
            self._open.add(name)
            self._functions[name] = self.body(self._module.function(name).body)
            self._open.discard(name)
        return self._functions[name]

    def _step(self, operation: Operation) -> Step:
        compile_one = COVERED.get(operation.name)
        if compile_one is None:
            raise uncovered(operation)
        for value in (*operation.operands, *operation.results):
            if not is_covered(value.type):
                raise uncovered(operation, f"the type {value.type}")
        return compile_one(operation, self)


class Executable:
    """Runs a kernel on arrays, in place; made once, run often.

    Raises Fault with status INCOMPLETE when it is made from a module with an operation outside the
    coverage: such a program is never half executed.
    """

    def __init__(self, module: Module, *, step_limit: int = STEP_LIMIT) -> None:
        self.module = module
        self.step_limit = step_limit
        self._function = module.function()
        self._body = _Compiler(module).body(self._function.body)
        self._numbers = [value.number for value in self._function.arguments]
        largest = 1
        for operation in module.walk():
            for value in operation.results:
                if isinstance(value.type, TensorType):
                    largest = max(largest, math.prod(value.type.shape))
        self._batch = max(1, BATCH_ELEMENTS // largest)

    @classmethod
    def of(cls, text: str, source: str = "<text>") -> Executable:
        """From IR text; raises DamagedFileError, or Fault for what is not covered."""
        return cls(parse_module(text, source))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Type of each argument, as text."""
        return tuple(str(value.type) for value in self._function.arguments)

    def run(self, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Execute every program of `grid`.

        `arguments`: for each parameter a C-contiguous array (pointers) or a number; a pair (name,
        array) names the buffer in messages. Raises Fault when a program does what it must not, and
        InvalidValueError when the arguments do not fit the parameters.
        """
        x, y, z = (*(int(n) for n in grid), 1, 1)[:3]
        memory, values = self._bind(arguments)
        count = x * y * z
        flat = np.arange(count)
        ids = np.stack([flat % x, flat // x % y, flat // (x * y)]).astype(np.int32)
        left = self.step_limit
        with np.errstate(all="ignore"):
            for first in range(0, count, self._batch):
                batch = ids[:, first : first + self._batch]
                left = self._run_batch(batch, (x, y, z), memory, values, left)

    def _bind(self, arguments: Sequence[Any]) -> tuple[GlobalMemory, list[Any]]:
        """Memory with every array, and the value of each argument."""
        parameters = self._function.arguments
        if len(arguments) != len(parameters):
            accepted = f"{len(parameters)}: {', '.join(self.parameters)}"
            raise InvalidValueError("number of arguments", len(arguments), accepted)
        arrays: list[tuple[str, Array]] = []
        values: list[Any] = []
        for number, (parameter, given) in enumerate(zip(parameters, arguments, strict=True)):
            name, value = given if isinstance(given, tuple) else (f"argument {number}", given)
            if isinstance(parameter.type, PointerType):
                if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
                    raise InvalidValueError(name, type(value).__name__, "a C-contiguous array")
                values.append(len(arrays))
                arrays.append((name, value))
            elif isinstance(value, np.ndarray) or not is_covered(parameter.type):
                raise InvalidValueError(name, type(value).__name__, f"a number for {parameter}")
            else:
                values.append(np.array([value]).astype(compute_dtype(parameter.type.element))[0])
        memory = GlobalMemory(arrays)
        for number, parameter in enumerate(parameters):
            if isinstance(parameter.type, PointerType):
                values[number] = memory.address(values[number])
        return memory, values

    def _run_batch(
        self,
        ids: Array,
        grid: tuple[int, int, int],
        memory: GlobalMemory,
        values: list[Any],
        left: int,
    ) -> int:
        """Run programs together; where they diverge, take their writes back and run those that
        agree. Answers how many steps are left."""
        count = ids.shape[1]
        memory.undo = [] if count > 1 else None
        frame: Frame = [None] * self.module.values
        for number, value in zip(self._numbers, values, strict=True):
            frame[number] = value
        ones = (ids[0, 0], ids[1, 0], ids[2, 0])
        own = tuple(one if (row == one).all() else row for one, row in zip(ones, ids, strict=True))
        run = Run(memory, own, grid, count, left)
        try:
            self._body.run(frame, run)
        except Unfinished as early:
            problem = "race: read before its wait"
            raise Fault(Status.WRONG_RESULT, problem, "ttng.warp_group_dot", early.line) from None
        except Diverged as split:
            memory.take_back()
            left = run.steps_left
            groups = np.asarray(split.groups).reshape(-1)
            for group in range(int(groups.max()) + 1):
                left = self._run_batch(ids[:, groups == group], grid, memory, values, left)
            return left
        memory.undo = None
        return run.steps_left
