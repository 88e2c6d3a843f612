"""Residuals under a ridge penalty, which vary with the regressors."""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats

_SINGULAR = 1e-12


def misfit_bound(least: Floats, taken: Floats, radius: Floats) -> float:
    """Bound on the mean square of x'd, d the shrinkage of the coefficients by a penalty.

    Penalised coefficients b solve (A + L) b = c and those without penalty A (b + d) = c, so
    A d = L b and the mean of (x'd)^2 is d'A d = (L b)' A^-1 (L b).

    Parameters
    ----------
    least : (p, p) float64
        At most A, in the order of symmetric matrices.
    taken, radius : (p,) float64
        L b, to within the radius.

    Returns
    -------
    float
        Infinite where `least` is not positive definite.
    """
    if not np.any(taken) and not np.any(radius):
        return 0.0
    if not positive_definite(least) or not np.all(np.isfinite(radius)):
        return np.inf
    inverse = np.linalg.inv(least)
    centre = inverse @ taken
    return float(taken @ centre + 2 * np.abs(centre) @ radius + radius @ np.abs(inverse) @ radius)


def largest_leverage(inverse: Floats, bounds: Floats) -> float:
    """Bound on x'G^-1 x over regressors of absolute values at most `bounds` (p,), of G's inverse.

    By Cauchy's inequality (h'x)^2 is at most that times h'G h; it decreases in G.
    """
    return float(bounds @ np.abs(inverse) @ bounds)


def positive_definite(matrix: Floats) -> bool:
    """Whether a symmetric matrix is positive definite by more than rounding, in any units."""
    own = np.diag(matrix)
    if not np.all(own > 0):
        return False
    values = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(own, own)))
    return bool(values[0] > _SINGULAR * values[-1])
