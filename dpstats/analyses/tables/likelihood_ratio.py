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
    variances: Floats,
    size: int,
    rng: np.random.Generator | int,
    *,
    terms: int | Floats = 1,
) -> Floats:
    """Draws (size, d) of the variances that make normal noise Laplace.

    Laplace noise of variance v is normal with a variance drawn from the exponential law with
    mean v [1]_; a sum of k of them, from the gamma law of shape k.

    Parameters
    ----------
    variances : (d,) float64
        Variances of independent Laplace noises.
    size : int
    terms : int or (d,) array
        Number of equal Laplace noises in each sum (the variances are those of the sums).
    rng : numpy Generator or seed
        The draws belong to the definition of the statistic: use the same ones for the observed
        and for the simulated statistics.

    References
    ----------
    .. [1] D. F. Andrews and C. L. Mallows (1974), Scale mixtures of normal distributions,
       J. R. Statist. Soc. B 36, 99-102.
    """
    drawn = np.random.default_rng(rng).gamma(terms, size=(size, len(variances)))
    return np.asarray(np.maximum(drawn * variances / terms, _SMALLEST))


def average_likelihood_ratio(
    residuals: Floats,
    diagonal: Floats,
    rank_one: Floats,
    noise_variances: Floats,
    extra: Floats | None = None,
    *,
    inflation: float = 0.0,
) -> Floats:
    """Log ratio of the average likelihoods of the alternative and of the null.

    Under the null the residuals are normal with covariance ``diag(tau + D) - a a'``, averaged
    over the draws of tau. The alternative adds ``c c'`` (effects along c, normal with unit
    variance), or multiplies ``diag(D) - a a'`` by ``1 + inflation`` (effects in all directions).

    Parameters
    ----------
    residuals : (R, d) float64
        Noisy counts minus their expectation under the null.
    diagonal : (d,) or (R, d) float64
        D, positive; n p for multinomial counts.
    rank_one : (d,) or (R, d) float64
        a; sqrt(n) p for multinomial counts. ``sum(a**2 / D)`` is at most 1.
    noise_variances : (M, d) float64
        Draws of tau, positive: `laplace_mixture`.
    extra : (d,) or (R, d) float64, optional
        c.
    inflation : float
        At least 0.

    Returns
    -------
    (R,) float64
        Large values are evidence against the null.
    """
    null = log_average_likelihood(residuals, diagonal, rank_one, noise_variances)
    alternative = log_average_likelihood(
        residuals,
        diagonal * (1 + inflation),
        rank_one * np.sqrt(1 + inflation),
        noise_variances,
        extra,
    )
    return alternative - null


def log_average_likelihood(
    residuals: Floats,
    diagonal: Floats,
    rank_one: Floats,
    noise_variances: Floats,
    extra: Floats | None = None,
) -> Floats:
    """Log of the mean over tau of N(residuals; 0, diag(tau + D) - a a' + c c'), up to a constant.

    Parameters and shapes as in `average_likelihood_ratio`; returns (R,) float64. One (d,) set of
    D, a and c for all residuals costs matrix products only; otherwise R M d numbers are computed,
    in chunks.
    """
    draws, d = noise_variances.shape
    extra = np.zeros(d) if extra is None else extra
    shared = max(diagonal.ndim, rank_one.ndim, extra.ndim) == 1
    step = max(1, _CELLS // (draws * (1 if shared else d)))
    result = np.empty(len(residuals))
    for start in range(0, len(residuals), step):
        part = slice(start, start + step)
        D, a, c = (x if x.ndim == 1 else x[part] for x in (diagonal, rank_one, extra))
        logs = _log_densities(residuals[part], D, a, c, noise_variances, shared=shared)
        top = logs.max(axis=1)
        result[part] = top + np.log(np.exp(logs - top[:, np.newaxis]).mean(axis=1))
    return result


def _log_densities(
    r: Floats, D: Floats, a: Floats, c: Floats, tau: Floats, *, shared: bool
) -> Floats:
    """Log densities (R, M) by Sherman and Morrison's formula, c c' first and a a' after it."""
    if not shared:
        r, D, a, c = (np.atleast_2d(x)[:, np.newaxis, :] for x in (r, D, a, c))
    inverse = 1 / (tau + D)  # (M, d) or (R, M, d)

    def form(x: Floats, y: Floats) -> Floats:
        """Inner product in diag(inverse), (R, M) with residuals, else (M,) or (R, M)."""
        if shared and x.ndim == 2:
            return np.asarray((x * y) @ inverse.T)
        return np.asarray((x * y * inverse).sum(axis=-1))

    h = 1 + form(c, c)
    rc, ac = form(r, c), form(a, c)
    # 1 - a' diag(inverse) a without cancellation where sum(a^2 / D) = 1
    rest = 1 - (a * a / D).sum(axis=-1)
    rest = np.where(np.abs(rest) < _SMALLEST, 0, rest)
    g = rest + (a * a / D * (tau * inverse)).sum(axis=-1) + ac**2 / h
    ra = form(r, a) - rc * ac / h
    quadratic = form(r, r) - rc**2 / h + ra**2 / g
    log_det = np.log(h) + np.log(g) - np.log(inverse).sum(axis=-1)
    return np.asarray(-0.5 * (quadratic + log_det))


def normal_likelihood_ratio(residuals: Floats, null: Floats, alternative: Floats) -> Floats:
    """Log likelihood ratio of two centred normal laws, for noises that are correlated.

    Parameters
    ----------
    residuals : (R, d) float64
    null, alternative : (d, d) or (R, d, d) float64
        Covariances (sampling plus noise), positive definite.

    Returns
    -------
    (R,) float64
    """
    return _log_normal(residuals, alternative) - _log_normal(residuals, null)


def _log_normal(residuals: Floats, covariance: Floats) -> Floats:
    root = np.linalg.cholesky(covariance)
    right = residuals.T if root.ndim == 2 else residuals[..., np.newaxis]
    white = np.linalg.solve(root, right)
    square = (white**2).sum(axis=0) if root.ndim == 2 else (white[..., 0] ** 2).sum(axis=-1)
    log_det = 2 * np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.asarray(-0.5 * (square + log_det))
