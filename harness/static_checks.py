"""`static_checks`: what can be said about a program before it is built.

An error is certain: the program is wrong or cannot be compiled in reasonable time. What cannot be
decided is a note, never an error, so that no legal schedule is refused; the numeric gate decides.
The rules are the literal list `RULES`, each a function with a test that breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

import tvm
from tvm import s_tir
from tvm.s_tir.schedule import _ffi_api as schedule_ffi

from tirgym.errors import InvalidValueError
from tirgym.harness.program import Program
from tirgym.harness.static_body import BodyFacts, function_facts, parameters
from tirgym.harness.static_ops import block_ops
from tirgym.harness.static_writes import collisions, coverage, outside_reads
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.nest import UNROLLED, VECTORIZED, Loop, LoopNest, read_nest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rule_threads import axes_of, thread_fault
from tirgym.kernels_suite.kernel import Workload

__all__ = [
    "RULES",
    "STATEMENT_LIMIT",
    "Finding",
    "Severity",
    "errors_only",
    "statement_count",
    "static_checks",
]

STATEMENT_LIMIT = 16_384
"""Most statements after unrolling; a fully unrolled 32³ matmul has 32,768 and compiles for minutes."""


class Severity(StrEnum):
    """How certain a finding is."""

    ERROR = "error"
    """the program is wrong, or not to be compiled"""
    INFO = "info"
    """could not be decided"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a static check has to say."""

    severity: Severity
    rule: str
    """name of the rule, such as "bounds" """
    location: str
    """loop, block or buffer, "" for the whole program"""
    message: str

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        return f"{self.severity.value} [{self.rule}]{where}: {self.message}"


@dataclass(frozen=True)
class Subject:
    """What the rules look at: the program, and the facts of its unscheduled form."""

    program: TensorIRProgram
    mod: Any
    nest: LoopNest
    facts: BodyFacts
    origin: Origin

    @cached_property
    def completed(self) -> TensorIRProgram | None:
        """The program with every loop bound that is left to completion; None where TVM refuses."""
        try:
            return completed(self.program)
        except (RuntimeError, ValueError, TypeError):
            return None

    @cached_property
    def affine(self) -> list[bool]:
        """For each block: whether the compiler sees its bindings as one-to-one with its loops."""
        state = self.program.schedule.state
        flags = []
        for block in self.nest.blocks:
            sref = schedule_ffi.ScheduleStateGetSRef(state, block.facts.node)
            flags.append(bool(schedule_ffi.ScheduleStateGetCachedFlags(state, sref)[0]))
        return flags


@dataclass(frozen=True)
class Origin:
    """Facts of the unscheduled program of a workload."""

    facts: BodyFacts
    parameters: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[int, ...]
    """positions of the parameters that are written"""
    dtypes: frozenset[str]
    """dtypes of all its buffers"""


@lru_cache(maxsize=256)
def _origin(workload: Workload) -> Origin:
    func = workload.kernel.build(workload.shape).with_attr("global_symbol", "main")
    mod = tvm.IRModule({"main": func})
    facts, given = function_facts(mod), parameters(mod)
    written = {a.buffer.handle for b in read_nest(mod).blocks for a in b.facts.writes}
    outputs = tuple(i for i, p in enumerate(mod["main"].params) if hash(p) in written)
    dtypes = facts.stores | {dtype for _, dtype in given}
    return Origin(facts, given, outputs, frozenset(dtypes))


def _error(rule: str, location: str, message: str) -> Finding:
    return Finding(Severity.ERROR, rule, location, message)


def _info(rule: str, location: str, message: str) -> Finding:
    return Finding(Severity.INFO, rule, location, message)


def _telling_line(error: BaseException) -> str:
    """The line of a compiler error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if line.startswith("Error message:"):
            return line.removeprefix("Error message:").strip()
    return lines[0] if lines else type(error).__name__


def well_formed(subject: Subject) -> Iterator[Finding]:
    """The compiler's verifier: every variable defined once, blocks closed."""
    if s_tir.analysis.verify_well_formed(subject.mod, assert_mode=False):
        return
    try:
        s_tir.analysis.verify_well_formed(subject.mod, assert_mode=True)
    except (RuntimeError, ValueError, TypeError) as error:
        yield _error("well-formed", "", _telling_line(error))


def threads(subject: Subject) -> Iterator[Finding]:
    """On backends with thread axes: kernels, blocks and threads are sound once all is bound.

    That the host touches no memory of the device is verified by TVM itself as it lowers them.
    """
    limits = device_limits(subject.program.target)
    if limits is None:
        return
    if subject.completed is None:
        yield _error("threads", "", "the loops that are left cannot be bound to threads")
        return
    facts = subject.completed.facts
    fault = thread_fault(facts, limits, axes_of(facts))
    if fault is not None:
        yield _error("threads", fault.where, fault.message)


def bounds(subject: Subject) -> Iterator[Finding]:
    """No access outside its buffer: the compiler's checker, and index ranges.

    The compiler's checker does not see that a condition guards an access, so it is not asked where
    there are conditions.
    """
    nest = subject.nest
    guarded = any(b.has_predicate or block_ops(b.facts.node).branches for b in nest.blocks)
    if not guarded:
        try:
            s_tir.analysis.OOBChecker()(subject.mod)
        except (RuntimeError, ValueError, TypeError) as error:
            yield _error("bounds", "", _telling_line(error))
            return
    for block, message in outside_reads(nest):
        yield _error("bounds", f"block {block}", message)


def signature(subject: Subject) -> Iterator[Finding]:
    """Parameters as in the unscheduled program, and one function."""
    names = sorted(str(variable.name_hint) for variable in subject.mod.functions)
    if names != ["main"]:
        yield _error("signature", "", f"functions {', '.join(names)} instead of main alone")
    given = parameters(subject.mod)
    if given != subject.origin.parameters:
        shown, expected = _show(given), _show(subject.origin.parameters)
        yield _error("signature", "", f"parameters {shown} instead of {expected}")


def _show(given: tuple[tuple[tuple[int, ...], str], ...]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in given)


def writes(subject: Subject) -> Iterator[Finding]:
    """Every element of every output is written, and nothing outside."""
    params = subject.mod["main"].params
    known = {
        access.buffer.handle: access.buffer
        for block in subject.nest.blocks
        for access in block.facts.writes
    }
    for position in subject.origin.outputs:
        if position >= len(params):
            continue
        buffer = known.get(hash(params[position]))
        if buffer is None:
            name = str(params[position].name)
            yield _error("writes", f"output {name}", "no block writes it")
            continue
        found = coverage(subject.nest, buffer, subject.affine)
        where = f"output {found.buffer}"
        if found.missed:
            yield _error("writes", where, found.missed)
        if found.outside:
            yield _error("bounds", where, found.outside)
        if not found.proved and not found.missed:
            yield _info("writes", where, "not proved that every element is written")


def races(subject: Subject) -> Iterator[Finding]:
    """No element is shared by iterations of a parallel or vectorized loop if one writes it."""
    if not any(loop.kind not in (0, UNROLLED) for loop in subject.nest.loops):
        return
    for found in collisions(subject.nest, subject.affine):
        make = _error if found.certain else _info
        message = found.message if found.certain else f"not proved: {found.message}"
        yield make("races", f"{found.loop}, block {found.block}", message)


def dtypes(subject: Subject) -> Iterator[Finding]:
    """Values are stored, added up and converted in the types of the unscheduled program."""
    facts, origin = subject.facts, subject.origin
    for dtype in sorted(facts.stores - origin.dtypes):
        known = ", ".join(sorted(origin.dtypes))
        yield _error("dtypes", "", f"stores {dtype}; the unscheduled program has only {known}")
    for dtype in sorted((facts.accumulators & origin.dtypes) - origin.facts.accumulators):
        known = ", ".join(sorted(origin.facts.accumulators)) or "nothing"
        yield _error("dtypes", "", f"accumulates in {dtype}, the unscheduled program in {known}")
    for given, made in sorted(facts.casts - origin.facts.casts):
        if not _index_cast(given, made) and not _wider(given, made, origin.dtypes):
            yield _error(
                "dtypes", "", f"converts {given} to {made}; the unscheduled program does not"
            )


def _index_cast(given: str, made: str) -> bool:
    """Between index types, which scheduling may introduce."""
    return given in ("int32", "int64") and made in ("int32", "int64")


def _wider(given: str, made: str, dtypes: frozenset[str]) -> bool:
    """To float64 and back in a program that has no float64 itself, so that nothing is lost."""
    floats = {given, made}
    return "float64" in floats and floats <= {"float64", *dtypes} and "float64" not in dtypes


def foreign(subject: Subject) -> Iterator[Finding]:
    """No code from outside the IR that the unscheduled program lacks."""
    for call in sorted(subject.facts.foreign - subject.origin.facts.foreign):
        yield _error("foreign", "", f"runs code from outside the IR: {call}")
    for kind in sorted(subject.facts.opaque - subject.origin.facts.opaque):
        yield _info("foreign", "", f"{kind} statements are not analysed")


def size(subject: Subject) -> Iterator[Finding]:
    """The program does not explode when loops are unrolled."""
    count = statement_count(subject.nest)
    if count > STATEMENT_LIMIT:
        message = f"about {count} statements after unrolling; the limit is {STATEMENT_LIMIT}"
        yield _error("size", "", message)


def statement_count(nest: LoopNest) -> int:
    """Statements after the compiler has unrolled what is marked, in units of one machine vector."""
    total = 0
    for block in nest.blocks:
        copies = 1
        for i in block.chain:
            loop = nest.loops[i]
            if loop.kind == UNROLLED:
                copies *= max(1, loop.extent)
            elif loop.kind == VECTORIZED:
                copies *= max(1, _vector_copies(loop))
        total += copies * (2 if block.facts.has_init else 1)
    return total


def _vector_copies(loop: Loop) -> int:
    """Machine instructions of one statement on a vector: lanes / 8, or lanes if no power of two."""
    extent = max(1, loop.extent)
    return -(-extent // 8) if extent & (extent - 1) == 0 else extent


Rule = Callable[[Subject], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    well_formed,
    signature,
    bounds,
    writes,
    races,
    dtypes,
    foreign,
    threads,
    size,
)
"""In order; all are asked."""


def static_checks(program: Program) -> tuple[Finding, ...]:
    """Everything the rules say about `program`, in the order of `RULES`; empty when all is proved.

    Raises InvalidValueError for a program in another dialect than TensorIR.
    """
    if not isinstance(program, TensorIRProgram):
        raise InvalidValueError("dialect of the static checks", program.dialect, "tensorir")
    mod = program.mod
    facts = function_facts(mod)
    subject = Subject(program, mod, program.nest, facts, _origin(program.workload))
    return tuple(finding for rule in RULES for finding in rule(subject))


def errors_only(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that make a program ILLEGAL."""
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)
