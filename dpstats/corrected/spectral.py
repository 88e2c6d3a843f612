"""Certified statements about eigenvalues and eigenvectors of a matrix known to within a radius.

There is no model: only a spectral radius of the error, and rows in a known ball.
"""

from __future__ import annotations

import math

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni

_EVENTS = 5  # that `sampling_radii` rests on; two of them have two sides


def descending(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (p,) of a symmetric matrix from the largest down, and vectors (p, p) as rows.

    The largest loading of every vector, by absolute value, is positive, as in scikit-learn.
    """
    values, vectors = np.linalg.eigh(matrix)
    rows = vectors.T[::-1]
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, np.newaxis], axis=1)
    return values[::-1], rows * np.where(largest < 0, -1.0, 1.0)


def sampling_radii(
    top: float, trace: float, n: int, p: int, ball: float, reach: float, gamma: float
) -> tuple[float, float]:
    """Distance of the population's covariance from the rows', in spectral norm and in trace.

    With y = x - E x, the rows' covariance is mean(yy') - dd', d the error of their mean. The first
    is within the matrix Bernstein bound [1]_ (Theorem 6.1) of its expectation, since
    0 <= yy' <= r and E (yy')^2 <= r E yy', r the largest |y|^2; the trace is a mean of |y|^2 and
    Bernstein's bound serves. The unknown E yy' is bounded by the lower tail of a mean of
    non-negative variables [2]_, P(mean <= E Y - t) <= exp(-n t^2 / (2 E Y^2)), at its own top
    vector, so without the factor p. |d| has mean at most the root of ball / n and moves by at
    most 2 sqrt(ball) / n with one row (McDiarmid).

    Parameters
    ----------
    top, trace : float
        Upper bounds of the largest eigenvalue and of the trace of the rows' covariance.
    n, p : int
        Numbers of independent rows, and of columns.
    ball : float
        Largest squared distance of a row from some fixed point, the columns' unit squared; 0 if
        the matrix holds second moments, about a fixed point, instead of a covariance.
    reach : float
        Largest squared distance of a row from the mean of the population (from the fixed point).
    gamma : float
        Error probability.

    Returns
    -------
    spectral, of_trace : float

    References
    ----------
    .. [1] J. A. Tropp (2012), User-friendly tail bounds for sums of random matrices. Found.
       Comput. Math. 12, 389-434.
    .. [2] A. Maurer (2003), A bound on the deviation probability for sums of non-negative random
       variables. J. Inequal. Pure Appl. Math. 4, 15.
    """
    each = bonferroni(gamma, _EVENTS)
    single, double = math.log(1 / each), math.log(2 / each)
    moved = _mean_error(n, ball, single) ** 2
    low = math.sqrt(2 * reach * single / n)

    def expected(seen: float) -> float:
        return (low / 2 + math.sqrt(low**2 / 4 + max(seen, 0) + moved)) ** 2

    def bernstein(variance: float, log: float) -> float:
        linear = reach * log / (3 * n)
        return linear + math.sqrt(linear**2 + 2 * variance * log / n) + moved

    return (
        bernstein(reach * expected(top), double + math.log(p)),
        bernstein(reach * expected(trace), double),
    )


def mean_error(n: int, ball: float, gamma: float) -> float:
    """Distance of the rows' mean from the population's, on the event of `sampling_radii`."""
    return _mean_error(n, ball, math.log(1 / bonferroni(gamma, _EVENTS)))


def _mean_error(n: int, ball: float, log: float) -> float:
    return math.sqrt(ball / n) * (1 + math.sqrt(2 * log))


def sine_bounds(values: Floats, radius: float) -> Floats:
    """Bounds (p,) on the sines of the angles between estimated and true eigenvectors.

    Davis and Kahan's sine theorem: radius over the distance from the estimated eigenvalue to the
    other true ones, which by Weyl's inequality is at least the estimated gap less the radius. 1 if
    that gives no bound.

    Parameters
    ----------
    values : (p,) float64
        Eigenvalues, descending.
    radius : float
        Of the error in spectral norm; infinite if it is unknown.
    """
    gaps = -np.diff(values)
    gap = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    return _sines(gap, radius)


def subspace_sines(values: Floats, radius: float) -> Floats:
    """The same for the largest angle between the subspaces of the first 1, .., p vectors."""
    return _sines(np.append(-np.diff(values), np.inf), radius)


def _sines(gap: Floats, radius: float) -> Floats:
    sines = np.where(np.isinf(gap), 0.0, 1.0)  # all space has no other to turn to
    known = np.isfinite(gap) & (gap > 2 * radius)  # else the bound is one or more
    sines[known] = radius / (gap[known] - radius)
    return sines


def loading_bounds(vectors: Floats, sines: Floats) -> tuple[Floats, Floats]:
    """Bounds on the loadings of all unit vectors within an angle of the given ones.

    A loading is the cosine of the angle with an axis, and turning the vector by t changes that
    angle by t at most. With a sine of 1 the sign is unknown too.

    Parameters
    ----------
    vectors : (k, p) float64
        Unit vectors as rows.
    sines : (k,) float64
        In [0, 1].
    """
    angles = np.arccos(np.clip(vectors, -1, 1))
    turn = np.where(sines < 1, np.arcsin(np.clip(sines, 0, 1)), np.pi)[:, np.newaxis]
    low, high = np.cos(np.minimum(angles + turn, np.pi)), np.cos(np.maximum(angles - turn, 0))
    return np.asarray(np.minimum(low, vectors)), np.asarray(np.maximum(high, vectors))
