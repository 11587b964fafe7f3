"""Options of the compiler: carried by programs, honoured by every build, and right by the gate."""

from __future__ import annotations

import numpy as np
import pytest
from small import SMALL, make

from tirgym.errors import IllegalTransformError, InvalidValueError, UnknownNameError
from tirgym.harness.backend import backend
from tirgym.harness.backends.llvm_options import (
    OPTIONS,
    STOCK,
    compiler_for,
    options_of,
    options_text,
    parse_options,
    pipeline_names,
)
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.macros import named_vocabulary
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.harness.transforms.configure import Configure
from tirgym.kernels_suite.registry import list_kernels, load_workload

CHANGES = [(name, v) for name, o in OPTIONS.items() for v in o.values if v != o.default]
SCHEDULED = ("Split(loop=2, factor=4)", "Unroll(loop=3)", "Split(loop=1, factor=8)")


def configured(program: TensorIRProgram, *options: tuple[str, int]) -> TensorIRProgram:
    for name, value in options:
        program = program.apply(Configure(name, value))
    return program


def test_the_stock_pipeline_is_the_one_that_tvm_runs() -> None:
    program, llvm = (
        make(SMALL["matmul"], "Split(loop=1, factor=8)"),
        backend("llvm"),
    )
    again = configured(program, ("again.StmtSimplify", 1))
    stock = [record.name for record in llvm.passes(program)]  # type: ignore[attr-defined]
    ours = [record.name for record in llvm.passes(again)]  # type: ignore[attr-defined]
    place = next(i for i, (a, b) in enumerate(zip(stock, ours, strict=False)) if a != b)
    assert ours[:place] + ours[place + 1 :] == stock, "TVM's pipeline is another than STOCK"
    assert pipeline_names({}) == tuple(name for _, name, _ in STOCK)


def test_a_program_carries_its_options_and_its_parent_does_not_change() -> None:
    program = make(SMALL["matmul"])
    before = program.text()
    changed = configured(program, ("llvm.opt_level", 2), ("tir.StorageRewrite", 0))
    assert options_of(changed.mod) == {"llvm.opt_level": 2, "tir.StorageRewrite": 0}
    other = configured(changed, ("llvm.opt_level", 1))
    assert options_of(changed.mod)["llvm.opt_level"] == 2
    assert options_of(other.mod)["llvm.opt_level"] == 1
    assert (program.text(), options_of(program.mod)) == (before, {})
    assert len({p.ir_key for p in (program, changed, other)}) == 3


def test_going_back_to_the_defaults_is_the_program_without_options() -> None:
    program = make(SMALL["matmul"])
    back = configured(program, ("llvm.opt_level", 2), ("llvm.opt_level", 3))
    assert (back.ir_key, back.text()) == (program.ir_key, program.text())


def test_options_stay_with_a_program_that_is_scheduled_further() -> None:
    program = configured(make(SMALL["matmul"]), ("llvm.vectorize_slp", 0))
    for step in SCHEDULED:
        program = program.apply(parse_transform(step))
    assert options_of(program.mod) == {"llvm.vectorize_slp": 0}


@pytest.mark.parametrize(("name", "value"), [("llvm.opt_level", 0), ("llvm.vectorize_slp", 0)])
def test_an_option_makes_other_machine_code_at_every_door(name: str, value: int) -> None:
    llvm, program = backend("llvm"), make(SMALL["softmax"])
    other = configured(program, (name, value))
    through_json = llvm.build(llvm.module_json(other), other.target)
    assert through_json.code_key != llvm.build(llvm.module_json(program), program.target).code_key
    assert llvm.ir_level(program, "asm") != llvm.ir_level(other, "asm")
    assert llvm.ir_level(program, "llvm") != llvm.ir_level(other, "llvm")


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (Configure("llvm.opt_level", 3), "compiler"),
        (Configure("llvm.opt_level", 7), "compiler"),
        (Configure("llvm.fast_math", 1), "compiler"),
    ],
)
def test_what_changes_nothing_or_does_not_exist_is_illegal(step: Configure, rule: str) -> None:
    program = make(SMALL["add"])
    assert not program.is_legal(step)
    with pytest.raises(IllegalTransformError, match=rule):
        program.apply(step)


def test_masks_show_the_values_that_an_option_does_not_have() -> None:
    vocabulary = named_vocabulary("options")
    program = configured(make(SMALL["add"]), ("llvm.opt_level", 1), ("order.UnrollLoop", 2))
    legal = {t for t, yes in zip(vocabulary, program.legal_mask(vocabulary), strict=True) if yes}
    here = {**{n: o.default for n, o in OPTIONS.items()}, **options_of(program.mod)}
    assert legal == {Configure(n, v) for n, o in OPTIONS.items() for v in o.values if v != here[n]}


def test_the_text_form_parses_back_and_says_what_is_wrong() -> None:
    options = {"llvm.opt_level": 1, "tir.unroll_max_step": 64}
    assert parse_options(options_text(options)) == options
    assert options_text({"llvm.opt_level": 3}) == ""
    with pytest.raises(UnknownNameError, match=r"llvm\.opt_level"):
        parse_options("llvm.opt_levl=1")
    with pytest.raises(InvalidValueError, match="0, 1, 2, 3"):
        parse_options("llvm.opt_level=9")


def test_one_option_is_one_compiler() -> None:
    program = make(SMALL["add"])
    assert compiler_for(program.mod, program.target) is compiler_for(program.mod, program.target)


def gated(kernels: list[str], draws: int, seed: int) -> None:
    """Random options on random small schedules pass the gate."""
    rng, target = np.random.default_rng(seed), backend("llvm").target()
    schedules, table = named_vocabulary("primitive"), named_vocabulary("options")
    with LocalEvaluator(target, ":memory:", seed=seed) as evaluator:
        for name in kernels:
            workload = load_workload(name)
            tiny = workload.of(workload.kernel, workload.kernel.tiny_shape)
            start = backend("llvm").start(tiny, target)
            for _ in range(draws):
                program = start
                for vocabulary, number in ((schedules, 3), (table, 6)):
                    for _ in range(number):
                        legal = np.flatnonzero(program.legal_mask(vocabulary))
                        if len(legal):
                            program = program.apply(vocabulary[int(rng.choice(legal))])
                found = evaluator.check(program)
                assert found.status == "passed", (name, list(map(str, program.steps)), found)


def test_random_options_are_right_on_some_kernels() -> None:
    gated(["softmax", "matmul", "int8_gemm", "conv2d_padded"], 2, 0)


@pytest.mark.slow
def test_random_options_are_right_on_every_kernel() -> None:
    gated([f"{kernel.suite}/{kernel.name}" for kernel in list_kernels("core-v0")], 6, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_each_option_is_right_alone(name: str, value: int) -> None:
    target = backend("llvm").target()
    with LocalEvaluator(target, ":memory:") as evaluator:
        for kernel in ("softmax", "matmul", "conv2d_padded", "atax"):
            workload = load_workload(kernel)
            tiny = workload.of(workload.kernel, workload.kernel.tiny_shape)
            program = backend("llvm").start(tiny, target).apply(Configure(name, value))
            assert evaluator.check(program).status == "passed"
