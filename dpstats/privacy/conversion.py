"""From rho to the curve of (epsilon, delta), of any mechanism and of discrete Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dpstats.arrays import Floats
from dpstats.roots import bisect

Curve: TypeAlias = Callable[[float, float], float]  # of log(delta): rises in rho, falls in epsilon

_ROUNDS = 120  # halvings of an interval of logarithms
_MARGIN = 1e-9  # of log(delta); floating errors are far smaller
_LEAST, _MOST = -690.0, 690.0  # logarithms of numbers that floats can hold
# The part of sigma^2 that rounding takes, in units of mu^2: every choice gives a valid bound, and
# the least is taken. At .1 and above e^-A / m, below, rises with m, and the ripple is below 1/2.
_ROUNDED = np.arange(4, 93) / 40
_STEPS = np.linspace(0, 1, 17)
_TRAPEZOID = np.array([0.5, *[1.0] * 15, 0.5]) / 16
_FAR = 100.0


def log_delta(rho: float, epsilon: float) -> float:
    """Logarithm of the smallest delta that is known for a rho-zCDP mechanism at an epsilon.

    With b = alpha - 1 it is the least value over b > 0 of

        b ((1 + b) rho - epsilon) + alpha log(1 - 1/alpha) - log(alpha - 1),

    which is convex in b, so a bisection of its derivative finds it. Every b gives a valid bound
    (eq. delta-of-zcdp of docs/explanation/privacy/privacy.md).

    Parameters
    ----------
    rho, epsilon : float
        Positive.

    References
    ----------
    Canonne, C., Kamath, G. and Steinke, T. (2020). The discrete Gaussian for differential privacy.
    NeurIPS 33 (the conversion from zCDP).
    """

    def rising(log_b: float) -> bool:  # of the derivative's sign
        b = math.exp(log_b)
        return (1 + 2 * b) * rho - epsilon - math.log1p(1 / b) > 0

    log_b = bisect(rising, -30.0, math.log1p((epsilon + 1) / rho), _ROUNDS)
    b = math.exp(log_b)
    # alpha log(1 - 1/alpha) - log(alpha - 1) = -b log(1 + 1/b) - log(1 + b), without cancellation
    return b * ((1 + b) * rho - epsilon) - b * math.log1p(1 / b) - math.log1p(b)


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
    random. ``docs/explanation/privacy/approximate-dp.md`` has the proof (eq. delta-of-gaussians,
    ripple and gaussian-curve). The value returned is the smaller of this and of `log_delta`; it
    rises with `rho` and falls with `epsilon`.

    References
    ----------
    .. [1] B. Balle and Y.-X. Wang (2018), Improving the Gaussian mechanism for differential
       privacy: analytical calibration and optimal denoising, ICML, Theorem 8.

    Examples
    --------
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
    the integral, without a difference of near numbers (eq. curve-by-mills).
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


@lru_cache(maxsize=256)  # every summary of a result prints it
def epsilon_of(rho: Fraction, delta: Fraction, curve: Curve = log_delta) -> float:
    """Epsilon at which a rho-zCDP mechanism is (epsilon, delta)-private, rounded up.

    Parameters
    ----------
    rho, delta : Fraction
    curve : callable
        (rho, epsilon) -> log(delta), at most `log_delta`: a better one is known for Gaussian noise.
    """
    r, target = _float(rho), _log(delta) - _MARGIN
    most = r + 2 * math.sqrt(-r * target) + _MARGIN  # the simple bound of Bun and Steinke (2016)
    if curve(r, math.exp(_LEAST)) <= target:
        return 0.0
    log_epsilon = bisect(lambda x: curve(r, math.exp(x)) <= target, _LEAST, math.log(most), _ROUNDS)
    return math.exp(log_epsilon)


@lru_cache(maxsize=256)
def rho_of(epsilon: Fraction, delta: Fraction, curve: Curve = log_delta) -> Fraction:
    """Largest rho, rounded down to six digits, for which zCDP implies (epsilon, delta)-privacy.

    `curve` is that of `epsilon_of`.
    """
    e, target = _float(epsilon), _log(delta) - _MARGIN
    high = math.log(e + 1)
    while curve(math.exp(high), e) <= target and high < _MOST:
        high += 1
    excess = bisect(lambda x: curve(math.exp(x), e) > target, _LEAST, high, _ROUNDS)
    # The end of the bisection is on the far side; six digits rounded down are on the near one.
    near = Decimal(math.exp(excess)) * (1 - Decimal(10) ** -12)
    return Fraction(Context(prec=6, rounding=ROUND_DOWN).create_decimal(near))


def implies(rho: Fraction, epsilon: Fraction, delta: Fraction, curve: Curve = log_delta) -> bool:
    """True if rho guarantees (epsilon, delta)-privacy.

    It keeps half the margin, so that a result of `rho_of` or `epsilon_of` on one machine passes on
    others.
    """
    return curve(_float(rho), _float(epsilon)) <= _log(delta) - _MARGIN / 2


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _float(value: Fraction) -> float:
    """The nearest float, kept away from zero and infinity."""
    return math.exp(min(max(_log(value), _LEAST), _MOST))
