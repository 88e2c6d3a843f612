"""Covariances and correlations of columns in [-1, 1] over boxes, and the sampling of rows."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni

Range = tuple[float, float]
LEAST_VARIANCE = 1e-12  # of a column in [-1, 1]: at most this may be rounding


def divided(low: Floats, high: Floats, least: float, most: float) -> tuple[Floats, Floats]:
    """Interval over a positive interval."""
    return (np.minimum(low / least, low / most), np.maximum(high / least, high / most))


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


def correlation_range(x: Range, y: Range, xx: Range, yy: Range, xy: Range) -> Range:
    """Extremes of (E xy - E x E y) / sqrt((E xx - (E x)^2) (E yy - (E y)^2)), within [-1, 1].

    Over a box of moments; exact where variances are positive throughout. For the largest value E xy
    is at its upper end P. Where the numerator is positive somewhere, E xx and E yy are at their
    lower ends and the largest value is at a corner; where nowhere, they are at their upper ends,
    and the candidates are corners and the zeros E x = E y E xx / P (and likewise in E y) of the
    derivative on the sides. The smallest value is minus the largest after y -> -y.
    """
    if min(_most(x, xx), _most(y, yy)) <= LEAST_VARIANCE:
        return -1.0, 1.0
    return -_largest(x, _mirrored(y), xx, yy, _mirrored(xy)), _largest(x, y, xx, yy, xy)


def _most(mean: Range, square: Range) -> float:
    return square[1] - min(max(mean[0], -mean[1], 0.0) ** 2, square[1])


def _mirrored(ends: Range) -> Range:
    return -ends[1], -ends[0]


def _largest(x: Range, y: Range, xx: Range, yy: Range, xy: Range) -> float:
    p = xy[1]
    corners = list(itertools.product(x, y))
    if any(p > a * b for a, b in corners):
        return max(_value(a, b, xx[0], yy[0], p, edge=1.0) for a, b in corners)
    points = corners
    if p != 0:
        points = points + [(b * xx[1] / p, b) for b in y] + [(a, a * yy[1] / p) for a in x]
    inside = [(a, b) for a, b in points if x[0] <= a <= x[1] and y[0] <= b <= y[1]]
    return max(_value(a, b, xx[1], yy[1], p, edge=0.0) for a, b in inside)


def _value(x: float, y: float, xx: float, yy: float, xy: float, edge: float) -> float:
    """The correlation, clipped; `edge`, an upper bound nearby, where a variance vanishes."""
    variances = xx - x * x, yy - y * y
    if min(variances) <= 0:
        return edge
    return float(min(max((xy - x * y) / (variances[0] * variances[1]) ** 0.5, -1.0), 1.0))
