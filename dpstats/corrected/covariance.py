"""Interval arithmetic for covariances of columns in [-1, 1], with the sampling of rows."""

from __future__ import annotations

import math

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni


def divided(low: Floats, high: Floats, least: float, most: float) -> tuple[Floats, Floats]:
    """Interval over a positive interval."""
    return (
        np.minimum(low / least, low / most),
        np.maximum(high / least, high / most),
    )


def outer(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Ends of m m' for m in a box; a square is not negative."""
    corners = [np.outer(a, b) for a in (low, high) for b in (low, high)]
    least, most = np.minimum.reduce(corners), np.maximum.reduce(corners)
    own = np.arange(len(low))
    least[own, own] = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(low**2, high**2))
    return least, most


def sampling_box(
    means: tuple[Floats, Floats], variances: Floats, n: int, gamma: float, *, joint: bool
) -> Floats:
    """Distance (p, p) of the population's covariances from the rows', for columns in [-1, 1].

    The rows' covariance is mean(yz) - d_y d_z, y and z the columns about their expectations, d
    the error of their means. Hoeffding bounds d; with |y| <= R_y, E (yz)^2 <= R_y^2 var(z), so
    Bernstein bounds the mean; the variances by the lower tail of the mean of y^2 (Maurer 2003).
    """
    p = len(variances)
    # Each side of a mean and of a product is one event, and so is the lower tail of a variance.
    log = math.log(1 / bonferroni(gamma, 3 * p + p * (p + 1) if joint else 8))
    mean_error = math.sqrt(2 * log / n)
    reach = np.minimum(1 + np.maximum(np.abs(means[0]), np.abs(means[1])) + mean_error, 2)
    half = reach * mean_error / 2
    sd = half + np.sqrt(half**2 + np.maximum(np.diag(variances), 0) + mean_error**2)
    sd = np.minimum(sd, 1)
    crossed = np.outer(reach, sd)
    widest = np.outer(reach, reach)
    linear = 2 * widest * log / (3 * n)
    root = np.sqrt(2 * np.minimum(crossed, crossed.T) ** 2 * log / n)
    return np.asarray(linear + root + mean_error**2)
