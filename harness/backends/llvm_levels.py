"""What the compiler makes of a program on the way to machine code: lowered TIR, pass by pass."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir.instrument import pass_instrument

from tirgym.harness.backends.llvm_options import Compiler

__all__ = ["PassRecord", "lowered_module", "render_passes", "run_passes"]


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One compiler pass: how long it took and what it made of the IR."""

    name: str
    seconds: float
    """wall time of the pass alone, printing excluded"""
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether the IR reads differently afterwards."""
        return self.before != self.after


class _Recorder:
    """Records the passes that contain no other pass; TVM calls it before and after each one."""

    def __init__(self) -> None:
        self.records: list[PassRecord] = []
        self._open: list[tuple[str, bool]] = []
        """(IR before, whether a pass ran inside) of each pass that is running"""
        self._last = ""
        self._started = 0.0

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if self._open:
            self._open[-1] = (self._open[-1][0], True)
        self._last = self._last or mod.script()
        self._open.append((self._last, False))
        self._started = time.perf_counter()

    def run_after_pass(self, mod: Any, info: Any) -> None:
        seconds = time.perf_counter() - self._started
        before, contains_others = self._open.pop()
        if not contains_others:
            self._last = mod.script()
            self.records.append(PassRecord(str(info.name), seconds, before, self._last))


def lowered_module(mod: Any, compiler: Compiler) -> Any:
    """`mod` after the whole lowering pipeline of `compiler`: what code generation is given.

    The same passes as `tvm.compile`, which are the "s_tir" pipeline and its host passes. Raises
    what the compiler raises.
    """
    return _lowered(mod, compiler, [])


def _lowered(mod: Any, compiler: Compiler, instruments: list[Any]) -> Any:
    target = compiler.target.with_host(compiler.target)
    pipeline, finalize_host = compiler.passes()
    context = tvm.transform.PassContext(config=dict(compiler.config), instruments=instruments)
    with target, context:
        bound = tvm.tirx.transform.BindTarget(target)(mod)
        return finalize_host(pipeline(bound))


def run_passes(mod: Any, compiler: Compiler) -> tuple[PassRecord, ...]:
    """Lower and compile `mod` and record every pass in order; the last one is LLVM's."""
    recorder = pass_instrument(_Recorder)()
    lowered = _lowered(mod, compiler, [recorder])
    records: list[PassRecord] = recorder.records
    started = time.perf_counter()
    generated = tvm.get_global_func("target.build.llvm")(lowered, compiler.target)
    seconds = time.perf_counter() - started
    llvm_ir = generated.inspect_source("ll")
    return (*records, PassRecord("LLVM", seconds, lowered.script(), llvm_ir))


def render_passes(records: Sequence[PassRecord]) -> str:
    """A table of all passes, then for each that changed the IR a unified diff.

    The last record, code generation, shows no diff: its input and output are two languages.
    """
    total = sum(record.seconds for record in records)
    width = max((len(record.name) for record in records), default=0)
    lines = [f"{len(records)} passes, {total * 1e3:.2f} ms"]
    for i, record in enumerate(records):
        mark = "changed" if record.changed else ""
        lines.append(
            f"{i:3}  {record.name:{width}}  {record.seconds * 1e3:9.3f} ms  {mark}".rstrip()
        )
    for i, record in enumerate(records):
        if not record.changed:
            continue
        lines += ["", f"== {i} {record.name} =="]
        if i == len(records) - 1:
            lines.append(record.after)
            continue
        before, after = record.before.splitlines(), record.after.splitlines()
        lines += difflib.unified_diff(before, after, "before", "after", lineterm="")
    return "\n".join(lines)
