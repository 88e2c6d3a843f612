"""A simultaneous confidence band for a distribution function at all measured points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import splits_of_band
from dpstats.inference.counts.binomial import within_counts
from dpstats.inference.simulation import draw_noise
from dpstats.measured.answers import joint_noise_quantiles

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.measured.answers import Answers

_DRAWS = 3_999  # of a maximal deviation; or as many as put
_TAIL = 4  # of them beyond the bound, which is an order statistic


def distribution_band(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Limits (d,) of a band around the noisy answers to the distribution function F at d points.

    Noise-aware, the simulated quantile of the largest deviation of sampling (at the fitted
    distribution, so approximate) plus noise; certified, the bound of Dvoretzky, Kiefer and
    Wolfowitz plus the simulated quantile of the largest noise, at the best of several splits of
    alpha. For the private table itself noise is the only error.

    Parameters
    ----------
    answers : Answers
        Noisy counts of the rows up to each point, in increasing order.
    fitted : (d + 2,) float64
        Increasing estimate of F, with a 0 before and a 1 after.
    alpha : float
        Error probability of the band as a whole.
    method : {"noise_aware", "certified"}
    target : {"population", "table"}
    rng : numpy Generator

    Returns
    -------
    low, high : (d,) float64, increasing, in [0, 1]

    References
    ----------
    Massart, P. (1990). The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality. Ann.
    Probab. 18, 1269-1283.
    """
    rows = answers.rows
    of_rows = rows.spent(alpha)
    fewest, most = rows.bounds(of_rows)
    width = _half_width(answers, fitted, alpha - of_rows, method, target, fewest, rng)
    sums = within_counts(answers.sums, answers.n)
    # F increases, so running maxima and minima of the limits are valid too.
    low = np.clip(np.maximum.accumulate(sums / most - width), 0, 1)
    above = sums / fewest + width
    high = np.minimum.accumulate(above[::-1])[::-1]
    return low, np.clip(high, 0, 1)


def _half_width(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    n: int,
    rng: np.random.Generator,
) -> float:
    if target == "population" and method == "noise_aware":
        noise = draw_noise(answers, _draws_for(alpha), rng) / n
        cells = np.diff(fitted)
        drawn = rng.multinomial(n, cells / cells.sum(), size=len(noise)).cumsum(axis=1)[:, :-1]
        return _bound(np.abs(drawn / n - fitted[1:-1] + noise).max(axis=1), alpha)
    beta = alpha
    sampling = 0.0
    if target == "population":

        def width(
            beta: float,
        ) -> float:  # by Bonferroni's inequality; depends on public numbers only
            noise = float(joint_noise_quantiles(answers, beta).max()) / n
            return _massart(n, alpha - beta) + noise

        beta = 0.0 if answers.certain else float(min(splits_of_band(alpha), key=width))
        sampling = _massart(n, alpha - beta)
    if answers.certain:
        return sampling + float(joint_noise_quantiles(answers, beta).max()) / n
    noise = draw_noise(answers, _draws_for(beta), rng) / n
    return sampling + _bound(np.abs(noise).max(axis=1), beta)


def _massart(n: int, error: float) -> float:
    """Bound on the largest deviation of n rows' distribution function, with error `error`."""
    return float(np.sqrt(np.log(2 / error) / (2 * n)))


def _draws_for(error: float) -> int:
    return max(_DRAWS, int(np.ceil(_TAIL / error)))


def _bound(draws: Floats, error: float) -> float:
    """Order statistic that one more draw exceeds with probability at most `error`."""
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[rank - 1])
