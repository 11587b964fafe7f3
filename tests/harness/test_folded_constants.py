"""Unrolling turns guards into constants, which TVM then folds: `0 * x` becomes 0 even for an infinite x.

Right programs must not be rejected for it, so kernels keep infinities away from such factors.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tirgym.harness.backend import backend
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(store=":memory:") as made:
        yield made


def unrolled(name: str, *before: str) -> Program:
    """The kernel at its tiny shape with everything below each outermost loop unrolled."""
    kernel = load_kernel(name)
    llvm = backend("llvm")
    program = llvm.start(Workload.of(kernel, kernel.tiny_shape), llvm.target())
    for text in (*before, "UnrollPragma(loop=0, max_step=512)"):
        program = program.apply(parse_transform(text))
    return program


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("conv2d_padded", ("ComputeInline(block=0)", "Reorder(loop=0)", "Reorder(loop=0)")),
        ("conv2d_padded", ("ComputeInline(block=0)",)),
        ("pad", ()),
        ("concat", ()),
        ("cumsum", ()),
    ],
)
def test_unrolled_guards_give_what_the_unscheduled_program_gives(
    evaluator: LocalEvaluator, name: str, before: tuple[str, ...]
) -> None:
    found = evaluator.check(unrolled(name, *before))
    assert found.status is Status.PASSED, found.message
