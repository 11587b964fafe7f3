"""Static checks: each rule with IR that breaks it, and silence about what is right."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.script import ir, tirx
from tvm.tirx import PrimFunc

from tirgym.errors import InvalidValueError
from tirgym.harness.static_checks import (
    RULES,
    Finding,
    Severity,
    errors_only,
    static_checks,
    well_formed,
)
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Kernel, Shape, Workload
from tirgym.kernels_suite.registry import kernel_names, load_kernel

TARGET = Target("llvm", "skylake-avx512", 2)

MATMUL = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 24), "float32"), C: T.Buffer((16, 24), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i in range(16):
            for j in range(24):
                for k in range(8):
                    with T.sblock("C"):
                        v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                        with T.init():
                            C[v_i, v_j] = T.float32(0.0)
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""
HALVE = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32, 8), "float32"), C: T.Buffer((32, 8), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        B = T.sblock_alloc_buffer((32, 8))
        for i, j in T.grid(32, 8):
            with T.sblock("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] * T.float32(0.5)
        for i, j in T.grid(32, 8):
            with T.sblock("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = B[v_i, v_j] + T.float32(1.0)
"""


def module(source: str, *changes: tuple[str, str]) -> tvm.IRModule:
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return tvm.script.from_source(source, extra_vars={"I": ir, "T": tirx}, check_well_formed=False)


def checked(source: str, *changes: tuple[str, str], backend: str = "llvm") -> tuple[Finding, ...]:
    """What the checks say about `source` after `changes`, against the unchanged program."""

    def build(shape: Shape) -> PrimFunc:
        return module(source)["main"]

    kernel = Kernel("k", "f", build, None, ({"n": 1},))
    schedule = Schedule(module(source, *changes), debug_mask="none")
    target = TARGET if backend == "llvm" else Target(backend, "sm_80")
    return static_checks(TensorIRProgram(Workload.of(kernel), target, (), schedule))


def errors(*arguments: object, **keywords: object) -> set[str]:
    return {f.rule for f in errors_only(checked(*arguments, **keywords))}  # type: ignore[arg-type]


GUARDED = HALVE.replace("A[v_i, v_j] *", "T.if_then_else(A[v_i, v_j] > 0.0, A[v_i, v_j], 1.0) *")
SCAN = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for z in range(1):
            with T.sblock("first"):
                v_z = T.axis.spatial(1, z)
                C[v_z] = A[v_z]
        for i in range(1, 32):
            with T.sblock("rest"):
                v_i = T.axis.opaque(32, i)
                C[v_i] = C[v_i - 1] + A[v_i]
"""
F16 = ' = T.sblock_alloc_buffer((32, 8), "float16")'
NARROW = [
    ("= A[v_i, v_j] * T.float32(0.5)", '= T.Cast("float16", A[v_i, v_j] * T.float32(0.5))'),
    ("= B[v_i, v_j]", '= T.Cast("float32", B[v_i, v_j])'),
]
ROUNDED = 'T.Cast("float32", T.Cast("float16", A[v_i, v_k])) *'
IMPORT = 'T.sblock_attr({"pragma_import_llvm": "x"})'
BIG = MATMUL.replace("16", "64").replace("24", "64")


@pytest.mark.parametrize("source", [MATMUL, HALVE, GUARDED])
def test_nothing_is_said_about_a_right_program(source: str) -> None:
    assert checked(source) == ()


@pytest.mark.parametrize(
    ("rule", "source", "changes"),
    [
        ("bounds", MATMUL, [("A[v_i, v_k]", "A[v_i, v_k + 1]")]),
        ("bounds", MATMUL, [("C[v_i, v_j]", "C[v_i, v_j + 1]")]),
        ("bounds", GUARDED, [("A[v_i, v_j]", "A[v_i, v_j + 1]")]),
        ("writes", MATMUL, [("range(24)", "range(23)")]),
        ("writes", HALVE, [("C[v_i, v_j] = B", "B[v_i, v_j] = B")]),
        ("writes", HALVE, [("C[v_i, v_j]", "C[v_i, 0]")]),
        ("races", MATMUL, [("range(8)", "T.parallel(8)")]),
        ("races", MATMUL, [("range(8)", "T.vectorized(8)")]),
        ("races", SCAN, [("range(1, 32)", "T.parallel(1, 32)")]),
        ("dtypes", HALVE, [(" = T.sblock_alloc_buffer((32, 8))", F16), *NARROW]),
        ("dtypes", MATMUL, [("A[v_i, v_k] *", ROUNDED)]),
        ("signature", MATMUL, [("(A: ", '(X: T.Buffer((1,), "float32"), A: ')]),
        ("signature", MATMUL, [("A: T.Buffer((16, 8)", "A: T.Buffer((16, 9)")]),
        ("foreign", MATMUL, [("= C[v_i, v_j]", '= T.call_extern("float32", "f", C[v_i, v_j])')]),
        ("foreign", HALVE, [('T.sblock("C"):', f'T.sblock("C"):\n{" " * 16}{IMPORT}')]),
        ("size", BIG, [("range(64)", "T.unroll(64)"), ("range(8)", "T.unroll(8)")]),
        ("size", MATMUL.replace("24", "9999"), [("range(9999)", "T.vectorized(9999)")]),
    ],
)
def test_each_rule_finds_what_breaks_it(
    rule: str, source: str, changes: list[tuple[str, str]]
) -> None:
    found = errors_only(checked(source, *changes))
    assert rule in {finding.rule for finding in found}
    assert all(str(finding).startswith(f"error [{finding.rule}]") for finding in found)


def test_well_formed_rule_finds_a_loop_variable_inside_a_block() -> None:
    """A schedule refuses such a module, so the rule is asked directly."""
    broken = module(HALVE, ("A[v_i, v_j]", "A[i, v_j]"))
    found = list(well_formed(SimpleNamespace(mod=broken)))  # type: ignore[arg-type]
    assert [(f.severity, f.rule) for f in found] == [(Severity.ERROR, "well-formed")]
    assert "Loop iterator var i" in found[0].message


def test_messages_name_the_place_and_the_indices() -> None:
    found = checked(MATMUL, ("A[v_i, v_k]", "A[v_i, v_k + 1]"))
    assert "buffer A dimension 1" in str(found[0])


def test_what_is_not_bound_yet_is_no_error() -> None:
    assert errors(HALVE, backend="cuda") == set()


def test_threads_rule_finds_threads_that_add_to_one_element() -> None:
    bound = [("range(16)", 'T.thread_binding(16, "blockIdx.x")')]
    assert errors(MATMUL, *bound, backend="cuda") == set()
    bound.append(("range(8)", 'T.thread_binding(8, "threadIdx.x")'))
    assert errors(MATMUL, *bound, backend="cuda") == {"threads"}


def test_every_rule_is_tested() -> None:
    names = {rule.__name__.replace("_", "-") for rule in RULES}
    assert names == {
        "well-formed",
        "signature",
        "bounds",
        "writes",
        "races",
        "dtypes",
        "foreign",
        "threads",
        "size",
    }


def test_what_cannot_be_proved_is_a_note() -> None:
    found = checked(HALVE, ("C[v_i, v_j]", "C[v_i * v_i // 32, v_j]"))
    assert {f.severity for f in found} == {Severity.INFO}
    assert "not proved" in found[0].message


def test_private_buffers_do_not_collide() -> None:
    schedule = Schedule(module(HALVE))
    schedule.compute_at(schedule.get_sblock("B"), schedule.get_loops(schedule.get_sblock("C"))[0])
    schedule.parallel(schedule.get_loops(schedule.get_sblock("C"))[0])
    kernel = Kernel("k", "f", lambda _: module(HALVE)["main"], None, ({"n": 1},))
    assert static_checks(TensorIRProgram(Workload.of(kernel), TARGET, (), schedule)) == ()


def test_another_dialect_is_refused() -> None:
    class Other:
        dialect = "triton"

    with pytest.raises(InvalidValueError, match="tensorir"):
        static_checks(Other())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", kernel_names())
def test_nothing_is_wrong_with_unscheduled_kernels_and_legal_schedules(name: str) -> None:
    kernel = load_kernel(name)
    vocabulary = default_vocabulary()
    for shape in (*kernel.train[:1], *kernel.holdout, kernel.tiny_shape):
        workload = Workload.of(kernel, shape)
        assert static_checks(TensorIRProgram.start(workload, TARGET)) == ()
    for seed in range(2):
        rng = np.random.default_rng([seed, len(name)])
        program = TensorIRProgram.start(Workload.of(kernel, kernel.tiny_shape), TARGET)
        for _ in range(12):
            transform = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
            if transform is None:
                break
            program = program.apply(transform)
        assert errors_only(static_checks(program)) == (), [str(t) for t in program.steps]
