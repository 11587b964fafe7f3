"""`semantic_check`: threads run one after the other behind the gate; never a pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from device_programs import MIRRORED, hand_made, mirrored_rows, shared_matmul
from handmade import quick

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.semantic import SemanticVerdict, on_cpu, semantic_check
from tirgym.harness.status import Status
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram


@pytest.fixture(scope="module")
def cpu() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


def test_right_schedules_are_semantic_only(cpu: LocalEvaluator) -> None:
    target = backend("cuda").target("sm_90")
    for program in (shared_matmul(target, 32), mirrored_rows(target, "shared")):
        found = semantic_check(program, cpu, Level.TRAINING)
        assert found.status is Status.SEMANTIC_ONLY, found.message
        assert found.report is not None


def test_wrong_schedules_are_found(cpu: LocalEvaluator) -> None:
    target = backend("cuda").target("sm_90")
    start = shared_matmul(target, 32)
    mod = mutate("constant_output", hand_made(MIRRORED, target, lambda schedule, blocks: None).mod)
    broken = TensorIRProgram(MIRRORED, target, (), new_schedule(mod))
    assert semantic_check(broken, cpu, Level.TRAINING).status is Status.WRONG_RESULT
    assert on_cpu(start).target.backend == "llvm"


def test_what_rules_refuse_is_not_run() -> None:
    found = semantic_check(mirrored_rows(backend("cuda").target("sm_90"), "global"))
    assert found.status is Status.ILLEGAL
    assert "another thread" in found.message


def test_a_missing_barrier_is_what_it_cannot_see(cpu: LocalEvaluator) -> None:
    """The verdict says so by its name: the serial run of this broken program is right."""
    plain = on_cpu(mirrored_rows(backend("cuda").target("sm_90"), "global"))
    assert cpu.check(plain, Level.TRAINING).status is Status.PASSED


def test_it_is_never_a_pass() -> None:
    with pytest.raises(InvalidValueError, match="semantic_only"):
        SemanticVerdict(Status.PASSED)
