"""The noise: its scale, its tails, joint bounds, and the (epsilon, delta) that a total promises.

What is promised is computed in decimals of 80 digits, with every bound rounded up.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial

_SUMMED = 200.0
_DIGITS = 80
_FAR = 60  # standard deviations
_SAFE = Decimal(1) + Decimal(10) ** -30
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def scale_of(multiplier: Fraction, bound: int, power: int) -> float:
    """The smallest float whose power is at least multiplier * bound^power."""
    exact = multiplier * bound**power
    found = float(exact) if power == 1 else math.sqrt(exact)
    while Fraction(found) ** power < exact:
        found = math.nextafter(found, math.inf)
    while Fraction(math.nextafter(found, 0.0)) ** power >= exact:
        found = math.nextafter(found, 0.0)
    return found


@lru_cache(maxsize=512)
def _gaussian(scale: float) -> list[float]:
    """P(Z = z) of discrete Gaussian noise at z = 0, 1, .., up to 39 standard deviations."""
    weights = [math.exp(-0.5 * min(z / scale, 40) ** 2) for z in range(math.ceil(39 * scale) + 3)]
    total = 1 + 2 * math.fsum(weights[1:])
    return [weight / total for weight in weights]


def beyond(scale: float, power: int, q: int) -> float:
    """P(abs(Z) > q) for discrete Laplace (power 1) or discrete Gaussian (2) noise, q >= 0."""
    if power == 1:
        return 2 * math.exp(-(q + 1) / scale) / (1 + math.exp(-1 / scale))
    if scale <= _SUMMED:
        return 2 * math.fsum(_gaussian(scale)[q + 1 :])
    # the sum as an integral from q + 1/2, with the first term of Euler and Maclaurin
    y = (q + 0.5) / scale
    density = math.exp(-y * y / 2) / math.sqrt(2 * math.pi)
    return math.erfc(y / math.sqrt(2)) - 2 * density * y / (24 * scale * scale)


def _smallest(holds: Callable[[int], bool], guess: int = 1) -> int:
    """Smallest q >= 0 from which a condition holds on."""
    low, high = -1, max(1, guess)
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def quantile(scale: float, power: int, beta: float) -> int:
    """Smallest q with P(abs(Z) > q) <= beta."""
    return _smallest(lambda q: beyond(scale, power, q) <= beta, math.ceil(scale))


def jointly(scales: Sequence[float], power: int, alpha: float) -> dict[float, int]:
    """Bounds by scale that hold for all of these independent noises with probability 1 - alpha."""
    counts = Counter(scales)
    target = math.log1p(-alpha)
    tail = -math.expm1(target / len(scales)) * (1 - 1e-12)
    bounds = {scale: quantile(scale, power, tail) for scale in counts}

    def log_inside(scale: float, q: int) -> float:
        outside = beyond(scale, power, q)
        return counts[scale] * math.log1p(-outside) if outside < 1 else -math.inf

    for scale in sorted(bounds, key=lambda s: bounds[s]):
        rest = math.fsum(log_inside(s, q) for s, q in bounds.items() if s != scale)
        least = partial(lambda s, rest, q: log_inside(s, q) + rest >= target, scale, rest)
        bounds[scale] = _smallest(least, bounds[scale])
    return bounds


def variance(scale: float, power: int) -> float:
    """Variance of discrete Laplace (power 1) or discrete Gaussian (2) noise."""
    if power == 1:
        return 0.5 / math.sinh(min(0.5 / scale, 350.0)) ** 2
    if scale > _SUMMED:
        return scale * scale
    return 2 * math.fsum(z * z * p for z, p in enumerate(_gaussian(scale)))


def _beyond_of_sum(scale: float, terms: int, q: int) -> float:
    """P(abs(Z) > q) for a sum Z of m = `terms` discrete Laplace noises, a = exp(-1 / scale).

    Z is the difference of two sums of m geometric numbers. If the second is j, the first is at
    least j + z where of x + j = z + m - 1 + j trials with success 1 - a at most m - 1 succeed. So
    P(Z >= z) is, by Vandermonde's identity, a^x / (1 + a)^m times the sum over k + d < m of
    C(m + k - 1, k) (a^2 / (1 - a^2))^k C(x, d) ((1 - a) / a)^(k + d).
    """
    x, rate = q + terms, 1 / scale
    odds = math.log(-math.expm1(-rate)) + rate
    again = odds - 2 * rate - math.log(-math.expm1(-2 * rate))
    steps = range(1, terms)
    chosen = itertools.accumulate((math.log((x - d + 1) / d) + odds for d in steps), initial=0.0)
    failed = itertools.accumulate(
        (math.log((terms + k - 1) / k) + again for k in steps), initial=0.0
    )
    upto = [*itertools.accumulate(chosen, _log_of_sum)]
    first = -rate * x - terms * math.log1p(math.exp(-rate))
    return 2 * math.fsum(math.exp(first + f + u) for f, u in zip(failed, upto[::-1], strict=True))


def _log_of_sum(one: float, other: float) -> float:
    return max(one, other) + math.log1p(math.exp(-abs(one - other)))


@lru_cache(maxsize=64)
def quantile_of_sum(scale: float, power: int, terms: int, beta: float) -> int:
    """Smallest q with P(abs(Z) > q) <= beta, for a sum Z of independent noises of one scale.

    Discrete Gaussian noises of a scale above 1 add up to one within 1e-8 [1]_; smaller ones are
    added one by one.

    References
    ----------
    .. [1] C. Canonne, G. Kamath and T. Steinke (2020), The discrete Gaussian for differential
       privacy, NeurIPS 33.
    """
    if terms == 1:
        return quantile(scale, power, beta)
    if power == 2 and scale > 1:
        return quantile(scale * math.sqrt(terms), power, beta)
    if power == 1:
        guess = math.ceil(scale * math.sqrt(2 * terms))
        return _smallest(lambda q: _beyond_of_sum(scale, terms, q) <= beta, guess)
    law = [1.0]
    for _ in range(terms):
        own = _gaussian(scale)
        law = [
            math.fsum(p * law[k] for i, p in enumerate([*own[:0:-1], *own])
                      if 0 <= (k := z - i) < len(law))
            for z in range(len(law) + 2 * len(own) - 2)
        ]  # fmt: skip
    return _smallest(lambda q: 2 * math.fsum(law[len(law) // 2 + q + 1 :]) <= beta)


def prove_delta(rho: Fraction, epsilon: Fraction) -> tuple[Fraction, str]:
    """A delta at which noise of total rho is (epsilon, delta)-private, and where it comes from.

    With mu^2 = 2 rho and any 0 < kappa < 1, A = 2 pi^2 kappa / mu^2 >= 1 and h = 2 exp(-A (2 -
    kappa)) / (1 - 3 exp(-A)): discrete noise is, up to a factor in [1 - h, 1 + h], continuous noise
    of variance (1 - kappa) sigma^2 that was rounded at random. So delta is at most the curve of
    N(0, 1) against N(mu / sqrt(1 - kappa), 1) at epsilon - 2 artanh h, over 1 - h. See
    ``docs/explanation/privacy/approximate-dp.md`` for the proof (eq. delta-of-gaussians).
    """
    with localcontext() as context:
        context.prec = _DIGITS
        r, e = (Decimal(value.numerator) / value.denominator for value in (rho, epsilon))
        best, how = _concentrated(r, e), "by zero-concentrated privacy"
        for step in range(3, 121):
            kappa, a = r * step / 20, PI * PI * step / 20
            if kappa >= 1:
                break
            h = 2 * (-a * (2 - kappa)).exp() / (1 - 3 * (-a).exp())  # a > 1.1, so exp(-a) < 1/3
            shifted, nu = e - ((1 + h) / (1 - h)).ln(), (2 * r / (1 - kappa)).sqrt()
            near, far = shifted / nu - nu / 2, shifted / nu + nu / 2
            if max(abs(near), far) > _FAR:
                continue
            curve = _upper(near) - shifted.exp() * _upper(far) + Decimal(10) ** -60
            if curve / (1 - h) < best:
                best = curve / (1 - h)
                how = f"by noise of {1 - kappa:.4f} of the variance, rounded at random"
        return Fraction(min(best * _SAFE, Decimal(1))), how


def _concentrated(rho: Decimal, epsilon: Decimal) -> Decimal:
    """Least over b of exp(b ((1 + b) rho - epsilon)) (b / (1 + b))^b / (1 + b); any b is valid."""
    r, e = float(rho), float(epsilon)

    def height(log_b: float) -> float:
        b = math.exp(log_b)
        return b * ((1 + b) * r - e) - b * math.log1p(1 / b) - math.log1p(b)

    low, high = -30.0, math.log((e + 1) / r + 1)
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if height(left) < height(right) else (left, high)
    b = Decimal(math.exp(low))
    log = b * ((1 + b) * rho - epsilon) - b * (1 + 1 / b).ln() - (1 + b).ln()
    return min(log.exp(), Decimal(1))


def _upper(x: Decimal) -> Decimal:
    """P(N > x) to 60 digits after the point: the series of the normal law about zero."""
    with localcontext() as context:
        context.prec = _DIGITS + 60 + int(x * x)
        term = total = x
        k = 1
        while abs(term) > Decimal(10) ** -100:
            term = term * x * x / (2 * k + 1)
            total += term
            k += 1
        upper = Decimal("0.5") - total * (-x * x / 2).exp() / (2 * PI).sqrt()
    return +upper
