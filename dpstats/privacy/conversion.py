"""From zero-concentrated to approximate differential privacy, by the tight known bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

Curve: TypeAlias = Callable[[float, float], float]  # of log(delta): rises in rho, falls in epsilon

_ROUNDS = 120  # halvings of an interval of logarithms
_MARGIN = 1e-9  # of log(delta); floating errors are far smaller
_LEAST, _MOST = -690.0, 690.0  # logarithms of numbers that floats can hold


def log_delta(rho: float, epsilon: float) -> float:
    """Logarithm of the smallest delta that is known for a rho-zCDP mechanism at an epsilon.

    With b = alpha - 1 it is the least value over b > 0 of

        b ((1 + b) rho - epsilon) + alpha log(1 - 1/alpha) - log(alpha - 1),

    which is convex in b, so a bisection of its derivative finds it. Every b gives a valid bound.

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

    log_b = _bisect(rising, -30.0, math.log1p((epsilon + 1) / rho))
    b = math.exp(log_b)
    # alpha log(1 - 1/alpha) - log(alpha - 1) = -b log(1 + 1/b) - log(1 + b), without cancellation
    return b * ((1 + b) * rho - epsilon) - b * math.log1p(1 / b) - math.log1p(b)


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
    log_epsilon = _bisect(lambda x: curve(r, math.exp(x)) <= target, _LEAST, math.log(most))
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
    excess = _bisect(lambda x: curve(math.exp(x), e) > target, _LEAST, high)
    # The end of the bisection is on the far side; six digits rounded down are on the near one.
    near = Decimal(math.exp(excess)) * (1 - Decimal(10) ** -12)
    return Fraction(Context(prec=6, rounding=ROUND_DOWN).create_decimal(near))


def implies(rho: Fraction, epsilon: Fraction, delta: Fraction, curve: Curve = log_delta) -> bool:
    """Whether rho guarantees (epsilon, delta)-privacy.

    It keeps half the margin, so what `rho_of` or `epsilon_of` found on one machine holds on others.
    """
    return curve(_float(rho), _float(epsilon)) <= _log(delta) - _MARGIN / 2


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Point, just above the change, of a condition that holds at `high` and not at `low`."""
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _float(value: Fraction) -> float:
    """The nearest float, kept away from zero and infinity."""
    return math.exp(min(max(_log(value), _LEAST), _MOST))
