"""The noise: its scale, its tails, and bounds that hold for many noises at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

_SUMMED = 200.0


def scale_of(multiplier: Fraction, bound: int, power: int) -> float:
    """The smallest float whose power is at least multiplier * bound^power."""
    exact = multiplier * bound**power
    found = float(exact) if power == 1 else math.sqrt(exact)
    while Fraction(found) ** power < exact:
        found = math.nextafter(found, math.inf)
    while Fraction(math.nextafter(found, 0.0)) ** power >= exact:
        found = math.nextafter(found, 0.0)
    return found


def beyond(scale: float, power: int, q: int) -> float:
    """P(abs(Z) > q) for discrete Laplace (power 1) or discrete Gaussian (2) noise, q >= 0."""
    if power == 1:
        return 2 * math.exp(-(q + 1) / scale) / (1 + math.exp(-1 / scale))
    if scale <= _SUMMED:
        last = max(q + 1, math.ceil(39 * scale) + 2)
        tail = math.fsum(_weight(scale, z) for z in range(q + 1, last + 1))
        return 2 * tail / _total(scale)
    # the sum as an integral from q + 1/2, with the first term of Euler and Maclaurin
    y = (q + 0.5) / scale
    density = math.exp(-y * y / 2) / math.sqrt(2 * math.pi)
    return math.erfc(y / math.sqrt(2)) - 2 * density * y / (24 * scale * scale)


def _weight(scale: float, z: int) -> float:
    return math.exp(-0.5 * min(z / scale, 40.0) ** 2)


@lru_cache(maxsize=512)
def _total(scale: float) -> float:
    weights = (_weight(scale, z) for z in range(1, math.ceil(39 * scale) + 3))
    return 1 + 2 * math.fsum(weights)


@lru_cache(maxsize=4096)
def quantile(scale: float, power: int, beta: float) -> int:
    """Smallest q with P(abs(Z) > q) <= beta."""
    low, high = -1, max(1, math.ceil(scale))
    while beyond(scale, power, high) > beta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(scale, power, middle) <= beta else (middle, high)
    return high


def jointly(scales: Sequence[float], power: int, alpha: float) -> dict[float, int]:
    """Bounds by scale that hold for all of these independent noises with probability 1 - alpha.

    All get one tail; then, the smallest first, what whole numbers leave is used up.
    """
    counts = Counter(scales)
    target = math.log1p(-alpha)
    tail = -math.expm1(target / len(scales)) * (1 - 1e-12)
    found = {scale: quantile(scale, power, tail) for scale in counts}

    def within(scale: float, q: int) -> float:
        outside = beyond(scale, power, q)
        return counts[scale] * math.log1p(-outside) if outside < 1 else -math.inf

    for scale in sorted(found, key=lambda s: found[s]):
        rest = math.fsum(within(s, q) for s, q in found.items() if s != scale)
        low, high = -1, found[scale]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if within(scale, middle) + rest >= target else (middle, high)
        found[scale] = high
    return found
