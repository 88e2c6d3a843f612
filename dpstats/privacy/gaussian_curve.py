"""The (epsilon, delta) curve of composed discrete Gaussians; nothing is drawn here."""

from __future__ import annotations

import math

import numpy as np

from dpstats.arrays import Floats
from dpstats.privacy.conversion import log_delta

# The part of sigma^2 that rounding takes, in units of mu^2: every choice gives a valid bound, and
# the least is taken. At .1 and above e^-A / m, below, rises with m, and the ripple is below 1/2.
_ROUNDED = np.arange(4, 93) / 40
_STEPS = np.linspace(0, 1, 17)
_TRAPEZOID = np.array([0.5, *[1.0] * 15, 0.5]) / 16
_FAR = 100.0


def log_delta_of_gaussians(rho: float, epsilon: float) -> float:
    """Logarithm of a delta at which composed discrete Gaussians are (epsilon, delta)-private.

    Integers S(D), one after another or together, are released with discrete Gaussian noise of
    scales sigma_t, and sum_t (S_t(D) - S_t(D'))^2 / (2 sigma_t^2) is at most `rho` for all
    neighbours D, D'. Later sums and scales may depend on earlier releases.

    Parameters
    ----------
    rho, epsilon : float
        Positive.

    Notes
    -----
    With mu^2 = 2 rho and any 0 < kappa < 1,

        delta <= G(epsilon - 2 artanh h; mu / sqrt(1 - kappa)) / (1 - h),
        h = 2 exp(-A (2 - kappa)) / (1 - 3 exp(-A)),  A = 2 pi^2 kappa / mu^2,

    where G(epsilon; nu) is the curve of N(0, 1) against N(nu, 1) [1]_: up to a factor between 1 - h
    and 1 + h, the discrete noise is continuous noise of variance (1 - kappa) sigma^2, rounded at
    random. ``docs/explanation/privacy/approximate-dp.md`` has the proof. The value returned is the
    smaller of this and of `conversion.log_delta`; it rises with `rho` and falls with `epsilon`.

    References
    ----------
    .. [1] B. Balle and Y.-X. Wang (2018), Improving the Gaussian mechanism for differential
       privacy: analytical calibration and optimal denoising, ICML, Theorem 8.

    Examples
    --------
    >>> from dpstats.privacy.conversion import log_delta
    >>> f"{math.exp(log_delta_of_gaussians(0.0164, 1)):.2g}, {math.exp(log_delta(0.0164, 1)):.2g}"
    '9.8e-10, 4.7e-09'
    """
    kappa = 2 * rho * _ROUNDED
    rounded = _ROUNDED[kappa < 1]
    kappa = kappa[kappa < 1]
    a = 2 * math.pi**2 * rounded
    ripple = 2 * np.exp(-a * (2 - kappa)) / (1 - 3 * np.exp(-a))
    curve = _log_gaussian(epsilon - 2 * np.arctanh(ripple), np.sqrt(2 * rho / (1 - kappa)))
    best = np.min(curve - np.log1p(-ripple), initial=math.inf)
    return min(float(best), log_delta(rho, epsilon))


def _log_gaussian(epsilon: Floats, nu: Floats) -> Floats:
    """Logarithm of G(epsilon; nu), or more: infinite if epsilon is below nu^2 / 2.

    With a = epsilon / nu - nu / 2, phi the density and M the Mills ratio,

        G = Phi(-a) - e^epsilon Phi(-a - nu) = phi(a) (M(a) - M(a + nu))
          = phi(a) times the integral of K(x) = 1 - x M(x) from a to a + nu.

    K is the Laplace transform of v exp(-v^2 / 2), hence convex, and the trapezoidal rule is above
    the integral, without a difference of near numbers.
    """
    with np.errstate(over="ignore", divide="ignore"):
        a = epsilon / nu - nu / 2
        near = a >= 0
        a = np.where(near, a, 0.0)
        x = a[:, None] + nu[:, None] * _STEPS
        integral = nu * (_excess(x) @ _TRAPEZOID)
        value = -0.5 * a**2 - 0.5 * math.log(2 * math.pi) + np.log(integral)
    return np.where(near, value, math.inf)


def _excess(x: Floats) -> Floats:
    """1 - x M(x), M the Mills ratio of the normal law; from 100 on, its bound 1 / (1 + x^2)."""
    from scipy.special import erfcx

    # M > x / (1 + x^2) (Gordon 1941); below 100 the difference keeps eleven digits
    y = np.minimum(x, _FAR)
    near = 1 - y * math.sqrt(math.pi / 2) * erfcx(y / math.sqrt(2))
    return np.asarray(np.where(x < _FAR, near, 1 / (1 + x**2)), dtype=np.float64)
