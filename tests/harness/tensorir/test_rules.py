"""Every rule refuses what it says, and holes in the compiler are real: it accepts what they refuse."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import fields
from typing import NamedTuple

import pytest
from schedules import apply_all, begin, schedule_step

from tirgym.errors import IllegalTransformError
from tirgym.harness.tensorir import rule_moves
from tirgym.harness.tensorir.handles import Handles
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.rule_limits import MAX_BLOCKS, MAX_LOOPS
from tirgym.harness.tensorir.rules import RULES, rules_for
from tirgym.harness.transforms import TRANSFORMS, load_transform, parse_transform


class Case(NamedTuple):
    """A program and a transform that a rule refuses; `hole`: the compiler alone would accept it."""

    kernel: str
    before: str
    step: str
    hole: bool = False
    num_threads: int = 1
    shape: tuple[tuple[str, int], ...] = ()
    arch: str = "cascadelake"
    backend: str = "llvm"


def on_gpu(kernel: str, before: str, step: str, hole: bool = True, **shape: int) -> Case:
    """A case on a backend with thread axes."""
    return Case(kernel, before, step, hole, 1, tuple(shape.items()), "sm_90", "cuda")


BLOCKS = "Bind(loop=0, thread='blockIdx.x')"
SOFTMAX = (("m", 8), ("n", 16))
CASES: dict[str, list[Case]] = {
    "exists": [
        Case("chain", "", "Split(loop=4, factor=2)"),
        Case("chain", "", "ComputeAt(block=2, loop=0)"),
        Case("chain", "", "ComputeAt(block=0, loop=4)"),
        Case("chain", "", "ComputeInline(block=2)"),
    ],
    "read exists": [Case("chain", "", "CacheRead(block=0, read=1)")],
    "no thread binding": [Case("chain", "", "Bind(loop=0, thread='threadIdx.x')", hole=True)],
    "blocks, then threads": [
        on_gpu("chain", "", "Bind(loop=1, thread='threadIdx.x')"),
        on_gpu("chain", BLOCKS, "Bind(loop=1, thread='blockIdx.x')"),
        on_gpu("chain", "Bind(loop=0, thread='threadIdx.x')", "Bind(loop=1, thread='blockIdx.x')"),
    ],
    "device limits": [
        on_gpu("add", BLOCKS, "Bind(loop=1, thread='threadIdx.x')", m=4, n=2048),
        on_gpu("add", BLOCKS, "Bind(loop=1, thread='threadIdx.z')", m=4, n=128),
    ],
    "threads apart": [
        on_gpu("row_max", BLOCKS, "Bind(loop=1, thread='threadIdx.x')", m=8, n=24),
        # every thread would add all terms to the same element of shared memory
        on_gpu(
            "row_max",
            "CacheWrite(block=0); Split(loop=2, factor=4); ComputeAt(block=0, loop=2); "
            f"SetScope(block=0, scope='shared'); {BLOCKS}",
            "Bind(loop=3, thread='threadIdx.x')",
            m=8,
            n=24,
        ),
    ],
    "vector types": [on_gpu("add", "", "Vectorize(loop=1)", m=4, n=8)],
    "memory exists": [Case("chain", "", "SetScope(block=0, scope='shared')", hole=True)],
    "memory of one": [on_gpu("chain", "", "SetScope(block=0, scope='shared')")],
    "sums shared out": [
        on_gpu(
            "row_max",
            f"CacheRead(block=0, read=0); {BLOCKS}; Bind(loop=1, thread='threadIdx.x')",
            "ReverseComputeAt(block=1, loop=0)",
            m=8,
            n=24,
        )
    ],
    "parameters": [
        Case("chain", "", "UnrollPragma(loop=0, max_step=100000)", hole=True),
        Case("chain", "", "SetScope(block=0, scope='wmma.accumulator')", hole=True),
        Case("chain", "", "StorageAlign(block=0, factor=16, offset=16)"),
        Case("chain", "", "TransformLayout(block=0, axis=0, factor=0)"),
        Case("matmul", "", "PadEinsum(block=0, factor=1)"),
        Case("matmul", "", "PadAxis(block=0, axis=0, factor=1)"),
        Case("byte_dots", "", "Tensorize(loop=0, intrinsic='no_such')"),
        Case("chain", "", "StorePrecision(block=0, dtype='int8')", hole=True),
    ],
    "factor divides": [
        Case("chain", "", "Split(loop=0, factor=3)", hole=True),
        Case("chain", "", "Split(loop=0, factor=16)", hole=True),
        Case("chain", "", "Split(loop=0, factor=1)", hole=True),
    ],
    "perfect nest": [Case("chain", "", "Reorder(loop=1)"), Case("chain", "", "Fuse(loop=1)")],
    "vectorized is frozen": [
        Case("chain", "Vectorize(loop=1)", "Split(loop=1, factor=8)", hole=True),
        Case("chain", "Vectorize(loop=1)", "Reorder(loop=0)", hole=True),
        Case("chain", "Vectorize(loop=1)", "Fuse(loop=0)", hole=True),
    ],
    "parallel is frozen": [
        Case("chain", "Parallel(loop=0)", "Reorder(loop=0)", True, 2),
        Case("chain", "Parallel(loop=0)", "Split(loop=0, factor=2)", True, 2),
    ],
    "annotated is frozen": [
        Case("chain", "UnrollPragma(loop=0, max_step=16)", "Split(loop=0, factor=2)")
    ],
    "serial": [Case("chain", "Unroll(loop=0)", "Unroll(loop=0)", hole=True)],
    "one pragma": [Case("chain", "", "UnrollPragma(loop=1, max_step=16)", hole=True)],
    "ordered block": [Case("prefix", "", "Reorder(loop=0)", hole=True)],
    "no reordering of recomputed sums": [Case("recomputed", "", "Reorder(loop=1)", hole=True)],
    "sums start at zero": [
        Case(
            "row_max",
            "Fuse(loop=0); Split(loop=0, factor=64)",
            "Reorder(loop=0)",
            hole=True,
            shape=(("m", 8), ("n", 24)),
        )
    ],
    "vector body": [
        Case("chain", "ComputeAt(block=0, loop=2)", "Vectorize(loop=0)", hole=True),
        Case("chain", "", "Vectorize(loop=0)", hole=True),
    ],
    "vector extent": [
        Case("add", "", "Vectorize(loop=1)", hole=True, shape=(("m", 4), ("n", 128)))
    ],
    "vector lanes": [Case("repeated", "Reorder(loop=0)", "Vectorize(loop=1)", hole=True)],
    "unroll extent": [
        Case("chain", "", "Unroll(loop=1)", hole=True),
        Case(
            "chain",
            "Split(loop=1, factor=8); Unroll(loop=0)",
            "Unroll(loop=2)",
            hole=True,
        ),
    ],
    "threads": [Case("chain", "", "Parallel(loop=0)", hole=True)],
    "parallel outermost": [Case("chain", "", "Parallel(loop=1)", True, 2)],
    "parallel writes": [Case("repeated", "", "Parallel(loop=0)", True, 2)],
    "reduction below": [Case("chain", "", "DecomposeReduction(loop=0)")],
    "no decomposition above recomputation": [
        Case(
            "softmax",
            "ComputeAt(block=2, loop=7)",
            "DecomposeReduction(loop=4)",
            hole=True,
            shape=SOFTMAX,
        )
    ],
    "rfactor memory": [
        Case("matmul", "", "RFactor(loop=2)", True, shape=(("m", 2048), ("n", 2048), ("k", 64)))
    ],
    "rfactor once": [Case("recomputed", "", "RFactor(loop=2)", hole=True)],
    "rfactor siblings": [
        Case("matmul", "CacheWrite(block=0); ReverseComputeAt(block=1, loop=1)", "RFactor(loop=2)"),
        Case("total", "CacheWrite(block=0)", "RFactor(loop=0)"),
    ],
    "no moves of vectorized code": [
        Case("chain", "Vectorize(loop=3)", "ComputeAt(block=0, loop=3)", hole=True),
        Case("chain", "Vectorize(loop=1)", "ReverseComputeAt(block=1, loop=1)", hole=True),
    ],
    "not overwritten": [Case("rewritten", "", "ComputeAt(block=1, loop=3)")],
    "no partial sums": [
        Case("softmax", "", "ReverseComputeAt(block=1, loop=1)", hole=True, shape=SOFTMAX)
    ],
    "direct reads": [
        Case("gather", "CacheRead(block=0, read=0)", "ComputeAt(block=0, loop=2)", hole=True)
    ],
    "no idle recomputation": [
        Case("broadcast", "ComputeAt(block=1, loop=3)", "ComputeAt(block=2, loop=4)", hole=True),
        Case("broadcast", "ComputeAt(block=1, loop=3)", "ComputeInline(block=2)", hole=True),
    ],
    "needs a producer": [Case("chain", "", "ReverseComputeAt(block=0, loop=2)", hole=True)],
    "plain reads": [
        Case("pad", "CacheRead(block=0, read=0)", "ReverseComputeAt(block=1, loop=1)", hole=True),
        Case(
            "concat", "CacheRead(block=0, read=0)", "ReverseComputeAt(block=1, loop=1)", hole=True
        ),
    ],
    "dense region": [
        Case(
            "chain",
            "Split(loop=1, factor=8); Reorder(loop=1)",
            "ReverseComputeAt(block=1, loop=1)",
            hole=True,
        )
    ],
    "sums stay whole": [
        Case(
            "softmax",
            "ReverseComputeAt(block=2, loop=2); ReverseComputeAt(block=3, loop=2)",
            "ReverseComputeAt(block=2, loop=3)",
            hole=True,
            shape=SOFTMAX,
        )
    ],
    "sole reader": [
        Case("silu", "ComputeInline(block=1)", "ReverseComputeInline(block=1)", hole=True)
    ],
    "whole producer": [
        Case(
            "skinny_matmul",
            "PadEinsum(block=0, factor=16); CacheRead(block=2, read=0)",
            "ReverseComputeInline(block=3)",
            hole=True,
            shape=(("m", 3), ("n", 20), ("k", 14)),
        )
    ],
    "no divided mirrors": [
        Case("reversed", "ComputeInline(block=0)", "ReverseComputeInline(block=1)", hole=True),
        Case(
            "reversed",
            "TransformLayout(block=0, axis=0, factor=8)",
            "ComputeInline(block=1)",
            hole=True,
        ),
    ],
    "no mirrored layout": [
        Case("reversed", "", "TransformLayout(block=1, axis=0, factor=8)", hole=True),
        Case(
            "reversed",
            "ComputeInline(block=1)",
            "TransformLayout(block=0, axis=0, factor=8)",
            hole=True,
        ),
    ],
    "unguarded stages": [
        Case(
            "pad",
            "Fuse(loop=0); CacheRead(block=0, read=0); Split(loop=2, factor=4); "
            "ComputeAt(block=0, loop=3)",
            step,
            hole=True,
            shape=(("m", 12), ("n", 26)),
        )
        for step in ("CacheWrite(block=0)", "CacheRead(block=1, read=0)")
    ],
    "parallel stages": [
        Case(
            "broadcast",
            "Parallel(loop=2); ComputeAt(block=1, loop=3)",
            "CacheWrite(block=1)",
            True,
            2,
        )
    ],
    "work": [Case("softmax", "", "ComputeAt(block=0, loop=3)", True, shape=(("m", 8), ("n", 512)))],
    "intermediates only": [
        Case("chain", "", "SetScope(block=1, scope='local')"),
        Case("chain", "", "TransformLayout(block=1, axis=0, factor=1)", hole=True),
        Case("chain", "", "StorePrecision(block=1, dtype='float16')"),
    ],
    "another scope": [Case("chain", "", "SetScope(block=0, scope='global')", hole=True)],
    "alignment stays": [
        Case(
            "chain",
            "StorageAlign(block=0, factor=16, offset=0)",
            "StorageAlign(block=0, factor=64, offset=16)",
            hole=True,
        ),
        Case(
            "chain",
            "StorageAlign(block=0, factor=16, offset=0)",
            "ReverseComputeInline(block=1)",
            hole=True,
        ),
    ],
    "rows to align": [
        Case("softmax", "", "StorageAlign(block=0, factor=16, offset=0)", shape=SOFTMAX)
    ],
    "layout fits": [
        Case("chain", "", "TransformLayout(block=0, axis=1, factor=1)", hole=True),
        Case("chain", "", "TransformLayout(block=0, axis=0, factor=32)"),
        Case("chain", "", "TransformLayout(block=0, axis=2, factor=8)"),
    ],
    "contraction": [
        Case("chain", "", "PadEinsum(block=0, factor=8)"),
        Case("row_max", "", "PadEinsum(block=0, factor=16)", True, shape=(("m", 7), ("n", 30))),
    ],
    "padding": [
        Case("matmul", "", "PadEinsum(block=0, factor=8)", shape=(("m", 16), ("n", 24), ("k", 32))),
        Case("matmul", "", "PadAxis(block=0, axis=3, factor=16)"),
        Case("multiplied", "", "PadAxis(block=0, axis=1, factor=8)", hole=True),
    ],
    "instruction exists": [
        Case(
            "byte_dots",
            "Split(loop=1, factor=16); Split(loop=3, factor=4); Reorder(loop=2); "
            "DecomposeReduction(loop=2)",
            "Tensorize(loop=4, intrinsic='dot_16x4_vnni')",
            hole=True,
            arch="haswell",
        )
    ],
    "scalar body": [
        Case(
            "transpose",
            "Split(loop=0, factor=8); Split(loop=2, factor=8); Reorder(loop=1); "
            "Tensorize(loop=2, intrinsic='transpose_8x8')",
            "Vectorize(loop=1)",
            hole=True,
            shape=(("m", 16), ("n", 32)),
        )
    ],
    "like the intrinsic": [
        Case(
            "transpose",
            "Split(loop=0, factor=8); Split(loop=2, factor=8); Reorder(loop=1)",
            "Tensorize(loop=2, intrinsic='transpose_16x16')",
            shape=(("m", 16), ("n", 32)),
        ),
        Case(
            "matmul",
            "Split(loop=0, factor=8); Split(loop=2, factor=8); Reorder(loop=1)",
            "Tensorize(loop=2, intrinsic='transpose_8x8')",
            shape=(("m", 16), ("n", 32), ("k", 1)),
        ),
        Case(
            "row_dots",
            "Split(loop=1, factor=16); Split(loop=3, factor=4); Reorder(loop=2); "
            "DecomposeReduction(loop=2)",
            "Tensorize(loop=4, intrinsic='dot_16x4_vnni')",
            hole=True,
        ),
    ],
    "names once": [
        Case("softmax", "VectorMath(block=1)", "ComputeInline(block=1)", True, shape=SOFTMAX),
        Case("squared_exp", "VectorMath(block=0)", "ReverseComputeInline(block=1)", hole=True),
    ],
    "calls with a form": [
        Case("chain", "", "VectorMath(block=0)", hole=True),
        Case("softmax", "VectorMath(block=1)", "VectorMath(block=1)", hole=True, shape=SOFTMAX),
    ],
    "float32 calls": [Case("wide_exp", "", "VectorMath(block=0)", hole=True)],
    "float": [
        Case("int8_gemm", "CacheWrite(block=0)", "StorePrecision(block=0, dtype='float16')", True)
    ],
}
ON_FRAGMENTS = {"whole warps", "fragments stay"}
"""tested in transforms/test_tensor_cores.py"""
OF_PIPELINES = {"pipeline is frozen", "shared memory", "copies ahead", "pipeline stays whole"}
"""tested in transforms/test_software_pipeline.py"""
ELSEWHERE = {"loop cap", "block cap", "inline size", "body size", *ON_FRAGMENTS, *OF_PIPELINES}
ALL = [(rule, case) for rule, cases in CASES.items() for case in cases]


def _program(case: Case) -> TensorIRProgram:
    start = begin(case.kernel, case.num_threads, case.arch, case.backend, **dict(case.shape))
    return apply_all(start, case.before)


def _compiler_accepts(program: TensorIRProgram, step: str) -> bool:
    schedule = program.schedule
    try:
        schedule_step(step).apply_to(schedule, Handles(schedule, program.nest))
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
        return False
    return True


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert set(CASES) | ELSEWHERE == set(names)


@pytest.mark.parametrize(("rule", "case"), ALL, ids=[f"{r}: {c.kernel} {c.step}" for r, c in ALL])
def test_rule_refuses(rule: str, case: Case) -> None:
    program = _program(case)
    before = program.text()
    error = program.why_illegal(parse_transform(case.step))
    assert error is not None
    assert error.rule == rule
    reason = next(r.reason for r in RULES if r.name == rule)
    assert reason in str(error)
    assert case.step in str(error)
    with pytest.raises(IllegalTransformError):
        program.apply(parse_transform(case.step))
    assert program.text() == before
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize(
    "case",
    [c for _, c in ALL if c.hole],
    ids=[f"{r}: {c.kernel} {c.step}" for r, c in ALL if c.hole],
)
def test_the_compiler_alone_would_accept(case: Case) -> None:
    assert _compiler_accepts(_program(case), case.step)


def test_location_names_the_node() -> None:
    error = begin("chain").why_illegal(parse_transform("Reorder(loop=1)"))
    assert error is not None
    assert error.location == "loop 1 (j)"
    error = begin("chain").why_illegal(parse_transform("SetScope(block=1, scope='local')"))
    assert error is not None
    assert error.location == "block 1 (C)"


@pytest.mark.parametrize("number", [10**6, 2**31, 2**36, 2**62, 2**64, 10**30, -1, -(2**62)])
@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_numbers_of_any_size_are_refused_at_once(name: str, number: int) -> None:
    """A mask of the loop 2**36 took 18 GB."""
    program, kind = begin("chain"), load_transform(name)
    words = {field.name: field.type in ("str", str) for field in fields(kind)}  # type: ignore[arg-type]
    for changed in (field for field, is_word in words.items() if not is_word):
        values = {field: "local" if is_word else 0 for field, is_word in words.items()}
        tracemalloc.start()
        transform = kind(**{**values, changed: number})
        assert not program.is_legal(transform)
        assert program.why_illegal(transform) is not None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def test_loop_cap() -> None:
    program = begin("matmul", m=1024, n=1024, k=1024)
    split = 0
    while len(program.nest.loops) < MAX_LOOPS:
        loops = program.nest.loops
        step = next(
            (f"Split(loop={x.index}, factor=2)" for x in loops if x.extent > 2),
            f"CacheRead(block={len(program.nest.blocks) - 1}, read={split % 2})",
        )
        split += step.startswith("Cache")
        program = program.apply(parse_transform(step))
    error = program.why_illegal(parse_transform("CacheWrite(block=0)"))
    assert error is not None
    assert error.rule == "loop cap"


def test_block_cap() -> None:
    program = begin("chain")
    while len(program.nest.blocks) < MAX_BLOCKS:
        program = program.apply(parse_transform("CacheRead(block=0, read=0)"))
    error = program.why_illegal(parse_transform("CacheRead(block=0, read=0)"))
    assert error is not None
    assert error.rule == "block cap"


def test_inline_size(monkeypatch: pytest.MonkeyPatch) -> None:
    step = parse_transform("ComputeInline(block=0)")
    assert begin("chain").why_illegal(step) is None
    monkeypatch.setattr(rule_moves, "MAX_EXPRESSION", 5)
    error = begin("chain").why_illegal(step)
    assert error is not None
    assert error.rule == "inline size"


def test_rules_are_split_into_those_by_row_and_the_others() -> None:
    for kind in {name for rule in RULES for name in rule.kinds}:
        both = rules_for(kind, by_row=True) + rules_for(kind, by_row=False)
        assert sorted(r.name for r in both) == sorted(r.name for r in rules_for(kind))
