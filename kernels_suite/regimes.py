"""Input values by regime: what a correctness check feeds a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tirgym.kernels_suite.kernel import Array, Regime, Tensor, Values

__all__ = ["INTEGER_LIMIT", "RAMP_MODULUS", "default_inputs"]

INTEGER_LIMIT = 2**15
"""Largest magnitude drawn for integers wider than 16 bits: a product and a few sums fit in 32."""
RAMP_MODULUS = 251
"""Number of distinct RAMP values, a prime: multiples of 2^-6 below 2, so that in float32 a sum of
1,000 products is exact."""
_SPARSITY = 0.9
_SUBNORMAL_SHARE = 0.125


def default_inputs(
    tensors: Sequence[Tensor],
    rng: np.random.Generator,
    regime: Regime,
    values: Mapping[str, Values] | None = None,
) -> tuple[Array, ...]:
    """One C-contiguous array for each of `tensors`, a pure function of the generator's state.

    `values` narrows single parameters, by name. No array ever holds a NaN.
    """
    ranges = values or {}
    return tuple(_draw(t, rng, regime, ranges.get(t.name, Values())) for t in tensors)


def _draw(tensor: Tensor, rng: np.random.Generator, regime: Regime, values: Values) -> Array:
    dtype = np.dtype(tensor.dtype)
    size = math.prod(tensor.shape)
    if dtype.kind == "f":
        flat = _FLOAT[regime](size, rng, values, np.finfo(dtype))
        if values.positive:
            flat = np.abs(flat)
    elif dtype.kind == "b":
        flat = _integers(size, rng, regime, 0, 1)
    else:
        info = np.iinfo(dtype)
        low, high = max(info.min, -INTEGER_LIMIT), min(info.max, INTEGER_LIMIT)
        flat = _integers(size, rng, regime, 0 if values.positive else low, high)
    return np.asarray(flat.astype(dtype), order="C").reshape(tensor.shape)


Draw = Callable[[int, np.random.Generator, Values, "np.finfo[np.floating]"], Array]


def _normal(size: int, rng: np.random.Generator, _: Values, __: object) -> Array:
    return rng.standard_normal(size)


def _magnitudes(size: int, rng: np.random.Generator, centre: float, info: np.finfo) -> Array:
    """Random signs, magnitudes in [centre / 2, 2 centre), the exponent scaled to the dtype."""
    exponent = math.log2(centre) * min(1.0, int(info.maxexp) / 128)
    signs = rng.choice([-1.0, 1.0], size)
    magnitudes: Array = rng.uniform(0.5, 2.0, size) * 2.0**exponent
    return signs * magnitudes


def _tiny(size: int, rng: np.random.Generator, values: Values, info: np.finfo) -> Array:
    return _magnitudes(size, rng, values.tiny, info)


def _huge(size: int, rng: np.random.Generator, values: Values, info: np.finfo) -> Array:
    return _magnitudes(size, rng, values.huge, info)


def _mixed(size: int, rng: np.random.Generator, values: Values, info: np.finfo) -> Array:
    decades = values.decades * min(1.0, int(info.maxexp) / 128)
    return rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-decades, decades, size)


def _codes(size: int, rng: np.random.Generator) -> Array:
    """Integers in [0, RAMP_MODULUS) that code the flat index: neighbours always differ, and so do
    elements a multiple of the modulus apart."""
    step, carry = rng.integers(1, RAMP_MODULUS, 2)
    index = np.arange(size)
    codes: Array = (index * step + index // RAMP_MODULUS * carry) % RAMP_MODULUS
    return codes


def _ramp(size: int, rng: np.random.Generator, values: Values, _: object) -> Array:
    shift = 1 if values.positive else -(RAMP_MODULUS // 2)
    return (_codes(size, rng) + shift) / 64.0


def _ties(size: int, rng: np.random.Generator, values: Values, _: object) -> Array:
    return rng.choice([1.0, 2.0] if values.positive else [-1.0, -0.0, 0.0, 0.0, 1.0], size)


def _sparse(size: int, rng: np.random.Generator, _: Values, __: object) -> Array:
    return np.where(rng.random(size) < _SPARSITY, 0.0, rng.standard_normal(size))


def _extreme(size: int, rng: np.random.Generator, values: Values, info: np.finfo) -> Array:
    flat = rng.standard_normal(size)
    subnormal = float(info.smallest_normal) * rng.uniform(-1.0, 1.0, size)
    flat = np.where(rng.random(size) < _SUBNORMAL_SHARE, subnormal, flat)
    places = rng.permutation(size)[: len(values.infinities)]
    flat[places] = values.infinities[: len(places)]
    return flat


_FLOAT: dict[Regime, Draw] = {
    Regime.NORMAL: _normal,
    Regime.TINY: _tiny,
    Regime.HUGE: _huge,
    Regime.MIXED: _mixed,
    Regime.RAMP: _ramp,
    Regime.TIES: _ties,
    Regime.SPARSE: _sparse,
    Regime.EXTREME: _extreme,
}


def _integers(size: int, rng: np.random.Generator, regime: Regime, low: int, high: int) -> Array:
    """int64 values in [low, high]."""
    if regime is Regime.TINY or regime is Regime.TIES:
        flat = rng.integers(max(low, -1), 1, size, endpoint=True)
    elif regime is Regime.HUGE:
        near = max(1, (high - low) // 16)
        flat = rng.integers(0, near, size)
        flat = np.where(rng.random(size) < 0.5, low + flat, high - flat)
    elif regime is Regime.MIXED:
        flat = rng.choice([-1, 1], size) * np.exp2(rng.uniform(0, math.log2(high + 1), size))
        flat = flat.astype(np.int64)
    elif regime is Regime.RAMP:
        flat = _codes(size, rng) - (RAMP_MODULUS // 2 if low < 0 else 0)
    elif regime is Regime.SPARSE:
        flat = np.where(
            rng.random(size) < _SPARSITY, 0, rng.integers(low, high, size, endpoint=True)
        )
    elif regime is Regime.EXTREME:
        flat = rng.choice([low, high], size)
    else:
        flat = rng.integers(low, high, size, endpoint=True)
    return np.clip(flat, low, high)
