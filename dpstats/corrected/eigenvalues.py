"""Certified statements about eigenvalues and eigenvectors of a matrix known to within a radius."""

import math

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite, check_number, check_numbers
from dpstats.error_rates import bonferroni, check_beta
from dpstats.errors import RequestError

_EVENTS = 5  # that `sampling_radii` rests on; two of them have two sides


def eigenvalues(
    matrix: ArrayLike,
    radius: ArrayLike | None = None,
    n: int | tuple[int, int] | None = None,
    *,
    spectral_radius: float | None = None,
    ball: float | None = None,
    centered: bool = True,
    alpha: float = 0.05,
    beta: float | None = None,
) -> tuple[Floats, Floats]:
    """Confidence intervals for the eigenvalues of a matrix known only to within a radius.

    By Weyl's inequality no eigenvalue moves by more than the spectral norm of the error. For the
    private rows' matrix the radius bounds that norm with probability 1 - beta; the matrix of n
    independent rows in a ball is near the population's by the matrix Bernstein bound, with
    probability 1 - (alpha - beta). All intervals hold jointly, for any data.

    Parameters
    ----------
    matrix : (p, p) array_like
        Symmetric: the covariance matrix (divisor n) or the second moments, of the synthetic rows
        or from noisy answers.
    radius : float or (p, p) array_like, optional
        Each entry is within this of the private rows' own, all jointly with probability at least
        1 - beta; not negative. One number r holds for every entry: the spectral norm is then at
        most p r. For second moments of synthetic rows in unit scale it is that of the analysis at
        alpha = beta, ``release.radius("name", alpha=beta).max``.
    n : int, or (int, int)
        Number of private rows (not of synthetic ones). A tuple (low, high) bounds it, on the event
        of the radius, where it is not public (neighbours add or remove a row).
        The bounds on sampling error fall with n, so they are taken at its lower end.
    spectral_radius : float, optional
        In place of `radius`: a bound on the error of `matrix` in spectral norm, with probability at
        least 1 - beta, such as ``release.radius("name", alpha=beta).spectral.norm``.
    ball : float, optional
        Largest squared length of a row, or squared distance from some fixed point, in the units
        of `matrix`; public. Default p, which holds in unit scale (columns from -1 to 1).
    centered : bool
        Whether `matrix` is a covariance; False for second moments about that fixed point.
    alpha : float
        Total error probability, in (0, 1/2].
    beta : float, optional
        The probability that the radius fails, a share of `alpha`, in [0, alpha). Default: half of
        it, so 95% intervals need the radius that holds with probability 97.5%.

    Returns
    -------
    low, high : (p,) float64
        For the eigenvalues from the largest down; not negative.

    Raises
    ------
    RequestError
        If an argument is out of its range, or not exactly one of the radii is given.

    References
    ----------
    Weyl, H. (1912). Das asymptotische Verteilungsgesetz der Eigenwerte. Math. Ann. 71, 441-479.
    Tropp, J. A. (2012). User-friendly tail bounds for sums of random matrices. Found. Comput.
    Math. 12, 389-434.

    Examples
    --------
    >>> import dpstats as dps
    >>> low, high = dps.corrected.eigenvalues([[0.5, 0.2], [0.2, 0.3]], 0.005, 100_000)
    >>> print(low.round(3), high.round(3))
    [0.587 0.139] [0.661 0.213]
    """
    alpha = check_alpha(alpha)
    beta = check_beta(alpha, beta)
    matrix = check_finite("matrix", matrix)
    if matrix.ndim != 2 or len(matrix) != matrix.shape[-1] or not len(matrix):
        raise RequestError(f"matrix must be square, got shape {matrix.shape}")
    if not np.allclose(matrix, matrix.T):
        raise RequestError("matrix must be symmetric, as a covariance matrix is")
    n, p = check_counts(n)[0], len(matrix)
    reach = _spectral_norm(radius, spectral_radius, p)
    ball = float(p) if ball is None else check_number("ball", ball)
    if not 0 < ball < np.inf:
        raise RequestError(f"ball={ball:g} is not a squared length; give a positive number")
    values, _ = descending(matrix)
    top, trace = float(values[0]) + reach, float(values.sum()) + p * reach
    if np.isfinite(reach):
        around, widest = (ball, 4 * ball) if centered else (0.0, ball)
        reach += sampling_radii(top, trace, n, p, around, widest, alpha - beta)[0]
    return np.maximum(values - reach, 0), np.maximum(values + reach, 0)


def _spectral_norm(radius: ArrayLike | None, spectral_radius: float | None, p: int) -> float:
    """Bound on the spectral norm of a symmetric error: that of bounds on its entries."""
    if (radius is None) == (spectral_radius is None):
        raise RequestError(
            "give one of radius=, a bound on every entry of the matrix, and spectral_radius=, a "
            "bound on the spectral norm of its error"
        )
    if spectral_radius is not None:
        norm = check_numbers("spectral_radius", spectral_radius)
        if norm.ndim or not norm >= 0:
            raise RequestError("spectral_radius must be one number; not negative")
        return float(norm)
    assert radius is not None
    bounds = check_numbers("radius", radius)
    if bounds.shape not in ((), (p, p)) or not np.all(bounds >= 0):
        raise RequestError(
            "radius must be one number, or a matrix of bounds for the entries; not negative"
        )
    if not np.all(np.isfinite(bounds)):
        return np.inf
    entries = np.broadcast_to(np.maximum(bounds, bounds.T), (p, p))
    return float(np.linalg.norm(entries, 2))


def descending(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (p,), the largest first, and vectors (p, p) as rows with a positive maximum."""
    values, vectors = np.linalg.eigh(matrix)
    rows = vectors.T[::-1]
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, np.newaxis], axis=1)
    return values[::-1], rows * np.where(largest < 0, -1.0, 1.0)


def sampling_radii(
    top: float, trace: float, n: int, p: int, ball: float, reach: float, gamma: float
) -> tuple[float, float]:
    """Distance of the population's covariance from that of n rows, in spectral norm and in trace.

    With d the error of the mean, the rows' covariance is mean(yy') - dd'. The first is within the
    matrix Bernstein bound (Tropp 2012, Theorem 6.1; eq. matrix-bernstein of
    docs/explanation/inference/graphical-models.md) of its expectation, the trace within
    Bernstein's; E yy' is bounded by the lower tail of a mean of non-negative variables (Maurer
    2003, J. Inequal. Pure Appl. Math. 4, 15) at its own top vector; |d| has mean at most the root
    of ball / n and moves by at most 2 sqrt(ball) / n with one row (McDiarmid).

    `top` and `trace` bound the largest eigenvalue and the trace of the rows' covariance, `ball` the
    squared distance of a row from a fixed point (0 for second moments), `reach` that from the mean
    of the population; `gamma` is the error probability.
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
    """Bounds (p,) on the sines of the angles between estimated and true eigenvectors; 1 if none.

    Davis and Kahan's sine theorem, with the estimated gap (eigenvalues descend) less the radius, by
    Weyl.
    """
    gaps = -np.diff(values)
    gap = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    return _sines(gap, radius)


def subspace_sines(values: Floats, radius: float) -> Floats:
    """Bounds (p,) on the largest sine between the subspaces of the first 1, .., p vectors."""
    return _sines(np.append(-np.diff(values), np.inf), radius)


def _sines(gap: Floats, radius: float) -> Floats:
    sines = np.where(np.isinf(gap), 0.0, 1.0)  # all space has no other to turn to
    known = np.isfinite(gap) & (gap > 2 * radius)  # else the bound is one or more
    sines[known] = radius / (gap[known] - radius)
    return sines


def loading_bounds(vectors: Floats, sines: Floats) -> tuple[Floats, Floats]:
    """Bounds on the loadings of all unit vectors within an angle of given ones (k, p)."""
    angles = np.arccos(np.clip(vectors, -1, 1))
    turn = np.where(sines < 1, np.arcsin(np.clip(sines, 0, 1)), np.pi)[:, np.newaxis]
    low, high = np.cos(np.minimum(angles + turn, np.pi)), np.cos(np.maximum(angles - turn, 0))
    return np.asarray(np.minimum(low, vectors)), np.asarray(np.maximum(high, vectors))
