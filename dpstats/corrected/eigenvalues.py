"""Confidence intervals for eigenvalues from a centre and a radius (BL24, covariance and PCA)."""

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite, check_number, check_numbers
from dpstats.corrected.spectral import descending, sampling_radii
from dpstats.error_rates import check_beta
from dpstats.errors import RequestError


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
    """Bound on the spectral norm of a symmetric error, given directly or by its entries.

    That norm is at most the norm of any bounds on the absolute values of the entries.
    """
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
