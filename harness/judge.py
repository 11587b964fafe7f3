"""`judge`: whether outputs are right, element by element. Pure NumPy, no compiler.

Errors are held against s, the sum of the absolute terms of an element. Of K roundings they are at most
about K·eps·s, and with high probability a few √K·eps·s (Higham and Mary, "A New Approach to Probabilistic
Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019), hence the limit 8·√K·eps; see docs/gate.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tirgym.harness.buffers import same_bits
from tirgym.kernels_suite.kernel import Array

__all__ = ["FLOAT32_EPS", "PIECE", "Compare", "Expected", "Verdict", "judge", "judge_with"]

FLOAT32_EPS = float(np.finfo(np.float32).eps)
MEAN_LIMIT = 1e-5
"""mean(e/s) of a float32 output"""
MAX_LIMIT = 1e-3
"""max(e/s) of a float32 output, whatever the unscheduled program's own error is"""
RMS_LIMIT = 0.03
"""RMS(e) / RMS(ref)"""
ROUNDINGS = 2.0
"""what one rounding to an output narrower than its sums may add, in eps(output)·|ref|: four times the
half that a correct one adds, as the unscheduled program's own error counts four times"""
PIECE = 1 << 14
"""Elements that are compared at a time"""
Compare = Callable[[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]], str | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome for one output."""

    failure: str = ""
    """"" when right, else rule, element and values"""
    worst: float = 0.0
    """max(e/s) in units of the limit; 0 for exact outputs"""
    bit_identical: bool = False
    """equal to the unscheduled output bit for bit"""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one output must be for one set of inputs; made once, used for every candidate."""

    name: str
    reference: Array
    """float64 (float kernels) or the output's own dtype (exact kernels)"""
    unscheduled: Array
    """the unscheduled program's output, in the output's dtype"""
    scale: Array | None = None
    """s, float64; None for exact outputs. Where sums are wider than the output, one rounding is in it:
    s + ROUNDINGS·eps(output)·|ref| / (8·√K·eps(sums))"""
    limit: float = 0.0
    """max(8·√K·eps(sums), 4·max(e0/s)), at most MAX_LIMIT scaled to the dtype of the sums"""
    mean_limit: float = 0.0
    """MEAN_LIMIT scaled to the dtype of the sums, and where they are wider than the output limit / 4"""
    finite: bool = True
    """the unscheduled output has neither inf nor NaN"""
    rms: float = 0.0
    """RMS(ref), 0 or at least smallest normal / RMS_LIMIT"""
    own: Verdict | None = None
    """verdict on the unscheduled output itself, once it is known: the same bits get the same"""

    @classmethod
    def of(
        cls,
        name: str,
        reference: Array,
        unscheduled: Array,
        terms: int,
        scale: Array | None,
        accumulator: str = "",
    ) -> Expected:
        """Derive scale, limits and patterns. `terms` is K, the longest chain of roundings.

        `accumulator` is the dtype that these roundings go to; "" means that of the output. A float16
        result of float32 sums may be off by 8·√K·eps(float32)·s, and by one rounding of itself:
        8·√K·eps(float16)·s, which it was once allowed, is more than any result of 4,096 terms.
        What a program rounds on the way (attention its shares) shows in the unscheduled program's
        own error. Where the kernel's scale is inf or NaN, max(|ref|, RMS(ref)) takes its place.
        """
        if reference.dtype != np.float64 or unscheduled.dtype.kind != "f":
            return cls(name, reference, unscheduled)
        info = np.finfo(unscheduled.dtype)
        sums = np.finfo(accumulator) if accumulator else info
        eps, unit = float(sums.eps), float(sums.eps) / FLOAT32_EPS
        limit = min(8.0 * math.sqrt(max(1, terms)) * eps, MAX_LIMIT * unit)
        rounded = ROUNDINGS * float(info.eps) / limit if sums.eps < info.eps else 0.0
        with np.errstate(all="ignore"):
            finite = np.isfinite(unscheduled)
            exact = reference
            if not (finite.all() and np.isfinite(reference).all()):
                # Where only the float64 reference is out of range, the unscheduled program decides.
                exact = np.where(np.isfinite(reference), reference, unscheduled.astype(np.float64))
                exact = np.where(finite, exact, 0.0)
            rms = _rms(exact)
            base = np.maximum(np.abs(exact), rms) if scale is None else np.abs(scale)
            known = np.isfinite(base)
            if not known.all():
                base = np.where(known, base, np.maximum(np.abs(exact), rms))
            # Absolute floor: errors of a few subnormals stay within 8·√K·eps.
            base = np.maximum(base, float(sums.smallest_normal) / eps)
            if rounded:
                base += rounded * np.maximum(np.abs(exact), float(info.smallest_normal))
            if rms > 0.0:  # likewise: an RMS error below the smallest normal number is none
                rms = max(rms, float(info.smallest_normal) / RMS_LIMIT)
            own = np.abs(unscheduled - exact)
            if not finite.all():
                own = np.where(finite, own, 0.0)
            own /= base
        limit = min(max(limit, 4.0 * float(own.max(initial=0.0))), MAX_LIMIT * unit)
        mean_limit = MEAN_LIMIT * unit + (limit / 4.0 if rounded else 0.0)
        return cls(name, exact, unscheduled, base, limit, mean_limit, bool(finite.all()), rms)


def _rms(values: Array) -> float:
    """Root mean square of finite values; 0 of none."""
    if not values.size:
        return 0.0
    mean = float(np.mean(np.square(values)))
    if math.isfinite(mean):
        return math.sqrt(mean)
    top = float(np.abs(values).max())  # squares of values beyond 1e154 overflow
    return top * math.sqrt(float(np.mean(np.square(values / top))))


def judge(got: Array, expected: Expected) -> Verdict:
    """Judge one output against `expected`; every element counts.

    A float output passes iff it is finite, inf and NaN exactly where the unscheduled output is,
    max(e/s) ≤ limit, mean(e/s) ≤ mean_limit and RMS(e) < RMS_LIMIT·RMS(ref) (`Expected.of` derives
    the limits). Any other output must be equal, NaN to NaN.
    """
    if got.shape != expected.unscheduled.shape or got.dtype != expected.unscheduled.dtype:
        return Verdict(f"{expected.name}: shape or dtype {got.shape} {got.dtype}")
    if expected.own is not None and same_bits(got, expected.unscheduled):
        return expected.own
    if expected.scale is None:
        return _exact(got, expected)
    return _close(got, expected, expected.scale)


def judge_with(
    compare: Compare,
    inputs: tuple[Array, ...],
    got: tuple[Array, ...],
    expected: tuple[Expected, ...],
) -> list[Verdict]:
    """Judge all outputs by a comparator that the kernel declares."""
    problem = compare(inputs, got, tuple(e.reference for e in expected))
    same = [same_bits(g, e.unscheduled) for g, e in zip(got, expected, strict=True)]
    return [Verdict(problem or "", 0.0, bits) for bits in same]


def _where(index: int, shape: tuple[int, ...]) -> str:
    return str([int(i) for i in np.unravel_index(index, shape)])


def _exact(got: Array, expected: Expected) -> Verdict:
    with np.errstate(all="ignore"):
        wrong = got != expected.reference
        if got.dtype.kind == "f":
            wrong &= ~(np.isnan(got) & np.isnan(expected.reference))
    if not wrong.any():
        same = same_bits(got, expected.unscheduled)
        return Verdict("", 0.0, same)
    first = int(np.argmax(wrong))
    values = f"{got.flat[first]} instead of {expected.reference.flat[first]}"
    where = _where(first, got.shape)
    return Verdict(f"{expected.name}{where}: {values} ({int(wrong.sum())} elements wrong)")


def _close(got: Array, expected: Expected, scale: Array) -> Verdict:
    mismatch = "" if expected.finite else _pattern_mismatch(got, expected)
    if mismatch:
        return Verdict(mismatch)
    worst, top, mean, rms = _errors(got, expected, scale)
    where = _where(worst, got.shape)
    values = f"{got.flat[worst]} instead of {expected.reference.flat[worst]}"
    if not np.isfinite(top):  # argmax finds the first NaN
        return Verdict(f"{expected.name}{where}: {values}", math.inf)
    in_limits = top / expected.limit
    if top > expected.limit:
        problem = f"relative error {top:.3g} > {expected.limit:.3g}"
        return Verdict(f"{expected.name}{where}: {values}: {problem}", in_limits)
    if mean > expected.mean_limit:
        problem = f"mean relative error {mean:.3g} > {expected.mean_limit:.3g}"
        return Verdict(f"{expected.name}: {problem}", in_limits)
    if rms >= RMS_LIMIT:
        return Verdict(f"{expected.name}: RMS error {rms:.3g} >= {RMS_LIMIT}", in_limits)
    same = same_bits(got, expected.unscheduled)
    return Verdict("", in_limits, same)


def _errors(got: Array, expected: Expected, scale: Array) -> tuple[int, float, float, float]:
    """Number of the worst element, its e/s, mean(e/s), and RMS(e) / RMS(ref), 0 where RMS(ref) is 0.

    The worst element is the first NaN if there is one. Piece by piece, so that nothing leaves the
    cache: whole arrays of 2 MiB take 2.4 times as long. RMS in units of RMS(ref), so that squares of huge
    or tiny values stay in range.
    """
    values, wanted, scales, own = (
        array.reshape(-1) for array in (got, expected.reference, scale, expected.unscheduled)
    )
    error_of, relative_of = np.empty((2, min(PIECE, values.size)))
    worst, top, total, squares = 0, 0.0, 0.0, 0.0
    for first in range(0, values.size, PIECE):
        here = slice(first, first + PIECE)
        count = len(values[here])
        error, relative = error_of[:count], relative_of[:count]
        with np.errstate(all="ignore"):
            np.subtract(values[here], wanted[here], out=error)
            np.abs(error, out=error)
            if not expected.finite:
                error[~np.isfinite(own[here])] = 0.0
            np.divide(error, scales[here], out=relative)
            at = int(np.argmax(relative))
            if not relative[at] <= top:
                worst, top = first + at, float(relative[at])
            if math.isnan(top):
                break
            total += float(relative.sum())
            if expected.rms > 0.0:
                error /= expected.rms
                np.square(error, out=error)
                squares += float(error.sum())
    return worst, top, total / values.size, math.sqrt(squares / values.size)


def _pattern_mismatch(got: Array, expected: Expected) -> str:
    """Where inf, −inf or NaN is not exactly where the unscheduled output has it; "" if nowhere."""
    base = expected.unscheduled
    wrong = np.isnan(got) != np.isnan(base)
    wrong |= np.isposinf(got) != np.isposinf(base)
    wrong |= np.isneginf(got) != np.isneginf(base)
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    values = f"{got.flat[first]} where the unscheduled program gives {base.flat[first]}"
    return f"{expected.name}{_where(first, got.shape)}: {values}"
