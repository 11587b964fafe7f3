"""Masks equal the definition of legality, in both directions; programs never change."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from hash_seeds import Alike
from schedules import apply_all, begin

from tirgym.errors import IllegalTransformError
from tirgym.harness.tensorir import legality
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import draw_transform, random_program
from tirgym.harness.tensorir.rule_moves import idle_blocks
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.compute_at import ComputeAt
from tirgym.harness.transforms.split import Split
from tirgym.kernels_suite.registry import kernel_names

KERNELS: tuple[tuple[str, dict[str, int]], ...] = (
    ("matmul_bias_gelu", {"m": 16, "n": 24, "k": 32}),
    ("softmax", {"m": 8, "n": 32}),
    ("layernorm", {"m": 8, "n": 32}),
    ("conv2d_padded", {}),
    ("attention", {}),
    ("max_pool2d", {}),
    ("concat", {}),
    ("gather", {}),
    ("argmax", {"m": 8, "n": 32}),
    ("cumsum", {}),
    ("int8_gemm", {"m": 16, "n": 16, "k": 32}),
    ("gemver", {}),
    ("reversed", {}),
    ("total", {}),
    ("scaled", {}),
)
VOCABULARY = default_vocabulary(extra=("StorePrecision",))


def _check(program: TensorIRProgram) -> None:
    found = program.legal_mask(VOCABULARY)
    wanted = legality.defined_mask(program, VOCABULARY)
    wrong = [str(VOCABULARY[i]) for i in np.flatnonzero(found != wanted)]
    assert not wrong, (program.workload.uri, [str(s) for s in program.steps], wrong)
    assert not idle_blocks(program.facts), (program.workload.uri, [str(s) for s in program.steps])


@pytest.mark.parametrize(("kernel", "shape"), KERNELS, ids=[k for k, _ in KERNELS])
def test_masks_equal_the_definition(kernel: str, shape: dict[str, int]) -> None:
    """About 150 states over all kernels, on one thread and on two."""
    rng = np.random.default_rng(len(kernel))
    for threads, depth in ((1, 9), (2, 4)):
        program = begin(kernel, threads, **shape)
        _check(program)
        for _ in range(depth):
            step = draw_transform(VOCABULARY, program.legal_mask(VOCABULARY), rng)
            assert step is not None
            program = program.apply(step)
            _check(program)


@pytest.mark.parametrize("kernel", ["attention", "matmul_bias_gelu", "cumsum"])
def test_one_transform_is_legal_where_its_mask_says_so(kernel: str) -> None:
    rng = np.random.default_rng(1)
    program = begin(kernel, 1)
    for _ in range(4):
        mask = program.legal_mask(VOCABULARY)
        fresh = TensorIRProgram(program.workload, program.target, (), program.schedule)
        sample = {*rng.choice(len(mask), 150).tolist(), *np.flatnonzero(mask)[::4].tolist()}
        for action in sorted(sample):
            assert fresh.is_legal(VOCABULARY[action]) == mask[action], str(VOCABULARY[action])
        step = draw_transform(VOCABULARY, mask, rng)
        assert step is not None
        program = program.apply(step)
    assert not program.is_legal(Split(-1, 2))
    assert not program.is_legal(ComputeAt(99, 0))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", kernel_names())
def test_masks_equal_the_definition_on_many_deep_states(kernel: str) -> None:
    """Over the suite of 49 kernels more than 2,000 states, and more than 500 at depth 8 or more."""
    rng = np.random.default_rng(1 + len(kernel))
    states = deep = 0
    while states < 42 or deep < 12:
        program = begin(kernel, 1 + states // 15 % 2)
        for depth in range(15):
            _check(program)
            states, deep = states + 1, deep + (depth >= 8)
            step = draw_transform(VOCABULARY, program.legal_mask(VOCABULARY), rng)
            if step is None:
                break
            program = program.apply(step)


def test_masks_around_an_intrinsic() -> None:
    program = apply_all(
        begin("byte_dots"),
        "Split(loop=1, factor=16); Split(loop=3, factor=4); Reorder(loop=2); "
        "DecomposeReduction(loop=2)",
    )
    _check(program)
    tensorize = parse_transform("Tensorize(loop=4, intrinsic='dot_16x4_vnni')")
    assert program.legal_mask(VOCABULARY)[VOCABULARY.index(tensorize)]
    program = program.apply(tensorize)
    _check(program)
    assert [view.intrinsic for view in program.facts.views] == [False, True]
    _check(program.apply(parse_transform("Split(loop=0, factor=2)")))


@pytest.mark.parametrize(
    ("kernel", "steps", "step", "legal"),
    [
        (
            "total",
            "CacheWrite(block=0); DecomposeReduction(loop=0); CacheWrite(block=2)",
            "ReverseComputeInline(block=3)",
            False,
        ),
        (
            "scaled",
            "ComputeAt(block=0, loop=1); DecomposeReduction(loop=1); Split(loop=0, factor=8)",
            "Reorder(loop=0)",
            True,
        ),
    ],
)
def test_masks_around_scalars(kernel: str, steps: str, step: str, legal: bool) -> None:
    program = apply_all(begin(kernel), steps)
    _check(program)
    action = VOCABULARY.index(parse_transform(step))
    assert program.legal_mask(VOCABULARY)[action] == legal


def test_mask_is_read_only_and_kept() -> None:
    program = begin("chain")
    mask = program.legal_mask(VOCABULARY)
    assert mask.shape == (len(VOCABULARY),)
    assert mask.dtype == np.bool_
    assert program.legal_mask(VOCABULARY) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True


def test_masks_are_shared_by_ir_key_target_and_vocabulary() -> None:
    small = default_vocabulary(limits=SlotLimits(max_loops=8, max_blocks=4))
    one, other, parallel = begin("chain"), begin("chain"), begin("chain", 2)
    assert one.ir_key == other.ir_key == parallel.ir_key
    assert one.legal_mask(VOCABULARY) is other.legal_mask(VOCABULARY)
    assert one.legal_mask(small).shape == (len(small),)
    first = VOCABULARY.index(parse_transform("Parallel(loop=0)"))
    assert not one.legal_mask(VOCABULARY)[first]
    assert parallel.legal_mask(VOCABULARY)[first]


def test_apply_and_failed_apply_leave_the_program_as_it_was() -> None:
    program = apply_all(begin("softmax", m=8, n=32), "ComputeAt(block=2, loop=7)")
    text, key, steps = program.text(), program.ir_key, program.steps
    kept = program.apply(parse_transform("CacheWrite(block=1)"))
    for action in range(0, len(VOCABULARY), 7):
        try:
            program.apply(VOCABULARY[action])
        except IllegalTransformError:
            continue
    assert (program.text(), program.ir_key, program.steps) == (text, key, steps)
    assert kept.steps[:-1] == steps
    assert kept.text() != text


def test_a_snapshot_costs_a_fraction_of_a_new_program() -> None:
    """Programs are immutable: to roll back is to use the old one, which costs a schedule copy."""
    program = random_program(begin("attention"), np.random.default_rng(0), 12, VOCABULARY)

    def median_s(action: object) -> float:
        times = []
        for _ in range(30):
            started = time.perf_counter()
            action()  # type: ignore[operator]
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    copy_s = median_s(lambda: program.schedule)
    replay_s = median_s(lambda: TensorIRProgram.start(program.workload, program.target))
    assert copy_s < replay_s / 3


_SCRIPT = """
import hashlib, sys
import numpy as np
from schedules import begin
from tirgym.harness.tensorir.random_schedules import random_program
from tirgym.harness.transforms import default_vocabulary
vocabulary = default_vocabulary()
digest = hashlib.sha256(vocabulary.digest.encode())
for seed, name in enumerate(("softmax", "conv2d", "matmul_bias_gelu")):
    program = random_program(begin(name), np.random.default_rng(seed), 10, vocabulary)
    digest.update(program.legal_mask(vocabulary).tobytes())
    digest.update(program.text().encode())
    digest.update(program.ir_key.encode())
    digest.update("; ".join(map(str, program.steps)).encode())
print(digest.hexdigest())
"""


def test_same_bytes_across_processes_and_hash_seeds(alike: Alike) -> None:
    assert len(alike(_SCRIPT).strip()) == 64
