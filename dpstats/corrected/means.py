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

    P(sample mean >= x) <= exp(-n kl(x, m)), kl the divergence of Bernoulli distributions (Hoeffding
    1963, JASA 58, 13-30, eq. 2.1); n is the number of rows, or a lower bound, and alpha the error
    of each.
    """
    rate = np.log(2 / alpha) / n
    return 1 - _upper(1 - np.clip(low, 0, 1), rate), _upper(np.clip(high, 0, 1), rate)


def _upper(mean: Floats, rate: float) -> Floats:
    from scipy import special

    def excess(m: Floats, which: NDArray[np.intp]) -> Floats:
        x = mean[which]
        return np.asarray(
            special.rel_entr(x, m) + special.rel_entr(1 - x, np.maximum(1 - m, 1e-300)) - rate
        )

    end = np.ones_like(mean)
    return np.minimum(find_roots(excess, np.minimum(mean, 1.0), end) + _ROUNDING, 1)


def bernstein_radius(variance: Floats, n: float, alpha: float) -> Floats:
    """Distance of the sample mean of numbers in [-1, 1] from that of the population.

    By Bernstein's inequality (Maurer and Pontil 2009, COLT, Theorem 3), with an upper bound of the
    population variance that holds at the same time.
    """
    log = np.log(2 / alpha)
    return np.asarray(np.sqrt(2 * variance * log / n) + 2 * log / (3 * n))


def empirical_bernstein_radius(variance: Floats, n: float, alpha: float) -> Floats:
    """Distance of the sample mean of numbers in [0, 1] from that of the population.

    Maurer and Pontil (2009), Theorem 4; `variance` is an upper bound of the sample variance
    (divisor n).
    """
    if n < 2:
        return np.full_like(variance, np.inf)
    log = np.log(4 / alpha)
    return np.asarray(np.sqrt(2 * variance / (n - 1) * log) + 7 * log / (3 * (n - 1)))


def mean_confint(
    low: Floats, high: Floats, variance: Floats, n: float, alpha: float
) -> tuple[Floats, Floats]:
    """Certified intervals for population means of numbers in [-1, 1], given boxes of sample means.

    The narrower of `chernoff_confint` and the empirical Bernstein bound, each with half of alpha;
    variances are upper bounds of those of the sample (divisor n).
    """
    if n < 1:
        return np.full_like(low, -1.0), np.full_like(high, 1.0)
    each = bonferroni(alpha, 2)
    one_low, one_high = chernoff_confint((1 + low) / 2, (1 + high) / 2, n, each)
    radius = 2 * empirical_bernstein_radius(variance / 4, n, each)
    low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    return np.maximum(2 * one_low - 1, low - radius), np.minimum(2 * one_high - 1, high + radius)


def wasserstein_bound(values: Floats, cuts: Floats, low: Floats, high: Floats) -> float:
    """Largest Wasserstein-1 distance of values to a distribution between bounds, in their unit.

    It lives between the first and last of `cuts` (k + 1,), its distribution function within `low`
    and `high` (k,) between neighbouring cuts. The distance is the integral of |F - G| over the
    line, and the largest difference of the means of a function with slope at most one (Kantorovich
    and Rubinstein; eq. wasserstein of docs/explanation/synthetic-rows/certificate.md).
    """
    points = np.sort(values)
    knots = np.unique(np.concatenate([cuts, points]))
    piece = np.clip(np.searchsorted(cuts, knots[:-1], side="right") - 1, 0, len(low) - 1)
    share = np.searchsorted(points, knots[:-1], side="right") / len(points)
    return float(np.diff(knots) @ np.maximum(share - low[piece], high[piece] - share))
