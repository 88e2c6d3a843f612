"""Certified verdict on independence, for a table known only to within a box."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dpstats.families.block import Floats
from dpstats.inference.independence_bounds import margin_bounds, statistic_bounds
from dpstats.inference.verdicts import CertifiedChiSquare, Verdict

LEAST_EXPECTED = 5


def independence_verdict(
    low: Floats, high: Floats, sizes: tuple[int, int], alpha: float, beta: float
) -> CertifiedChiSquare:
    """Three-way verdict on Pearson's statistic of the private table, summed over strata.

    With probability 1 - beta the private table lies in the box, so its statistic lies between the
    bounds; that part holds in finite samples, for any data. The critical value is the chi-square
    quantile at alpha - beta, an asymptotic one (the margins are unknown); so there is a verdict
    only where every expected count is certified to be at least five (Cochran 1954).

    Parameters
    ----------
    low, high : (K, R, C) float64
        Ends of the counts of K strata, not negative.
    sizes : (int, int)
        Ends of the number of rows, equal where it is public.
    alpha, beta : float
        Error in all, and its part that the box and the sizes use.

    References
    ----------
    Cochran, W. G. (1954). Some methods for strengthening the common chi-square tests. Biometrics
    10, 417-451.
    """
    strata, rows, columns = low.shape
    critical = float(stats.chi2.isf(alpha - beta, strata * (rows - 1) * (columns - 1)))
    lower, upper, least_expected = 0.0, 0.0, np.inf
    for k in range(strata):
        size_low, size_high = _total(low, high, k, sizes)
        if size_low <= 0 or size_low > size_high:
            least_expected, upper = 0.0, upper + size_high * (min(rows, columns) - 1)
            continue
        # Shares of a stratum of unknown size t: the statistic is t phi^2 of the shares.
        ends = low[k] / size_high, high[k] / size_low
        phi = statistic_bounds(*ends, 1)
        lower, upper = lower + size_low * phi[0], upper + size_high * phi[1]
        by_row = margin_bounds(*ends, axis=1, n=1.0)[0].min()
        by_column = margin_bounds(*ends, axis=0, n=1.0)[0].min()
        least_expected = min(least_expected, size_low * max(by_row, 0) * max(by_column, 0))
    verdict: Verdict = "inconclusive"
    reason = ""
    if lower > critical or upper <= critical:
        if least_expected >= LEAST_EXPECTED:
            verdict = "reject" if lower > critical else "accept"
        else:
            reason = (
                f"expected counts of {LEAST_EXPECTED} are not certain, which the chi-square "
                "critical value needs"
            )
    return CertifiedChiSquare(verdict, lower, upper, critical, alpha, beta, sizes, reason)


def _total(low: Floats, high: Floats, k: int, sizes: tuple[int, int]) -> tuple[float, float]:
    """Ends of the size of stratum k."""
    lower, upper = low.sum(axis=(1, 2)), high.sum(axis=(1, 2))
    return (
        float(max(lower[k], sizes[0] - (upper.sum() - upper[k]), 0)),
        float(min(upper[k], sizes[1] - (lower.sum() - lower[k]))),
    )
