"""Average likelihood ratios of noisy counts: the statistic of the chi-square tests.

Counts are taken as normal and Laplace noise as a normal with a random variance, in the statistic
only: p-values come from simulating the true law, so no approximation here can invalidate them.
"""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats

_CELLS = 1 << 16  # numbers worked on at a time: they stay in the cache
_SMALLEST = 1e-12


def laplace_mixture(
    variances: Floats, size: int, rng: np.random.Generator | int, terms: Floats | int = 1
) -> Floats:
    """Draws (size, d) of the variances with which normal noise is Laplace noise.

    Laplace noise of variance v is normal with a variance drawn from the exponential law with mean
    v; a sum of k of them, from the gamma law of shape k (D. F. Andrews and C. L. Mallows 1974,
    Scale mixtures of normal distributions, J. R. Statist. Soc. B 36, 99-102). The draws belong to
    the definition of the statistic: they are the same for observed and simulated ones.
    """
    drawn = np.random.default_rng(rng).gamma(terms, size=(size, len(variances)))
    return np.asarray(np.maximum(drawn * variances / terms, _SMALLEST))


def average_likelihood_ratio(
    residuals: Floats, diagonal: Floats, rank_one: Floats, noise_variances: Floats, inflation: float
) -> Floats:
    """Log ratios (R,) of the average likelihoods of the alternative and of the null.

    Under the null the residuals (R, d) are normal with covariance ``diag(tau + D) - a a'``,
    averaged over the draws (M, d) of tau. The alternative multiplies ``diag(D) - a a'`` by
    ``1 + inflation``: effects in all directions.
    """
    wide = 1 + inflation
    null = log_average_likelihood(residuals, diagonal, rank_one, noise_variances)
    alternative = log_average_likelihood(
        residuals, diagonal * wide, rank_one * np.sqrt(wide), noise_variances
    )
    return alternative - null


def log_average_likelihood(r: Floats, D: Floats, a: Floats, tau: Floats) -> Floats:
    """Logs (R,) of the means over tau of N(r; 0, diag(tau + D) - a a'), up to a constant.

    By Sherman and Morrison's formula; `D` and `a` are (d,), and sum(a^2 / D) is at most 1.
    """
    inverse = 1 / (tau + D)  # (M, d)
    # 1 - a' diag(inverse) a without cancellation where sum(a^2 / D) = 1
    rest = 1 - (a * a / D).sum()
    rest = 0.0 if abs(rest) < _SMALLEST else rest
    g = rest + (a * a / D * (tau * inverse)).sum(axis=1)
    log_det = np.log(g) - np.log(inverse).sum(axis=1)
    step = max(1, _CELLS // len(tau))
    result = np.empty(len(r))
    for start in range(0, len(r), step):
        some = r[start : start + step]
        quadratic = (some * some) @ inverse.T + ((some * a) @ inverse.T) ** 2 / g
        logs = -0.5 * (quadratic + log_det)
        top = logs.max(axis=1)
        result[start : start + step] = top + np.log(np.exp(logs - top[:, np.newaxis]).mean(axis=1))
    return result


def normal_likelihood_ratio(residuals: Floats, null: Floats, alternative: Floats) -> Floats:
    """Log likelihood ratios (R,) of two centred normal laws, for noises that are correlated."""
    return _log_normal(residuals, alternative) - _log_normal(residuals, null)


def _log_normal(residuals: Floats, covariance: Floats) -> Floats:
    root = np.linalg.cholesky(covariance)
    square = (np.linalg.solve(root, residuals.T) ** 2).sum(axis=0)
    return np.asarray(-0.5 * (square + 2 * np.log(np.diagonal(root)).sum()))
