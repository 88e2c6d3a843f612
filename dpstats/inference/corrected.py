"""Intervals for those who hold only rows: a centre, a radius that holds with 1 - beta, and n."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpstats.errors import RequestError
from dpstats.inference.checks import check_alpha, check_count, check_finite, check_numbers
from dpstats.inference.chi_square_bounds import chisquare
from dpstats.inference.interval_systems import ols
from dpstats.inference.spectral import descending, sampling_radii

__all__ = ["chisquare", "clopper_pearson", "eigenvalues", "ols", "proportion_confint"]

FloatArray = NDArray[np.float64]

_ROUNDING = 1e-9  # relative; n (p - r) may miss an integer by rounding, which must not shorten


def proportion_confint(
    p: ArrayLike,
    radius: ArrayLike,
    n: ArrayLike,
    *,
    alpha: float = 0.05,
    beta: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Confidence interval for a population proportion known only to within a radius.

    With probability 1 - beta the private count X lies in the box n (p +- radius). The
    Clopper-Pearson limits increase in X, so on that event they lie outside of those at the
    lowest and highest integers of the box, which cover with probability 1 - (alpha - beta).
    Together the error is at most alpha, whatever the sample size.

    Parameters
    ----------
    p : array_like
        Centre: the share in the synthetic rows, or a noisy answer. May be outside [0, 1].
    radius : array_like
        ``|p - share in the private rows| <= radius`` with probability at least 1 - beta; not
        negative. For synthetic rows this is the certificate at alpha = beta:
        ``release.accuracy(alpha=beta).delta``.
    n : array_like
        Number of private rows (not of synthetic ones), an integer of at least 1.
    alpha : float
        Error probability in all, in (0, 1/2].
    beta : float, optional
        The part of `alpha` that the radius uses, in (0, alpha). Default: half of it, so a 95%
        interval needs the radius that holds with probability 97.5%.

    Returns
    -------
    low, high : float64 arrays of the broadcast shape, in [0, 1]
        If the box misses [0, 1] the count is taken at the nearer end, 0 or n.

    Raises
    ------
    RequestError
        If an argument is out of its range.

    References
    ----------
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits
    illustrated in the case of the binomial. Biometrika 26, 404-413.

    Examples
    --------
    >>> import dpstats as dps
    >>> low, high = dps.corrected.proportion_confint(0.3, 0.01, 1000)
    >>> print(f"{low:.4f} {high:.4f}")
    0.2582 0.3439
    """
    alpha = check_alpha(alpha)
    beta = _part(alpha, beta)
    p, n = check_finite("p", p), check_finite("n", n)
    radius = check_numbers("radius", radius)
    try:
        np.broadcast_shapes(p.shape, radius.shape, n.shape)
    except ValueError:
        raise RequestError(
            f"p, radius and n have shapes {p.shape}, {radius.shape} and {n.shape}, which do not fit"
        ) from None
    if not np.all(radius >= 0):
        raise RequestError("radius must not be negative or missing; give half the box's width")
    if not np.all((n >= 1) & (n == np.floor(n))):
        raise RequestError("n must be the number of private rows, an integer of at least 1")
    slack = _ROUNDING * (1 + n * (np.abs(p) + radius))
    lowest = np.clip(np.ceil(n * (p - radius) - slack), 0, n)
    highest = np.clip(np.floor(n * (p + radius) + slack), 0, n)
    return clopper_pearson(lowest, highest, n - lowest, n - highest, alpha - beta)


def eigenvalues(
    matrix: ArrayLike,
    radius: ArrayLike,
    n: int,
    *,
    ball: float | None = None,
    centered: bool = True,
    alpha: float = 0.05,
    beta: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Confidence intervals for the eigenvalues of a matrix known only to within a radius.

    By Weyl's inequality no eigenvalue moves by more than the spectral norm of the error. With
    probability 1 - beta that is at most the radius for the private rows' matrix; the matrix of n
    independent rows in a ball is near the population's by the matrix Bernstein bound, with
    probability 1 - (alpha - beta). All intervals hold together, for any data.

    Parameters
    ----------
    matrix : (p, p) array_like
        Symmetric: the covariance matrix (divisor n) or the second moments, of the synthetic rows
        or from noisy answers.
    radius : float or (p, p) array_like
        Bound on the error of `matrix` that holds with probability at least 1 - beta: in spectral
        norm, or entry by entry. For second moments of synthetic rows in unit scale the entries'
        bound is the certificate at alpha = beta, ``release.accuracy(alpha=beta).delta``.
    n : int
        Number of private rows (not of synthetic ones).
    ball : float, optional
        Largest squared length of a row, or squared distance from some fixed point, in the units
        of `matrix`; public. Default p, which is right in unit scale (columns from -1 to 1).
    centered : bool
        Whether `matrix` is a covariance; False for second moments about that fixed point.
    alpha : float
        Error probability in all, in (0, 1/2].
    beta : float, optional
        The part of `alpha` that the radius uses, in (0, alpha); default half of it.

    Returns
    -------
    low, high : (p,) float64
        For the eigenvalues from the largest down; not negative.

    Raises
    ------
    RequestError
        If an argument is out of its range.

    References
    ----------
    Weyl, H. (1912). Das asymptotische Verteilungsgesetz der Eigenwerte. Math. Ann. 71, 441-479.
    Tropp, J. A. (2012). User-friendly tail bounds for sums of random matrices. Found. Comput.
    Math. 12, 389-434.

    Examples
    --------
    >>> import dpstats as dps
    >>> low, high = dps.corrected.eigenvalues([[0.5, 0.2], [0.2, 0.3]], 0.01, 100_000)
    >>> print(low.round(3), high.round(3))
    [0.587 0.139] [0.661 0.213]
    """
    alpha = check_alpha(alpha)
    beta = _part(alpha, beta)
    matrix = check_finite("matrix", matrix)
    if matrix.ndim != 2 or len(matrix) != matrix.shape[-1] or not len(matrix):
        raise RequestError(f"matrix must be square, got shape {matrix.shape}")
    if not np.allclose(matrix, matrix.T):
        raise RequestError("matrix must be symmetric, as a covariance matrix is")
    n, p = check_count(n), len(matrix)
    bounds = check_numbers("radius", radius)
    if bounds.shape not in ((), matrix.shape) or not np.all(bounds >= 0):
        raise RequestError(
            "radius must be one number, or a matrix of bounds for the entries; not negative"
        )
    ball = float(p) if ball is None else float(ball)
    if not 0 < ball < np.inf:
        raise RequestError(f"ball={ball:g} is no squared length; give a positive number")
    # the spectral norm of a matrix is at most that of any bounds on the sizes of its entries
    reach = float(bounds) if bounds.ndim == 0 else _norm(np.maximum(bounds, bounds.T))
    values, _ = descending(matrix)
    top, trace = float(values[0]) + reach, float(values.sum()) + p * reach
    if np.isfinite(reach):
        around, widest = (ball, 4 * ball) if centered else (0.0, ball)
        reach += sampling_radii(top, trace, n, p, around, widest, alpha - beta)[0]
    return np.maximum(values - reach, 0), np.maximum(values + reach, 0)


def _norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix, 2)) if np.all(np.isfinite(matrix)) else np.inf


def _part(alpha: float, beta: float | None) -> float:
    """The part of alpha that a radius uses."""
    beta = alpha / 2 if beta is None else float(beta)
    if not 0 < beta < alpha:
        raise RequestError(
            f"beta={beta:g} is the part of alpha={alpha:g} that the radius uses; it must be above "
            f"0 and below alpha. Leave it out for {alpha / 2:g}."
        )
    return beta


def clopper_pearson(
    low_yes: FloatArray,
    high_yes: FloatArray,
    high_no: FloatArray,
    low_no: FloatArray,
    alpha: float,
) -> tuple[FloatArray, FloatArray]:
    """Union of the Clopper-Pearson intervals over a box of counts of yes and no.

    The limits increase in the count of yes and decrease in that of no, so the union reaches
    from the lower limit at (low_yes, high_no) to the upper limit at (high_yes, low_no).

    Parameters
    ----------
    low_yes, high_yes, high_no, low_no : (...) float64
        Integers, not negative.
    alpha : float
        Error probability.

    Returns
    -------
    low, high : (...) float64, in [0, 1]

    Examples
    --------
    Between 28 and 32 of 100 rows say yes:

    >>> import numpy as np
    >>> import dpstats as dps
    >>> low, high = dps.corrected.clopper_pearson(*np.array([28.0, 32.0, 72.0, 68.0]), alpha=0.05)
    >>> print(low.round(3), high.round(3))
    0.195 0.421
    """
    # max(., 1): where a count is 0 the limit is 0 or 1, and the Beta law has no such parameter
    low = special.betaincinv(np.maximum(low_yes, 1), high_no + 1, alpha / 2)
    high = special.betaincinv(high_yes + 1, np.maximum(low_no, 1), 1 - alpha / 2)
    return (
        np.asarray(np.where(low_yes > 0, low, 0.0), dtype=np.float64),
        np.asarray(np.where(low_no > 0, high, 1.0), dtype=np.float64),
    )
