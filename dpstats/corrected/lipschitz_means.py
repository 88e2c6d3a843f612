"""Means of all Lipschitz functions of one number at once, from bounds on its distribution."""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats


def wasserstein_bound(values: Floats, cuts: Floats, low: Floats, high: Floats) -> float:
    """Largest Wasserstein-1 distance of some values to a law between bounds.

    Parameters
    ----------
    values : (m,) float64
        In [cuts[0], cuts[-1]].
    cuts : (k + 1,) float64
        Increasing; the law lives between the first and the last.
    low, high : (k,) float64
        Bounds on the law's distribution function between neighbouring cuts.

    Returns
    -------
    float
        In the unit of the values.

    Notes
    -----
    The distance of laws of one number is the integral of |F - G| over the line, and the largest
    difference of the means of a function with slope at most one (Kantorovich and Rubinstein).
    Between cuts F is constant and low <= G <= high, and |F - G| is at most the larger of F - low
    and high - F.
    """
    points = np.sort(values)
    knots = np.unique(np.concatenate([cuts, points]))
    piece = np.clip(np.searchsorted(cuts, knots[:-1], side="right") - 1, 0, len(low) - 1)
    share = np.searchsorted(points, knots[:-1], side="right") / len(points)
    return float(np.diff(knots) @ np.maximum(share - low[piece], high[piece] - share))
