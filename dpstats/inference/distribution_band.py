"""A band that holds a distribution function at all measured points at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.simulation import draw_noise

if TYPE_CHECKING:
    from dpstats.answers import Answers
    from dpstats.results import Method, Target

_DRAWS = 3_999  # of a maximal deviation; an order statistic of them is a valid bound
_SPLITS = 24  # ways to share alpha between sampling and noise that a certified band tries


def distribution_band(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Ends (d,) of a band around the noisy answers to the distribution function F at d points.

    Noise-aware, the simulated quantile of the largest deviation of sampling (at the fitted
    distribution, so approximate) plus noise; certified, the bound of Dvoretzky, Kiefer and
    Wolfowitz plus the simulated quantile of the largest noise, the best of 24 splits of alpha. For
    the private table itself there is noise alone.

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
    width = _half_width(answers, fitted, alpha, method, target, rng)
    # F increases, so the running best ends hold too.
    low = np.clip(np.maximum.accumulate(answers.means - width), 0, 1)
    high = np.clip(np.minimum.accumulate((answers.means + width)[::-1])[::-1], 0, 1)
    return low, high


def _half_width(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    rng: np.random.Generator,
) -> float:
    n = answers.n
    noise = draw_noise(answers, _DRAWS, rng) / n
    largest = np.abs(noise).max(axis=1)
    if target == "table":
        return _bound(largest, alpha)
    if method == "noise_aware":
        cells = np.diff(fitted)
        drawn = rng.multinomial(n, cells / cells.sum(), size=_DRAWS).cumsum(axis=1)[:, :-1]
        moved = drawn / n - fitted[1:-1] + noise
        return _bound(np.abs(moved).max(axis=1), alpha)
    shares = alpha * np.arange(1, _SPLITS) / _SPLITS  # public numbers alone choose the split
    return min(
        float(np.sqrt(np.log(2 / (alpha - beta)) / (2 * n))) + _bound(largest, beta)
        for beta in shares
    )


def _bound(draws: Floats, error: float) -> float:
    """Order statistic that one more draw exceeds with probability at most `error`."""
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[min(rank, len(draws)) - 1])
