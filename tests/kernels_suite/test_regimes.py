"""What the values of each regime promise."""

from __future__ import annotations

import numpy as np
import pytest

from tirgym.kernels_suite.kernel import Array, Regime, Tensor, Values
from tirgym.kernels_suite.regimes import RAMP_MODULUS, default_inputs

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int32", "int64", "bool")


def draw(
    regime: Regime,
    dtype: str = "float32",
    shape: tuple[int, ...] = (61, 67),
    seed: int = 0,
    values: Values | None = None,
) -> Array:
    tensor = Tensor("x", shape, dtype)
    ranges = {} if values is None else {"x": values}
    (array,) = default_inputs((tensor,), np.random.default_rng(seed), regime, ranges)
    assert array.shape == shape
    assert array.dtype == dtype
    return array


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("regime", Regime)
def test_every_dtype_and_size_can_be_drawn(regime: Regime, dtype: str) -> None:
    for shape in ((61, 67), (1,), (), (2, 1, 3)):
        array = draw(regime, dtype, shape)
        assert array.dtype.kind != "f" or not np.isnan(array).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_all_but_extreme_are_finite_and_normal_or_zero(dtype: str) -> None:
    smallest = np.finfo(dtype).smallest_normal
    for regime in set(Regime) - {Regime.EXTREME}:
        sizes = np.abs(draw(regime, dtype))
        assert np.isfinite(sizes).all(), regime
        assert ((sizes == 0) | (sizes >= smallest)).all(), regime


def test_tiny_and_huge_keep_to_their_magnitudes() -> None:
    for regime, centre in ((Regime.TINY, 2.0**-20), (Regime.HUGE, 2.0**20)):
        array = draw(regime)
        assert (np.abs(array) >= centre / 2).all()
        assert (np.abs(array) <= centre * 2).all()
        assert 0.4 < (array > 0).mean() < 0.6
    assert np.abs(draw(Regime.HUGE, values=Values(huge=4.0))).max() <= 8.0


def test_mixed_spreads_over_its_decades() -> None:
    sizes = np.log10(np.abs(draw(Regime.MIXED)))
    assert sizes.min() < -2.9
    assert sizes.max() > 2.9
    assert np.abs(np.log10(np.abs(draw(Regime.MIXED, values=Values(decades=0.5))))).max() <= 0.51


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("move", ["transpose", "swap axes", "row", "column", "modulus", "flip"])
def test_ramp_shows_moved_elements(seed: int, move: str) -> None:
    array = draw(Regime.RAMP, shape=(32, 64), seed=seed)
    flat = array.reshape(-1)
    moved = {
        "transpose": array.T.reshape(-1),
        "swap axes": array.reshape(32, 8, 8).transpose(0, 2, 1).reshape(-1),
        "row": np.roll(flat, 64),
        "column": np.roll(flat, 1),
        "modulus": np.roll(flat, RAMP_MODULUS),
        "flip": flat[::-1],
    }[move]
    assert (moved != flat).mean() > 0.8


def test_ramp_sums_are_exact_in_float32() -> None:
    a, b = draw(Regime.RAMP, shape=(1000,), seed=1), draw(Regime.RAMP, shape=(1000,), seed=2)
    exact = float((a.astype(np.float64) * b).sum())
    forward, backward = np.float32(0), np.float32(0)
    for x, y in zip(a, b, strict=True):
        forward += x * y
    for x, y in zip(a[::-1], b[::-1], strict=True):
        backward += x * y
    assert float(forward) == float(backward) == exact


def test_ties_have_equal_values_and_both_zeros() -> None:
    array = draw(Regime.TIES)
    assert set(np.unique(array)) == {-1.0, 0.0, 1.0}
    zeros = array[array == 0]
    assert np.signbit(zeros).any()
    assert not np.signbit(zeros).all()


def test_sparse_is_mostly_zero() -> None:
    assert 0.85 < (draw(Regime.SPARSE) == 0).mean() < 0.95
    assert 0.85 < (draw(Regime.SPARSE, "int8") == 0).mean() < 0.95


def test_extreme_has_infinities_and_subnormals() -> None:
    array = draw(Regime.EXTREME)
    sizes = np.abs(array)
    assert np.isposinf(array).sum() == 2
    assert np.isneginf(array).sum() == 1
    assert 0.05 < ((sizes > 0) & (sizes < np.finfo("float32").smallest_normal)).mean() < 0.2


@pytest.mark.parametrize("regime", Regime)
def test_positive_values_are_never_below_zero(regime: Regime) -> None:
    values = Values(positive=True, infinities=(np.inf,))
    assert not (draw(regime, values=values) < 0).any()
    assert not (draw(regime, "int32", values=values) < 0).any()


def test_integers_reach_the_ends_of_their_type() -> None:
    array = draw(Regime.NORMAL, "int8", (200, 200))
    assert (array.min(), array.max()) == (-128, 127)
    assert set(np.unique(draw(Regime.EXTREME, "int8"))) == {-128, 127}
    assert set(np.unique(draw(Regime.NORMAL, "bool"))) == {False, True}
