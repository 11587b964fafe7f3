"""Thread axes: what is bound for an agent, what rules refuse, on targets that need no device."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import apply_all, begin

from tirgym.harness.evaluation_run import static_finding
from tirgym.harness.tensorir.completion import THREADS, completed
from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.legality import defined_mask
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform
from tirgym.harness.tensorir.rule_threads import axes_of, thread_fault
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.transforms.base import SlotLimits
from tirgym.kernels_suite.registry import list_kernels

KERNELS = sorted(kernel.name for kernel in list_kernels("core-v0"))
SMALL = SlotLimits(max_loops=10, max_blocks=5, factors=(4,), scopes=("local", "shared"))


def gpu(kernel: str, /, **shape: int) -> TensorIRProgram:
    """An unscheduled program for a GPU that need not be here."""
    return begin(kernel, 1, "sm_90", "cuda", **shape)


def axes(program: TensorIRProgram) -> list[tuple[str, int]]:
    """Axes and extents of the bound loops, in order."""
    found = axes_of(program.facts)
    return [(axis, program.facts.extents[i]) for i, axis in sorted(found.items())]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_unscheduled_program_is_completed_soundly(kernel: str) -> None:
    program = gpu(kernel)
    limits = device_limits(program.target)
    assert limits is not None
    made = completed(program)
    assert all(part.bound for part, _, _ in made.facts.parts)
    assert thread_fault(made.facts, limits, axes_of(made.facts)) is None
    assert not axes(program), "the program that is completed does not change"


def test_completion_spreads_what_may_be_spread() -> None:
    assert axes(completed(gpu("add", m=16, n=40))) == [("blockIdx.x", 10), ("threadIdx.x", THREADS)]
    assert axes(completed(gpu("chain"))) == [("blockIdx.x", 8), ("threadIdx.x", THREADS)] * 2
    assert axes(completed(gpu("total"))) == [("blockIdx.x", 1)]


def test_completion_leaves_what_is_bound() -> None:
    steps = "Bind(loop=0, thread='threadIdx.y')"
    program = apply_all(gpu("add", m=16, n=40), steps)
    assert completed(program) is program
    assert axes(program) == [("threadIdx.y", 16)]


def test_completion_keeps_a_row_in_shared_memory_to_one_thread() -> None:
    program = apply_all(
        gpu("chain"), "ComputeAt(block=0, loop=2); SetScope(block=0, scope='shared')"
    )
    assert axes(completed(program)) == [("blockIdx.x", 16)]


def test_completion_binds_the_halves_of_a_decomposed_reduction() -> None:
    """TVM's own primitive refuses their loops."""
    program = apply_all(gpu("matmul"), "DecomposeReduction(loop=2)")
    assert [axis for axis, _ in axes(completed(program))] == ["blockIdx.x", "threadIdx.x"]


def test_threads_exchange_through_shared_memory_alone() -> None:
    program = apply_all(
        gpu("chain"), "ComputeAt(block=0, loop=2); Bind(loop=0, thread='blockIdx.x')"
    )
    alone = "Bind(loop=1, thread='threadIdx.x')"
    assert not program.is_legal(parse_transform(alone))
    shared = apply_all(program, f"SetScope(block=0, scope='shared'); {alone}")
    assert not static_finding(apply_all(shared, "Bind(loop=2, thread='threadIdx.x')"))


@pytest.mark.parametrize("kernel", ["matmul", "softmax", "blur"])
def test_masks_with_thread_axes_equal_the_definition(kernel: str) -> None:
    vocabulary, rng = default_vocabulary("cuda", limits=SMALL), np.random.default_rng(len(kernel))
    program = gpu(kernel)
    for _ in range(4):
        mask = program.legal_mask(vocabulary)
        wrong = np.flatnonzero(mask != defined_mask(program, vocabulary))
        assert not len(wrong), [str(vocabulary[int(action)]) for action in wrong]
        bind = [a for a in np.flatnonzero(mask) if vocabulary[int(a)].name == "Bind"]
        step = vocabulary[int(rng.choice(bind))] if bind else draw_transform(vocabulary, mask, rng)
        assert step is not None
        program = program.apply(step)
