"""Finite-sample intervals for the mean of bounded numbers, whatever their law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni
from dpstats.roots import find_roots

_ROUNDING = 1e-9


def chernoff_confint(low: Floats, high: Floats, n: float, alpha: float) -> tuple[Floats, Floats]:
    """Intervals for population means of numbers in [0, 1], given boxes that hold the sample means.

    P(sample mean >= x) <= exp(-n kl(x, m)) at the population mean m < x, kl the divergence of
    Bernoulli laws [1]_; n is the number of rows, or a lower bound of it, and alpha the error of
    each interval. The limits increase in the sample mean, so those at the ends of a box hold for
    every sample mean in it. They are never farther than sqrt(log(2/alpha) / (2 n)) from it, and
    much closer near 0 and 1.

    References
    ----------
    .. [1] Hoeffding, W. (1963). Probability inequalities for sums of bounded random variables. J.
       Amer. Statist. Assoc. 58, 13-30, equation (2.1).
    """
    rate = np.log(2 / alpha) / n
    return 1 - _upper(1 - np.clip(low, 0, 1), rate), _upper(np.clip(high, 0, 1), rate)


def _upper(mean: Floats, rate: float) -> Floats:
    """Largest m with kl(mean, m) <= rate."""
    from scipy import special

    def excess(m: Floats, which: NDArray[np.intp]) -> Floats:
        x = mean[which]
        return np.asarray(
            special.rel_entr(x, m) + special.rel_entr(1 - x, np.maximum(1 - m, 1e-300)) - rate
        )

    end = np.ones_like(mean)
    return np.minimum(find_roots(excess, np.minimum(mean, 1.0), end) + _ROUNDING, 1)


def bernstein_radius(variance: Floats, n: float, alpha: float) -> Floats:
    """How far the sample mean of numbers in [-1, 1] may be from that of the population.

    sqrt(2 V log(2/alpha) / n) + 2 log(2/alpha) / (3 n), V an upper bound of the population variance
    (Bernstein's inequality; [1]_ has it for [0, 1]), which may be random if it holds at the same
    time; on both sides together.

    References
    ----------
    .. [1] Maurer, A. and Pontil, M. (2009). Empirical Bernstein bounds and sample-variance
       penalization. COLT, Theorem 3.
    """
    log = np.log(2 / alpha)
    return np.asarray(np.sqrt(2 * variance * log / n) + 2 * log / (3 * n))


def empirical_bernstein_radius(variance: Floats, n: float, alpha: float) -> Floats:
    """How far the sample mean of numbers in [0, 1] may be from that of the population.

    sqrt(2 V log(4/alpha) / n) + 7 log(4/alpha) / (3 (n - 1)), V the sample variance with n - 1 in
    the denominator (Maurer and Pontil 2009, Theorem 4), on both sides together; `variance` is an
    upper bound of the one with n.
    """
    if n < 2:
        return np.full_like(variance, np.inf)
    log = np.log(4 / alpha)
    return np.asarray(np.sqrt(2 * variance / (n - 1) * log) + 7 * log / (3 * (n - 1)))


def mean_confint(
    low: Floats, high: Floats, variance: Floats, n: float, alpha: float
) -> tuple[Floats, Floats]:
    """Certified intervals for population means of numbers in [-1, 1], given boxes of sample means.

    The narrower of `chernoff_confint` and the empirical Bernstein bound on each side, with upper
    bounds of the sample variances (divisor n). Each spends half of alpha, fixed before looking, so
    both hold jointly. With fewer than one row the interval is [-1, 1].
    """
    if n < 1:
        return np.full_like(low, -1.0), np.full_like(high, 1.0)
    each = bonferroni(alpha, 2)
    one_low, one_high = chernoff_confint((1 + low) / 2, (1 + high) / 2, n, each)
    radius = 2 * empirical_bernstein_radius(variance / 4, n, each)
    low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    return np.maximum(2 * one_low - 1, low - radius), np.minimum(2 * one_high - 1, high + radius)


def wasserstein_bound(values: Floats, cuts: Floats, low: Floats, high: Floats) -> float:
    """Largest Wasserstein-1 distance of values to a law between bounds, in the unit of the values.

    The law lives between the first and the last of `cuts` (k + 1,), with `low` and `high` (k,)
    bounds on its distribution function between neighbouring cuts. The distance of laws of one
    number is the integral of |F - G| over the line, and the largest difference of the means of a
    function with slope at most one (Kantorovich and Rubinstein). Between cuts F is constant and
    low <= G <= high, and |F - G| is at most the larger of F - low and high - F.
    """
    points = np.sort(values)
    knots = np.unique(np.concatenate([cuts, points]))
    piece = np.clip(np.searchsorted(cuts, knots[:-1], side="right") - 1, 0, len(low) - 1)
    share = np.searchsorted(points, knots[:-1], side="right") / len(points)
    return float(np.diff(knots) @ np.maximum(share - low[piece], high[piece] - share))
