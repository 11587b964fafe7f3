"""The gate on executed Triton IR: right programs are SEMANTIC_ONLY, nothing is ever a pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from triton_ir import fixture, gate_of

from tirgym.benchmarks.triton_mutants import Subject, judge_subject, kinds_of
from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError, UnknownNameError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status
from tirgym.harness.triton.executor.gate import SemanticGate, SemanticReport
from tirgym.harness.triton.executor.mutants import FAULTS, mutate_module
from tirgym.kernels_suite.kernel import Regime

KERNELS = ("matmul", "attention", "softmax")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_triton_compiles_is_right_in_every_regime(kernel: str, arch: str) -> None:
    report = gate_of(kernel).check(fixture(kernel, arch, "ttgir").text, number=0)
    assert report.status is Status.SEMANTIC_ONLY, report.message
    assert report.right
    assert report.gate is not None
    assert set(report.gate.regimes) == {str(regime) for regime in Regime}
    assert report.gate.worst_error < 1


def test_a_pass_cannot_be_said() -> None:
    with pytest.raises(InvalidValueError, match="a pass needs a run on the device"):
        SemanticReport(Status.PASSED)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("level", ["ttir", "ttgir"])
@pytest.mark.parametrize("kernel", ["matmul", "attention"])
def test_every_fault_is_caught(kernel: str, level: str, arch: str) -> None:
    module = fixture(kernel, arch, level).module
    subject = Subject(kernel, arch, level, module, gate_of(kernel))
    kinds = kinds_of(kernel, arch, level)
    assert len(kinds) >= 9
    control, results = judge_subject(subject, kinds, Level.TRAINING)
    assert control.status == Status.SEMANTIC_ONLY
    assert [(r.kind, r.status) for r in results if not r.killed] == []
    assert len(results) == len(kinds)


def test_faults_say_where_they_are() -> None:
    module = fixture("matmul", "sm_90", "ttgir").module
    gate = gate_of("matmul")
    for kind, said in {
        "copy_mask_dropped": "ttg.async_copy_global_to_local: access up to",
        "ring_wrap": "index 3 of 3 buffers",
        "product_wait_count": "race: overwrites shared memory that a warp_group_dot still reads",
        "store_dropped": "nan instead of",
    }.items():
        mutant = mutate_module(kind, module)
        assert mutant is not None
        report = gate.check(mutant, Level.TRAINING)
        assert report.status is Status.WRONG_RESULT
        assert said in report.message
        assert report.message.startswith("ramp: ")


def test_a_kind_of_fault_that_a_module_cannot_have_is_none() -> None:
    module = fixture("softmax", "sm_80", "ttir").module
    assert mutate_module("wait_count", module) is None
    with pytest.raises(UnknownNameError, match="kind of fault 'wait'"):
        mutate_module("wait", module)
    assert len(FAULTS) >= 9


def test_a_program_with_an_unknown_operation_is_incomplete() -> None:
    text = fixture("softmax", "", "ttir").text.replace("math.exp ", "math.unheard_of ")
    report = gate_of("softmax").check(text, Level.TRAINING)
    assert report.status is Status.INCOMPLETE
    assert "math.unheard_of: this operation is not covered" in report.message
    assert not report.right


def test_a_loop_that_never_ends_is_refused() -> None:
    text = fixture("matmul", "", "ttir").text
    loop = next(line for line in text.splitlines() if "scf.for" in line)
    step = loop.split(" step ")[1].split()[0]
    report = gate_of("matmul").check(
        text.replace(loop, loop.replace(f"step {step}", "step %c0_i32")), Level.TRAINING
    )
    assert report.status is Status.WRONG_RESULT
    assert "a loop with step 0" in report.message


def test_text_that_does_not_parse_is_the_callers_mistake() -> None:
    with pytest.raises(DamagedFileError, match="line 1, column 1"):
        gate_of("softmax").check("not Triton")


def test_a_trusted_program_that_is_wrong_is_an_error_of_the_machinery() -> None:
    stock = fixture("matmul", "", "ttir")
    wrong = mutate_module("subtraction_swapped", stock.module)
    assert wrong is not None
    gate = SemanticGate(stock.workload, stock.launch, wrong, secret=b"x")
    with pytest.raises(EvaluationError, match="fails its own gate"):
        gate.check(stock.module, Level.TRAINING)


def test_equal_numbers_mean_equal_inputs_and_secrets_change_them() -> None:
    stock = fixture("softmax", "", "ttir")
    seen = []
    for secret, number in ((b"a", 5), (b"a", 5), (b"b", 5)):
        gate = SemanticGate(stock.workload, stock.launch, stock.module, secret=secret)
        gate.check(stock.module, Level.FULL, number)
        seen.append(gate._full[1][0].inputs[0].copy())
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_a_launch_with_too_few_programs_is_wrong() -> None:
    stock = fixture("softmax", "", "ttir")
    smaller = replace(stock.launch, grid=(stock.launch.grid[0] - 1, 1, 1))
    report = gate_of("softmax").check(stock.module, Level.TRAINING, launch=smaller)
    assert report.status is Status.WRONG_RESULT
    assert "nan instead of" in report.message
