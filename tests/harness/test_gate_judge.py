"""`judge`: the tolerance lets roundings through, and nothing of what looks right at a glance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tirgym.harness.judge import PIECE, Expected, judge, judge_with

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
