"""From the accuracy of synthetic rows to the errors of statistics computed from them.

delta bounds, for all functions at once, the distance of a mean over the synthetic rows Y from that
over the private rows X, in the scale where functions have values in [-1, 1] (BL24, Definition
II.2). It is `Sizes.error` of a theorem, 8 times the delta that sizes are asked for, or
`release.accuracy().delta`. Where a theorem promises nothing it is infinite, and so are the bounds
(1 for a sine). They are exact inequalities on that event, for any rows; "What follows for
statistics" in docs/explanation/synthetic-rows/theory.md has them with their proofs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_finite, check_number, check_whole, is_number, short
from dpstats.corrected.eigenvalues import sine_bounds
from dpstats.errors import RequestError


def proportion_margin(delta: float, n: int, *, alpha: float = 0.05) -> float:
    """Half-width of an interval for a population proportion about that of the synthetic rows.

    delta for the synthetic rows and Hoeffding's bound sqrt(log(2/alpha) / (2 n)) for the n private
    ones. The number of synthetic rows enters through delta alone.

    Parameters
    ----------
    delta : float
        Error of the synthetic rows, not negative.
    n : int
        Private rows.
    alpha : float
        Error probability of the sampling of X, beside that of `delta`.

    Returns
    -------
    float

    Raises
    ------
    RequestError
        For an argument out of its range.

    References
    ----------
    BL24, Section V, "Estimating binomial proportions".

    Examples
    --------
    >>> import dpstats as dps
    >>> round(dps.theory.proportion_margin(0.01, 10_000), 4)
    0.0236
    """
    _check_delta(delta)
    check_whole("n", n, 1)
    return delta + math.sqrt(math.log(2 / check_alpha(alpha)) / (2 * n))


def chi_square_error(delta: float, n: int, expected: ArrayLike, statistic: float) -> float:
    """Largest distance of Pearson's goodness-of-fit statistics of private and synthetic shares.

    The statistic is the square of a norm, so its root moves by at most
    r = delta sqrt(n sum 1/q), and the statistic by 2 r sqrt(T) + r^2.

    Parameters
    ----------
    delta : float
        Error of the shares of all categories.
    n : int
        Private rows; the statistic is n sum (p - q)^2 / q.
    expected : (K,) array_like
        Expected shares q, positive, with sum one.
    statistic : float
        T of the synthetic shares, with the factor n.

    Returns
    -------
    float

    Raises
    ------
    RequestError
        For an argument out of its range.

    References
    ----------
    BL24, Section V, the chi-square test.

    Examples
    --------
    >>> import dpstats as dps
    >>> round(dps.theory.chi_square_error(0.001, 10_000, [0.25] * 4, statistic=9.0), 2)
    2.56
    """
    _check_delta(delta)
    check_whole("n", n, 1)
    q = check_finite("expected", expected)
    if q.ndim != 1 or not (q > 0).all() or abs(q.sum() - 1) > 1e-9:
        raise RequestError(f"expected must be positive shares with sum one, got {short(expected)}")
    _check_delta(statistic, "statistic")
    root = delta * math.sqrt(n * float((1 / q).sum()))
    return root * (2 * math.sqrt(statistic) + root)


def covariance_error(delta: float, p: int, *, centred: bool = False) -> float:
    """Spectral norm of X'X/n - Y'Y/k, or of the difference of the covariance matrices.

    A symmetric p x p matrix with entries of at most delta has a norm of at most p delta. Every
    product of two means in [-1, 1] adds 2 delta. By Weyl's inequality it bounds the errors of all
    eigenvalues too.

    Parameters
    ----------
    delta : float
        Error of the means of all products of two columns; if `centred`, of all columns too.
    p : int
        Columns, in [-1, 1].
    centred : bool
        Of the covariance matrix; else of the second moments, as in the paper.

    Returns
    -------
    float

    Raises
    ------
    RequestError
        For an argument out of its range.

    References
    ----------
    BL24, Section V, "Covariance matrix estimation".

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.theory.covariance_error(0.01, 5)
    0.05
    """
    _check_delta(delta)
    check_whole("p", p, 1)
    return (3 if centred else 1) * p * delta


def principal_component_sines(
    delta: float, eigenvalues: ArrayLike, *, centred: bool = False
) -> Floats:
    """Bounds on the sines of the angles between synthetic and private components.

    Davis and Kahan's theorem with Weyl's inequality: e / (gap - e), e from `covariance_error`; 1 if
    the gap is at most 2 e.

    Parameters
    ----------
    delta : float
        As for `covariance_error`.
    eigenvalues : (p,) array_like
        Of the synthetic rows' matrix, descending.
    centred : bool
        As for `covariance_error`.

    Returns
    -------
    (p,) float64

    Raises
    ------
    RequestError
        For an argument out of its range, or eigenvalues in another order.

    References
    ----------
    BL24, Section V, "Covariance matrix estimation".

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.theory.principal_component_sines(0.01, [0.9, 0.3, 0.2]).round(3)
    array([0.053, 0.429, 0.429])
    """
    values = check_finite("eigenvalues", eigenvalues)
    if values.ndim != 1 or not values.size or (np.diff(values) > 0).any():
        raise RequestError(f"eigenvalues must be numbers in descending order, got {short(values)}")
    return sine_bounds(values, covariance_error(delta, len(values), centred=centred))


def least_squares_error(delta: float, smallest: float, coefficients: ArrayLike) -> float:
    """Euclidean distance of the least squares coefficients of private and synthetic rows.

    With A b = c the normal equations of Y, (A + E)(b + d) = c + f has d = (A + E)^-1 (f - E b), at
    most (sqrt(p) delta + p delta |b|) / (s - p delta), s the smallest eigenvalue of A
    (eq. moved-coefficients).

    Parameters
    ----------
    delta : float
        Error of the means of all products of two columns, the outcome included.
    smallest : float
        The smallest eigenvalue of Y'Y/k of the predictors, the constant 1 included if there is an
        intercept.
    coefficients : (p,) array_like
        Of the synthetic rows, for columns in [-1, 1].

    Returns
    -------
    float
        Infinite if `smallest` is at most p delta.

    References
    ----------
    BL24, Section V, "M-estimation".

    Examples
    --------
    >>> import dpstats as dps
    >>> round(dps.theory.least_squares_error(0.001, 0.3, [0.5, -0.2]), 4)
    0.0084
    """
    _check_delta(delta)
    smallest = check_number("smallest", smallest)
    b = check_finite("coefficients", coefficients)
    if b.ndim != 1 or not b.size:
        raise RequestError(f"coefficients must be a vector, got {short(coefficients)}")
    p = len(b)
    left = smallest - p * delta
    moved = math.sqrt(p) * delta + p * delta * float(np.linalg.norm(b))
    return moved / left if left > 0 else math.inf


def precision_error(delta: float, p: int, smallest: float, *, centred: bool = False) -> float:
    """Spectral norm of the difference of the inverse covariance matrices of X and Y.

    (A + E)^-1 - A^-1 = -(A + E)^-1 E A^-1 has a norm of at most e / (s (s - e)), s the smallest
    eigenvalue of Y's matrix and e from `covariance_error` (eq. moved-inverse).

    Parameters
    ----------
    delta, p, centred
        As for `covariance_error`.
    smallest : float
        The smallest eigenvalue of Y's matrix.

    Returns
    -------
    float
        Infinite if `smallest` is at most e: the private matrix may be singular.

    References
    ----------
    BL24, Section V, graphical models.

    Examples
    --------
    >>> import dpstats as dps
    >>> round(dps.theory.precision_error(0.001, 5, 0.2), 3)
    0.128
    """
    e = covariance_error(delta, p, centred=centred)
    smallest = check_number("smallest", smallest)
    return e / (smallest * (smallest - e)) if smallest > e else math.inf


def excess_risk(delta: float, lipschitz: float, mesh: float, *, bound: float = 1.0) -> float:
    """Bound on the private risk of the synthetic rows' minimiser, above the least private risk.

    Losses at the points of a grid are functions of F, so risks there agree within bound * delta.
    Every beta is within `mesh` of a point, so risks agree within D = bound * delta + 2 L mesh
    everywhere (eq. moved-risk), and the minimiser for Y has a private risk of at most 2 D above the
    least.

    Parameters
    ----------
    delta : float
        Error of the means of the losses at the grid's points, divided by `bound`.
    lipschitz : float
        L, of the loss in beta, for every row.
    mesh : float
        Largest distance of a beta in the set from the grid.
    bound : float
        Largest absolute loss at a point of the grid.

    Returns
    -------
    float

    Raises
    ------
    RequestError
        For an argument out of its range.

    References
    ----------
    BL24, Section V, "M-estimation".

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.theory.excess_risk(0.01, lipschitz=1.0, mesh=0.005)
    0.04
    >>> dps.theory.grid_size(2, side=2.0, mesh=0.005)  # functions that this asks for
    80089
    """
    for name, value in (("delta", delta), ("lipschitz", lipschitz), ("mesh", mesh)):
        _check_delta(value, name)
    _check_delta(bound, "bound")
    if math.isinf(delta):
        return math.inf
    return 2 * (bound * delta + 2 * lipschitz * mesh)


def grid_size(p: int, *, side: float, mesh: float) -> int:
    """Points of a cubic grid within `mesh` of all of [0, side]^p: the functions that risks need.

    Cubes of side 2 mesh / sqrt(p) have corners within mesh of their centre.

    Parameters
    ----------
    p : int
        Coefficients.
    side, mesh : float
        Positive.

    Returns
    -------
    int

    Raises
    ------
    RequestError
        For an argument out of its range.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.theory.grid_size(1, side=2.0, mesh=0.1)
    10
    """
    check_whole("p", p, 1)
    for name, value in (("side", side), ("mesh", mesh)):
        if check_number(name, value) <= 0:
            raise RequestError(f"{name} must be positive, got {short(value)}")
    each = math.ceil(side * math.sqrt(p) / (2 * mesh) * (1 - 1e-12))  # rounding adds no point
    return int(each**p)


def _check_delta(value: float, name: str = "delta") -> None:
    if name == "delta" and is_number(value) and value == math.inf:
        return  # what a theorem promises where it promises nothing
    if check_number(name, value) < 0:
        raise RequestError(f"{name} must not be negative, got {short(value)}")
