"""`posterior`: what the static cost gets wrong on this kernel, learned from what was measured.

A Gaussian process over the feature vectors of programs models the residual of the static cost, log
measured − log predicted, as in Bayesian optimisation (Rasmussen and Williams, "Gaussian Processes
for Machine Learning", 2006: posterior eq. 2.23 and 2.24, length scale by maximum marginal
likelihood eq. 5.8, Matérn 3/2 covariance eq. 4.17). Without measurements it answers the static cost
as it is, in full doubt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Vector", "pick", "posterior", "posterior_mean"]

Vector = NDArray[np.float64]

NOISE = 0.03
"""Standard deviation of one measured log time, and of what features do not tell apart."""
PRIOR = 0.5
"""Standard deviation of the static cost's log error before anything was measured."""
LENGTHS = (0.2, 0.4, 0.8, 1.6)
"""Length scales tried, in root-mean-square distances between the candidates."""


def posterior(candidates: Vector, known: Vector, residuals: Vector) -> tuple[Vector, Vector]:
    """Mean (m,) and covariance (m, m) of the residual at `candidates` (m, d).

    `known` (n, d) are the features of what was measured, `residuals` (n,) what it gave; n may be 0.
    """
    both = np.concatenate([candidates, known]) if len(known) else candidates
    spread = both.std(axis=0)
    scale = np.where(spread > 1e-6, spread, 1.0)
    near = _squared_distances(candidates / scale, candidates / scale)
    typical = max(1e-6, float(np.sqrt(near.mean())))
    if not len(known):
        return np.zeros(len(candidates)), _covariance(near, typical * LENGTHS[1], PRIOR)
    centre, sigma = _level(residuals)
    inside = _squared_distances(known / scale, known / scale)
    across = _squared_distances(candidates / scale, known / scale)
    length, factor, weights = _likeliest(inside, typical, sigma, residuals - centre)
    cross = _covariance(across, length, sigma)
    explained = np.linalg.solve(factor, cross.T)
    covariance = _covariance(near, length, sigma) - explained.T @ explained
    return centre + cross @ weights, covariance


def _level(residuals: Vector) -> tuple[float, float]:
    """Centre and spread of what was measured."""
    centre = float(np.median(residuals))
    return centre, max(0.2, float(np.sqrt(((residuals - centre) ** 2).mean())))


def _likeliest(
    inside: Vector, typical: float, sigma: float, values: Vector
) -> tuple[float, Vector, Vector]:
    """The length scale of highest marginal likelihood, with Cholesky factor and weights."""
    lengths = [typical * length for length in LENGTHS]
    solved = [_solve(_covariance(inside, length, sigma), values) for length in lengths]
    best = int(np.argmax([likelihood for likelihood, _, _ in solved]))
    return lengths[best], solved[best][1], solved[best][2]


def posterior_mean(candidates: Vector, known: Vector, residuals: Vector) -> Vector:
    """Mean (m,) of `posterior` alone, in time and memory that grow with m, not with its square.

    n must not be 0.
    """
    spread = np.concatenate([candidates, known]).std(axis=0)
    scale = np.where(spread > 1e-6, spread, 1.0)
    # the mean squared distance between all pairs is twice the variance
    typical = max(1e-6, float(np.sqrt(2.0 * (candidates / scale).var(axis=0).sum())))
    inside = _squared_distances(known / scale, known / scale)
    centre, sigma = _level(residuals)
    length, _, weights = _likeliest(inside, typical, sigma, residuals - centre)
    across = _squared_distances(candidates / scale, known / scale)
    mean: Vector = centre + _covariance(across, length, sigma) @ weights
    return mean


def pick(mean: Vector, covariance: Vector, number: int, courage: float) -> list[int]:
    """Indices of the `number` candidates that promise most, the most promising first.

    Each is the lowest of mean − `courage` standard deviations, in the doubt that is left once those
    picked before are known; so near twins are not picked together (Desautels, Krause and Burdick,
    "Parallelizing exploration-exploitation tradeoffs with Gaussian process bandit optimization",
    2014).
    """
    picked: list[int] = []
    covariance = covariance.copy()
    open_ = np.ones(len(mean), dtype=np.bool_)
    for _ in range(min(number, len(mean))):
        doubt = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        best = int(np.where(open_, mean - courage * doubt, np.inf).argmin())
        open_[best] = False
        picked.append(best)
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + NOISE**2)
    return picked


def _squared_distances(left: Vector, right: Vector) -> Vector:
    """(n, m) squared Euclidean distances."""
    norms = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(0.0, norms - 2.0 * left @ right.T), dtype=np.float64)


def _covariance(squared: Vector, length: float, sigma: float) -> Vector:
    """Matérn 3/2: kinks are likelier than waves."""
    scaled = np.sqrt(3.0 * squared) / length
    covariance: Vector = sigma**2 * (1.0 + scaled) * np.exp(-scaled)
    return covariance


def _solve(covariance: Vector, values: Vector) -> tuple[float, Vector, Vector]:
    """Log marginal likelihood up to a constant, Cholesky factor, and covariance⁻¹ values."""
    factor: Vector = np.asarray(np.linalg.cholesky(covariance + NOISE**2 * np.eye(len(values))))
    weights: Vector = np.linalg.solve(factor.T, np.linalg.solve(factor, values))
    return float(-0.5 * values @ weights - np.log(np.diag(factor)).sum()), factor, weights
