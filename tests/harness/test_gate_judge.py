"""`judge`: the tolerance lets roundings through, and nothing of what looks right at a glance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tirgym.harness.judge import PIECE, Expected, judge, judge_with
from tirgym.kernels_suite.kernel import Regime
from tirgym.kernels_suite.problem import (
    accumulator_of,
    make_inputs,
    reference_of,
    scale_of,
    terms_of,
)
from tirgym.kernels_suite.registry import load_workload

Array = NDArray[Any]
M, N, K = 40, 48, 256


def product(dtype: str = "float32") -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    return a.astype(dtype), b.astype(dtype)


def expected_product(dtype: str = "float32") -> Expected:
    a, b = product(dtype)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return Expected.of("C", wide, a @ b, K, scale)


def expected_of(reference: Array, terms: int = 1, dtype: str = "float32") -> Expected:
    with np.errstate(all="ignore"):
        return Expected.of("C", reference, reference.astype(dtype), terms, None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_another_order_of_summation_passes(dtype: str) -> None:
    a, b = product(dtype)
    halves = a[:, : K // 2] @ b[: K // 2] + a[:, K // 2 :] @ b[K // 2 :]
    verdict = judge(halves, expected_product(dtype))
    assert verdict.failure == ""
    assert 0.0 < verdict.worst < 1.0
    assert not verdict.bit_identical


def test_the_same_bits_are_recognised() -> None:
    expected = expected_product()
    assert judge(expected.unscheduled.copy(), expected).bit_identical


def test_a_known_verdict_is_reused_for_the_same_bits_alone() -> None:
    expected = expected_product()
    known = replace(expected, own=judge(expected.unscheduled, expected))
    assert judge(expected.unscheduled.copy(), known) is known.own
    wrong = expected.unscheduled.copy()
    wrong[0, 0] = -wrong[0, 0]
    assert judge(wrong, known).failure
    assert judge(expected.unscheduled.reshape(N, M), known).failure


def float16_accumulation(a: Array, b: Array) -> Array:
    total = np.zeros((M, N), np.float16)
    for k in range(K):
        total += (a[:, k : k + 1] * b[k]).astype(np.float16)
    return total.astype(np.float32)


def one_element(change: Callable[[Array], object]) -> Callable[[Array, Array], Array]:
    def make(a: Array, b: Array) -> Array:
        out: Array = a @ b
        out[17, 23] = change(out[17, 23])
        return out

    return make


CHEATS: dict[str, Callable[[Array, Array], Array]] = {
    "zeros": lambda a, b: np.zeros((M, N), np.float32),
    "half the reduction": lambda a, b: a[:, : K // 2] @ b[: K // 2],
    "the last term dropped": lambda a, b: a[:, :-1] @ b[:-1],
    "operands swapped": lambda a, b: np.resize(b.T[:M] @ a.T[:, :1], (M, N)).astype(np.float32),
    "accumulated in float16": float16_accumulation,
    "inputs in float16": lambda a, b: (
        a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    ),
    "inputs in bfloat16": lambda a, b: (
        (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) @ b
    ),
    "output in float16": lambda a, b: (a @ b).astype(np.float16).astype(np.float32),
    "one element off by a thousandth": one_element(lambda x: x * np.float32(1.001) + 1e-2),
    "one element unwritten": one_element(lambda x: np.nan),
    "one element infinite": one_element(lambda x: np.inf),
    "one element negated": one_element(lambda x: -x),
    "a row shifted": lambda a, b: np.roll(a @ b, 1, axis=0),
    "last row missing": lambda a, b: np.vstack([(a @ b)[:-1], np.zeros((1, N), np.float32)]),
    "scaled by a thousandth": lambda a, b: (a @ b) * np.float32(1.001),
}


@pytest.mark.parametrize("name", sorted(CHEATS))
def test_cheats_fail(name: str) -> None:
    got = CHEATS[name](*product()).astype(np.float32)
    assert judge(got, expected_product()).failure


def test_one_element_in_a_million_fails() -> None:
    rng = np.random.default_rng(0)
    expected = expected_of(rng.standard_normal((1000, 1000)))
    got = expected.unscheduled.copy()
    assert judge(got, expected).failure == ""
    got[999, 999] += np.float32(1e-3)
    assert "[999, 999]" in judge(got, expected).failure


@pytest.mark.parametrize("size", [1, PIECE, 3 * PIECE + 7])
def test_large_outputs_are_judged_as_a_whole(size: int) -> None:
    rng = np.random.default_rng(size)
    reference, noise = rng.standard_normal(size), rng.standard_normal(size)
    expected = expected_of(reference)
    got = (reference + 1e-9 * noise).astype(np.float32)
    assert expected.scale is not None
    relative = np.abs(got.astype(np.float64) - reference) / expected.scale
    assert judge(got, expected).worst == pytest.approx(relative.max() / expected.limit, rel=1e-12)
    for value in (np.nan, np.inf):
        for index in {0, size // 2, size - 1}:
            wrong = got.copy()
            wrong[index] = value
            assert f"[{index}]: {value} instead" in judge(wrong, expected).failure
    both = got.copy()
    both[0], both[-1] = np.inf, np.nan
    assert f"[{size - 1}]: nan instead" in judge(both, expected).failure


def test_the_mean_and_the_rms_are_those_of_all_pieces() -> None:
    ones = np.ones(4 * PIECE)
    expected = Expected.of("C", ones, ones.astype(np.float32), 10_000, None)
    for biased, verdict in ((PIECE // 2, ""), (PIECE, "mean")):
        got = ones.astype(np.float32)
        got[-biased:] += np.float32(6e-5)
        assert verdict in judge(got, expected).failure
        assert bool(judge(got, expected).failure) == bool(verdict)
    scale = np.full(4 * PIECE, 1e4)
    expected = Expected.of("C", ones, ones.astype(np.float32), 10_000, scale)
    for wrong, verdict in ((0.05, ""), (0.07, "RMS")):
        got = ones.astype(np.float32)
        got[-PIECE:] += np.float32(wrong)
        failure = judge(got, expected).failure
        assert verdict in failure
        assert bool(failure) == bool(verdict)


def test_zeros_fail_where_a_plain_absolute_tolerance_would_pass_them() -> None:
    expected = expected_of(np.random.default_rng(0).standard_normal((64, 64)) * 1e-6)
    zeros = np.zeros((64, 64), np.float32)
    assert np.allclose(zeros, expected.reference, atol=1e-3)
    assert judge(zeros, expected).failure


def test_a_small_bias_everywhere_fails_by_the_mean() -> None:
    expected = Expected.of("C", np.ones((64, 64)), np.ones((64, 64), np.float32), 10_000, None)
    biased = np.full((64, 64), 1.0 + 5e-5, np.float32)
    assert expected.limit > 5e-5
    assert "mean" in judge(biased, expected).failure


def test_the_unscheduled_programs_own_error_widens_the_limit_but_not_beyond_the_maximum() -> None:
    reference = np.ones((8, 8))
    careless = (reference * (1.0 + 1e-5)).astype(np.float32)
    limit = Expected.of("C", reference, careless, 1, None).limit
    assert limit == pytest.approx(4e-5, rel=0.02)
    hopeless = (reference * 1.5).astype(np.float32)
    assert Expected.of("C", reference, hopeless, 1, None).limit == 1e-3


def test_errors_beyond_a_thirtieth_of_the_rms_fail_even_if_the_scale_is_large() -> None:
    """Sums of absolute terms a thousand times larger than the results hide a wrong result."""
    rng = np.random.default_rng(1)
    reference = rng.standard_normal((64, 64)) * 1e-6
    scale = np.full((64, 64), 10.0)
    expected = Expected.of("C", reference, reference.astype(np.float32), 1, scale)
    noise = (reference + rng.standard_normal((64, 64)) * 1e-7).astype(np.float32)
    assert "RMS" in judge(noise, expected).failure


def test_cancelling_sums_pass_by_their_scale() -> None:
    expected = Expected.of(
        "C", np.array([1e-6, 1.0]), np.array([1.2e-6, 1.0], np.float32), 1000, np.array([1.0, 1.0])
    )
    assert judge(np.array([0.9e-6, 1.0], np.float32), expected).failure == ""


def test_outputs_of_zero() -> None:
    expected = expected_of(np.zeros((4, 4)))
    assert judge(np.zeros((4, 4), np.float32), expected).failure == ""
    assert judge(np.full((4, 4), 1e-20, np.float32), expected).failure
    assert judge(np.full((4, 4), -0.0, np.float32), expected).failure == ""


def test_subnormal_results_may_be_flushed_but_nothing_larger() -> None:
    expected = expected_of(np.array([1e-40, -3e-39, 1e-38]))
    assert judge(np.zeros(3, np.float32), expected).failure == ""
    larger = expected_of(np.array([1e-30, 1e-30]))
    assert judge(np.zeros(2, np.float32), larger).failure


SPECIAL = np.array([1.0, np.inf, -np.inf, np.nan, 2.0])


def test_the_pattern_of_infinities_and_nans_must_be_that_of_the_unscheduled_program() -> None:
    expected = expected_of(SPECIAL)
    good = SPECIAL.astype(np.float32)
    assert judge(good, expected).failure == ""
    for place in range(len(good)):
        for wrong in (np.nan, np.inf, -np.inf, 3e38):
            changed = good.copy()
            changed[place] = wrong
            same = np.array_equal(changed, good, equal_nan=True)
            assert bool(judge(changed, expected).failure) != same, (place, wrong)


def test_overflow_that_only_the_reference_escapes_follows_the_unscheduled_program() -> None:
    reference = np.array([1e39, 1.0])
    expected = expected_of(reference)
    assert np.isinf(expected.unscheduled[0])
    assert judge(np.array([np.inf, 1.0], np.float32), expected).failure == ""
    assert judge(np.array([3e38, 1.0], np.float32), expected).failure


def test_values_near_the_largest_do_not_overflow_the_judge() -> None:
    reference = np.full(1000, 3e38)
    assert judge(reference.astype(np.float32), expected_of(reference)).failure == ""
    assert judge((reference * 0.99).astype(np.float32), expected_of(reference)).failure


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool", "uint8"])
def test_integers_are_exact(dtype: str) -> None:
    reference = (np.arange(24).reshape(4, 6) % 2).astype(dtype)
    expected = Expected.of("C", reference, reference, 1, None)
    assert judge(reference.copy(), expected).bit_identical
    got = reference.copy()
    got[2, 3] = not got[2, 3]
    verdict = judge(got, expected)
    assert "[2, 3]" in verdict.failure
    assert "1 elements wrong" in verdict.failure


def test_exact_floats_are_equal_by_value() -> None:
    reference = np.array([0.0, np.nan, 1.0, np.inf], np.float32)
    expected = Expected.of("C", reference, reference, 1, None)
    same = np.array([-0.0, np.nan, 1.0, np.inf], np.float32)
    assert judge(same, expected).failure == ""
    assert not judge(same, expected).bit_identical
    assert judge(np.nextafter(reference, np.float32(2)), expected).failure


def test_other_shapes_and_dtypes_fail() -> None:
    expected = expected_product()
    assert judge(expected.unscheduled[:-1], expected).failure
    assert judge(expected.unscheduled.astype(np.float64), expected).failure


def test_float16_has_its_own_limits() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((64, 64))
    expected = expected_of(reference, terms=16, dtype="float16")
    nearby = (reference * (1 + 1e-3)).astype(np.float16)
    assert judge(nearby, expected).failure == ""
    assert judge((reference * 1.05).astype(np.float16), expected).failure


HALF_REGIMES = (Regime.NORMAL, Regime.TINY, Regime.HUGE, Regime.MIXED, Regime.RAMP, Regime.SPARSE)
LONG = 4096
"""terms of a sum: each is worth a few float16 roundings of the sum, if that"""


@functools.cache
def half_product(regime: Regime) -> tuple[Array, Array, Expected]:
    """Inputs in float16, and what their product in float16 must be, with sums in float32."""
    workload = load_workload("triton-v0/matmul", {"m": 24, "n": 40, "k": LONG})
    a, b = inputs = make_inputs(workload, np.random.default_rng(5), regime)
    (reference,), (scale,) = reference_of(workload, inputs), scale_of(workload, inputs) or ()
    own = in_blocks(a, b, 64)
    terms, accumulator = terms_of(workload), accumulator_of(workload)
    return a, b, Expected.of("c", reference, own, terms, scale, accumulator)


def in_blocks(a: Array, b: Array, size: int) -> Array:
    """a b in float16, `size` terms at a time added to sums in float32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], size):
        total += a[:, k : k + size].astype(np.float32) @ b[k : k + size].astype(np.float32)
    return total.astype(np.float16)


def usual(values: Array) -> int:
    """Number of an element as large as half of the others."""
    return int(np.argsort(np.abs(values), axis=None)[values.size // 2])


def changed(out: Array, place: int | slice, value: object) -> Array:
    out = out.copy()
    out.reshape(-1)[place] = value
    return out


HALF_FAULTS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "one element zero": lambda a, b, out: changed(out, usual(out), 0),
    "one element negated": lambda a, b, out: changed(out, usual(out), -out.flat[usual(out)]),
    "one element its neighbour's": lambda a, b, out: changed(
        out, usual(out), out.flat[usual(out) - 1]
    ),
    "one element off by a hundredth": lambda a, b, out: changed(
        out, usual(out), out.flat[usual(out)] * np.float16(1.01)
    ),
    "last 64 elements zero": lambda a, b, out: changed(out, slice(-64, None), 0),
    "one term dropped": lambda a, b, out: in_blocks(
        np.delete(a, heaviest(a, b), 1), np.delete(b, heaviest(a, b), 0), 64
    ),
    "the last tile of terms dropped": lambda a, b, out: in_blocks(a[:, :-32], b[:-32], 32),
    "sums in float16": lambda a, b, out: half_sums(a, b),
}


def heaviest(a: Array, b: Array) -> int:
    """Number of the term that adds most."""
    largest = np.abs(a).max(0).astype(float) * np.abs(b).max(1)
    return int(np.argmax(largest))


def half_sums(a: Array, b: Array) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k]
    return total


@pytest.mark.parametrize("regime", HALF_REGIMES)
def test_half_products_pass_in_other_orders_of_summation(regime: Regime) -> None:
    a, b, expected = half_product(regime)
    for size in (1, 16, LONG):
        verdict = judge(in_blocks(a, b, size), expected)
        assert verdict.failure == ""
    order = np.random.default_rng(0).permutation(LONG)
    assert judge(in_blocks(a[:, order], b[order], 16), expected).failure == ""


@pytest.mark.parametrize("regime", HALF_REGIMES)
@pytest.mark.parametrize("fault", HALF_FAULTS)
def test_faults_of_half_products_fail(fault: str, regime: Regime) -> None:
    a, b, expected = half_product(regime)
    wrong = HALF_FAULTS[fault](a, b, expected.unscheduled)
    assert judge(wrong, expected).failure


def test_sums_in_float16_pass_where_the_kernel_adds_in_float16() -> None:
    a, b, wide = half_product(Regime.NORMAL)
    short = a[:, :256], b[:256]
    reference, scale = (x.astype(np.float64) @ y for x, y in (short, map(np.abs, short)))
    expected = Expected.of("c", reference, half_sums(*short), 256, scale, "float16")
    assert judge(in_blocks(short[0], short[1], 16), expected).failure == ""
    assert judge(half_sums(short[0][:, ::-1], short[1][::-1]), expected).failure == ""
    assert Expected.of("c", reference, half_sums(*short), 256, scale).limit == expected.limit
    assert expected.limit > wide.limit


def flash_attention(q: Array, k: Array, v: Array, block: int) -> Array:
    """As the Triton kernel: shares rounded to float16, relative to the largest score so far."""
    wide = np.float32
    factor = wide(1 / np.sqrt(q.shape[2]))
    scores = (q.astype(wide) @ k.astype(wide).transpose(0, 2, 1)) * factor
    top = np.full(scores.shape[:2], -np.inf, wide)
    total, mixed = np.zeros(scores.shape[:2], wide), np.zeros(q.shape, wide)
    for first in range(0, scores.shape[2], block):
        score = scores[:, :, first : first + block]
        higher = np.maximum(top, score.max(2))
        power, shrink = np.exp(score - higher[..., None]), np.exp(top - higher)
        total = total * shrink + power.sum(2)
        shares = power.astype(np.float16).astype(wide)
        mixed = mixed * shrink[..., None] + shares @ v[:, first : first + block].astype(wide)
        top = higher
    return (mixed / total[..., None]).astype(np.float16)


@pytest.mark.parametrize("regime", HALF_REGIMES)
@pytest.mark.parametrize("shape", [(3, 67, 31), (2, 65, 33), (1, 1, 3), (1, 512, 64)])
def test_attention_may_round_its_shares_to_float16(
    shape: tuple[int, int, int], regime: Regime
) -> None:
    workload = load_workload(
        "triton-v0/attention", dict(zip(("heads", "n", "d"), shape, strict=True))
    )
    for seed in range(3):
        inputs = make_inputs(workload, np.random.default_rng(seed), regime)
        (reference,), (scale,) = reference_of(workload, inputs), scale_of(workload, inputs) or ()
        q, k, v = inputs
        own = flash_attention(q, k, v, 64)
        expected = Expected.of("out", reference, own, terms_of(workload), scale, "float32")
        assert judge(own, expected).failure == ""
        for block in (16, 32, 128):
            assert judge(flash_attention(q, k, v, block), expected).failure == ""
        if shape[1] > 1:
            for value in (0, -own.flat[usual(own)]):
                assert judge(changed(own, usual(own), value), expected).failure


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_scale_that_is_not_finite_does_not_switch_the_check_off(value: float) -> None:
    reference = np.random.default_rng(0).standard_normal((8, 8))
    scale = np.full((8, 8), value)
    scale[0] = 1.0
    expected = Expected.of("C", reference, reference.astype(np.float32), 16, scale)
    plain = Expected.of("C", reference, reference.astype(np.float32), 16, None)
    assert expected.scale is not None
    assert plain.scale is not None
    assert np.array_equal(expected.scale[1:], plain.scale[1:])
    assert judge(expected.unscheduled.copy(), expected).failure == ""
    for wrong in (0.0, 3.0, 1e30):
        assert "[5, 3]" in judge(changed(expected.unscheduled, 43, wrong), expected).failure


def test_float64_values_whose_squares_overflow_are_judged() -> None:
    reference = np.array([1e300, -2e300, 1.5e300])
    expected = Expected.of("C", reference, reference, 1, None)
    assert judge(reference.copy(), expected).failure == ""
    assert judge(np.array([1e300, -2e300, 1.4e300]), expected).failure


def test_a_comparator_decides_for_all_outputs() -> None:
    def same_set(inputs: Any, got: Any, reference: Any) -> str | None:
        return None if sorted(got[0]) == sorted(reference[0]) else "another set"

    reference = np.array([3, 1, 2])
    expected = (Expected.of("C", reference, reference, 1, None),)
    right = judge_with(same_set, (), (np.array([1, 2, 3]),), expected)
    assert [v.failure for v in right] == [""]
    assert not right[0].bit_identical
    assert judge_with(same_set, (), (np.array([1, 2, 2]),), expected)[0].failure == "another set"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1e-3, 1.0, 1e6, 1e30]))
def test_verdicts_do_not_depend_on_magnitude(seed: int, magnitude: float) -> None:
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal(64) * magnitude
    expected = expected_of(reference, terms=4)
    rounded = expected.unscheduled
    assert judge(rounded, expected).failure == ""
    damaged = rounded.copy()
    place = int(np.argmax(np.abs(damaged)))
    damaged[place] *= np.float32(1.0 + 1e-4)
    assert judge(damaged, expected).failure
