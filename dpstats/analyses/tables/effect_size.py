"""Interval for the size of a departure from given probabilities, from noisy counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpstats.arrays import Floats
from dpstats.inference.simplex import project_to_total


def effect_interval(
    departures: Floats,
    noise: Floats,
    n: int,
    p0: Floats,
    rng: np.random.Generator,
    *,
    alpha: float,
    bounded: bool = False,
) -> Floats:
    """Noise-aware interval for w = sqrt(sum (p - p0)^2 / p0), Cohen's effect size.

    Pearson's statistic Q of the noisy counts is inverted: with e the unit direction of the
    departure and xi the error of the counts (sampling plus noise), it is
    ``n w^2 + 2 w <e, xi> + |xi|^2 / n`` in the metric of 1 / p0, and xi is simulated. The direction
    and the sampling law are plugged in, so the interval is approximate; its coverage is checked
    by simulation.

    Where only a bound on the sampling covariance is known, Q may be smaller than its law says. It
    is at least the square of the component along e, whose lower quantile is smallest at the bound:
    the upper limit is that of the component.

    Parameters
    ----------
    departures : (d,) float64
        Noisy counts less expected ones.
    noise : (R, d) float64
        Draws from the law of the noise in them.
    n : int
    p0 : (d,) float64
    rng : numpy Generator
    alpha : float
    bounded : bool
        n multinomial rows have the largest covariance that there may be.

    Returns
    -------
    (2,) float64
        From 0 to sqrt(1 / min(p0) - 1), the largest w there is.
    """
    largest = float(np.sqrt(1 / p0.min() - 1))
    shares = project_to_total(n * p0 + departures, n) / n
    observed = float(np.sum(departures**2 / (n * p0)))
    chance = float(np.sum(np.mean(noise**2, axis=0) / (n * p0))) + len(p0) - 1
    # the smaller the excess over the null mean, the closer the sampling law is to the null
    kept = max(0.0, 1 - chance / max(observed, 1e-300))
    p = p0 + kept * (shares - p0)
    errors = rng.multinomial(n, p / p.sum(), len(noise)) - n * p + noise
    direction = shares - p0
    length = float(np.sqrt(np.sum(direction**2 / p0)))
    along = errors @ (direction / p0) / length if length > 0 else np.zeros(len(errors))
    square = np.sum(errors**2 / (n * p0), axis=1)
    # Beyond nearly all of its law at an end of w it is read as the median there, else no w is kept.
    at_ends = square, n * largest**2 + 2 * largest * along + square
    observed = float(np.clip(observed, *(np.median(drawn) for drawn in at_ends)))

    def above(w: float) -> float:
        return float(np.mean(n * w**2 + 2 * w * along + square >= observed))

    def along_above(w: float) -> float:
        return float(np.mean(n * w + along >= np.sqrt(n * observed)))

    least = along_above if bounded else above
    low = _crossing(lambda w: above(w) - alpha / 2, largest)
    high = _crossing(lambda w: least(w) - (1 - alpha / 2), largest)
    return np.array([low, high])


def _crossing(excess: Callable[[float], float], largest: float) -> float:
    """Smallest w on [0, largest] from which on `excess` is positive, by bisection."""
    if excess(0.0) >= 0:
        return 0.0
    low, high = 0.0, largest
    if excess(high) < 0:
        return largest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) >= 0 else (middle, high)
    return high
