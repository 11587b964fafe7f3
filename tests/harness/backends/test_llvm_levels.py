"""IR levels of the llvm backend: real text at each, and every lowering pass."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.tirx import PrimFunc

from tirgym.errors import UnknownNameError
from tirgym.harness.backends.llvm import LLVMBackend
from tirgym.harness.backends.llvm_levels import lowered_module, render_passes, run_passes
from tirgym.harness.backends.llvm_options import compiler_for
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Kernel, Shape, Workload


def scaled(shape: Shape) -> PrimFunc:
    a = te.placeholder((shape["n"],), name="A")
    b = te.compute(a.shape, lambda i: a[i] * 3.0 + 1.0, name="B")
    return te.create_prim_func([a, b])


KERNEL = Kernel("scaled", "elementwise", scaled, lambda a: np.asarray(a) * 3 + 1, ({"n": 96},))


@pytest.fixture(scope="module")
def backend() -> LLVMBackend:
    return LLVMBackend()


@pytest.fixture(scope="module")
def program(backend: LLVMBackend) -> TensorIRProgram:
    return backend.start(Workload.of(KERNEL), Target("llvm", "haswell"))


def test_levels_get_lower_one_by_one(backend: LLVMBackend, program: TensorIRProgram) -> None:
    marks = {
        "tir": 'T.sblock("B")',
        "lowered": "__tvm_ffi_main",
        "llvm": "define",
        "asm": "vfmadd",
        "passes": "tirx.MakePackedAPI",
    }
    assert tuple(marks) == backend.levels
    texts = {level: backend.ir_level(program, level) for level in backend.levels}
    for level, mark in marks.items():
        assert mark in texts[level]
    assert 'T.sblock("B")' not in texts["lowered"]


def test_an_unknown_level_names_the_known_ones(
    backend: LLVMBackend, program: TensorIRProgram
) -> None:
    with pytest.raises(UnknownNameError, match=r"'amm'; did you mean 'asm'.* tir, lowered, llvm"):
        backend.ir_level(program, "amm")


def test_lowering_alone_makes_what_the_compiler_compiles(program: TensorIRProgram) -> None:
    compiler = compiler_for(program.mod, program.target)
    lowered = lowered_module(program.mod, compiler)
    generated = tvm.get_global_func("target.build.llvm")(lowered, compiler.target)
    compiled = tvm.compile(program.mod, target=compiler.target).mod
    assert generated.inspect_source("asm") == compiled.inspect_source("asm")


def test_passes_form_a_chain_from_schedule_to_llvm(program: TensorIRProgram) -> None:
    records = run_passes(program.mod, compiler_for(program.mod, program.target))
    names = [record.name for record in records]
    assert names[0] == "tirx.BindTarget"
    assert names[-1] == "LLVM"
    assert {"s_tir.LowerOpaqueBlock", "tirx.VectorizeLoop", "tirx.LowerIntrin"} <= set(names)
    assert "sequential" not in {name.lower() for name in names}
    assert records[0].before == program.mod.script()
    assert all(a.after == b.before for a, b in itertools.pairwise(records))
    assert all(record.seconds > 0 for record in records)
    flatten = records[names.index("s_tir.LowerOpaqueBlock")]
    assert flatten.changed
    assert "sblock" in flatten.before
    assert "sblock" not in flatten.after


def test_rendering_shows_every_pass_and_differences_of_those_that_changed(
    program: TensorIRProgram,
) -> None:
    records = run_passes(program.mod, compiler_for(program.mod, program.target))
    text = render_passes(records)
    head = text.splitlines()[: len(records) + 1]
    assert head[0].startswith(f"{len(records)} passes, ")
    for record, line in zip(records, head[1:], strict=True):
        assert record.name in line
        assert line.endswith("changed") is record.changed
    assert text.count("\n== ") == sum(record.changed for record in records)


def test_describe_is_plain_json(backend: LLVMBackend) -> None:
    described = backend.describe(Target("llvm", "skylake-avx512", 1))
    assert json.loads(json.dumps(described)) == described
    assert described["vector_bits"] == 512
    assert described["fingerprint"]
