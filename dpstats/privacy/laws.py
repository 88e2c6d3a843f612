"""The law of the privacy noise: probabilities, tails and quantiles. Nothing is drawn here.

The discrete Laplace law has a closed form for sums of equal noises too, so it needs no truncation
and no convolution; the discrete Gaussian is in `gaussian`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import check_whole, is_number, short
from dpstats.errors import RequestError

Noise: TypeAlias = Literal["laplace", "gaussian"]
"""The family of a noise on the integers."""
POWERS: dict[Noise, int] = {"laplace": 1, "gaussian": 2}
"""Privacy costs 1 / scale of Laplace and 1 / scale^2 of Gaussian noise."""

_MAX_SCALE = 2.0**52
_FAR = 2.0**62  # beyond every noise that can occur; keeps infinities out of the formulas
_LARGEST_TABLE = 2**16
_MOST_TERMS, _MOST_RATE = 64, 300.0  # products stay below exp(600)
_REACH = 1500.0  # exp(-1500) is zero, and exp(-750) its root


class NoiseLaw(Protocol):
    """The law of a noise that is symmetric about zero, as analyses use it."""

    @property
    def lattice(self) -> bool:
        """True if the noise is an integer; False if its distribution is continuous."""

    @property
    def gaussian(self) -> bool:
        """True if the noise is Gaussian; False if it has the longer tails of Laplace noise."""

    @property
    def bound_only(self) -> bool:
        """True if only a bound is known, whose error is counted elsewhere: see `Bounded`."""

    @property
    def variance(self) -> float:
        """Variance of the noise."""

    @property
    def invertible(self) -> bool:
        """True if frequencies up to 12 suffice to invert the characteristic function of Z + U.

        For an integer those up to pi suffice, since the function repeats; for other noise it must
        be below exp(-20) beyond.
        """

    def cdf(self, z: ArrayLike) -> Floats:
        """P(Z <= z)."""

    def tail(self, t: ArrayLike) -> Floats:
        """P(abs(Z) >= t)."""

    def smoothed_cdf(self, t: ArrayLike) -> Floats:
        """P(Z + U <= t), U uniform on (-1/2, 1/2) and independent; P(Z <= t) if continuous."""

    def log_characteristic(self, t: Floats) -> Floats:
        """Logarithm of E exp(i t Z), which is positive; or any number below -60 for a lower one."""

    def quantile(self, beta: float) -> float:
        """Smallest q >= 0 with P(abs(Z) > q) <= beta."""

    def support(self, tail: float = 1e-12) -> int:
        """Integer L with P(abs(Z) > L) <= tail."""

    def __hash__(self) -> int:
        """Equal laws are kept once."""


@dataclass(frozen=True)
class LatticeLaw(ABC):
    """Law of the sum of independent noises on the integers, symmetric about zero.

    Parameters
    ----------
    scale : float
        Scale of each term, in (0, 2**52].
    terms : int
        Number of independent terms, at least 1.
    """

    scale: float
    terms: int = 1

    lattice: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False
    bound_only: ClassVar[bool] = False
    invertible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        scale, terms = self.scale, self.terms
        if not is_number(scale):
            raise RequestError(f"scale must be a number, got {short(scale)}")
        if not 0 < scale <= _MAX_SCALE:
            raise RequestError(f"scale must be in (0, 2**52], got {short(scale)}")
        check_whole("terms", terms, 1)
        object.__setattr__(self, "scale", float(scale))

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the sum."""

    @abstractmethod
    def log_characteristic(self, t: Floats) -> Floats:
        """Logarithm of E exp(i t Z), which is positive."""

    @abstractmethod
    def log_mgf(self, u: Floats) -> Floats:
        """Upper bound of log E exp(u Z), for abs(u) below `steepest`."""

    @property
    @abstractmethod
    def steepest(self) -> float:
        """Least u > 0 at which E exp(u Z) is infinite."""

    @abstractmethod
    def _upper(self, t: Floats) -> Floats:
        """P(Z >= t) for integers t >= 1."""

    def cdf(self, z: ArrayLike) -> Floats:
        """P(Z <= z) for real z."""
        z = np.floor(_clip(z))
        upper = self._upper(np.where(z < 0, -z, z + 1))
        return _floats(np.where(z < 0, upper, 1 - upper))

    def tail(self, t: ArrayLike) -> Floats:
        """P(abs(Z) >= t) for real t."""
        t = np.ceil(_clip(t))
        return _floats(np.where(t >= 1, 2 * self._upper(np.maximum(t, 1)), 1.0))

    def smoothed_cdf(self, t: ArrayLike) -> Floats:
        """P(Z + U <= t), U independent and uniform on (-1/2, 1/2).

        Piecewise linear between half integers; for one Laplace term the Tulap law of Awan and
        Slavkovic (2018).
        """
        t = _clip(t)
        halves, below_them = _smoothed_table(self)
        if t.size and halves.size and np.max(np.abs(t)) <= halves[-1]:
            return _floats(np.interp(t, halves, below_them))
        size = np.abs(t) + 0.5
        nearest = np.floor(size)
        share = size - nearest  # the way from P(Z >= nearest) to P(Z >= nearest + 1)
        below = self._upper(nearest + 1)
        above = np.where(nearest >= 1, self._upper(np.maximum(nearest, 1)), 1 - below)
        outside = above + share * (below - above)
        return _floats(np.where(t < 0, outside, 1 - outside))

    def quantile(self, beta: float) -> int:
        """Smallest integer q >= 0 with P(abs(Z) > q) <= beta, for beta in (0, 1)."""
        return _quantile(self, _check_probability(beta, "beta"))

    def support(self, tail: float = 1e-12) -> int:
        """Integer L, the smallest, with P(abs(Z) > L) <= tail."""
        return _quantile(self, _check_probability(tail, "tail"))

    def positive_part(self) -> float:
        """E max(Z, 0), half the sum of tails; by the midpoint rule where there are many."""
        step = 1 + 2 * math.floor(math.sqrt(self.variance) / 512)  # odd: the middle is an integer
        t = 1 + step // 2 + step * np.arange(math.ceil(self.support() / step))
        return float(step * self.tail(t).sum() / 2)


@dataclass(frozen=True)
class DiscreteLaplace(LatticeLaw):
    """Law of the sum Z of independent discrete Laplace variables of one scale.

    One term has P(Z = z) = (1 - a) / (1 + a) * a**abs(z) with a = exp(-1 / scale) [1]_ (eq.
    laplace-noise of docs/explanation/privacy/privacy.md).

    Parameters
    ----------
    scale : float
        Scale s of each term, in (0, 2**52].
    terms : int
        Number of independent terms, at least 1.

    Notes
    -----
    All methods take arrays of any shape. One term: relative error about 1e-13 out to the
    smallest numbers a float can hold. More terms: absolute error below 1e-13, relative error
    about 1e-12 (+ 1e-16 / a for many terms of a small scale), at a cost proportional to `terms`.
    Above 0, ``cdf`` is one minus a tail, so ask for ``cdf(-z)`` or ``tail`` where the far upper
    tail matters.

    A sum of T terms is a difference of two negative binomial NB(T, 1 - a) variables. By the
    Pfaff transformation [2]_ of its generating function it is, for z >= 0,

        P(Z = z) = sum over k < T of w_k P(N_(T - k) = z + k),

    N_r negative binomial NB(r, 1 - a) and w_k the NB(T, 1 / (1 + a)) probabilities. All terms are
    positive, so nothing cancels, at any scale. As N_r >= m says that m + r - 1 trials of success
    probability 1 - a have at most r - 1 successes, both P(Z = z) and P(Z >= z) are sums over j < T
    of positive weights times binomial probabilities of j successes in z + T - 1 trials: a power
    of a times a polynomial in z.

    References
    ----------
    .. [1] S. Inusah and T. J. Kozubowski (2006), A discrete analogue of the Laplace
       distribution, J. Statist. Plann. Inference 136, 1090-1102.
    .. [2] NIST Digital Library of Mathematical Functions, eq. 15.8.1.

    Examples
    --------
    >>> DiscreteLaplace(10.0).quantile(0.05)
    30
    """

    @property
    def _a(self) -> float:
        return math.exp(-1 / self.scale)

    @property
    def _one_minus_a(self) -> float:
        return -math.expm1(-1 / self.scale)

    @property
    def variance(self) -> float:
        """Variance of the sum, ``2 a / (1 - a)**2`` for each term."""
        return self.terms * 2 * self._a / self._one_minus_a**2

    def log_characteristic(self, t: Floats) -> Floats:
        """Logarithm of E exp(i t Z): each term has (1-a)^2 / (1 - 2 a cos t + a^2)."""
        # 1 - 2 a cos t + a^2 = (1-a)^2 + 4 a sin^2(t/2)
        ratio = 4 * self._a * np.sin(t / 2) ** 2 / self._one_minus_a**2
        return _floats(-self.terms * np.log1p(ratio))

    @property
    def steepest(self) -> float:
        """Least u > 0 at which E exp(u Z) is infinite."""
        return 1 / self.scale

    def log_mgf(self, u: Floats) -> Floats:
        """Logarithm of E exp(u Z): each term has (1-a)^2 / ((1 - a e^u) (1 - a e^-u))."""
        rate = 1 / self.scale
        tilted = np.log1p(-np.exp(u - rate)) + np.log1p(-np.exp(-u - rate))
        return _floats(self.terms * (2 * math.log(self._one_minus_a) - tilted))

    def _upper(self, t: Floats) -> Floats:
        """P(Z >= t) for integers t >= 1."""
        if self.terms == 1:
            return _floats(np.exp(-t / self.scale) / (1 + self._a))
        if self._short:
            weights = np.cumsum(_mixture_weights(self.scale, self.terms))
            return self._binomial_sum(t, weights[::-1].tolist())
        from scipy.special import betaincc

        # P(N_r >= m) = I_a(m, r), written in 1 - a, which is known exactly for large scales.
        p = self._one_minus_a
        return _floats(sum(w * betaincc(r, t + k, p) for k, r, w in self._mixture()))

    @property
    def _short(self) -> bool:
        """True if polynomials of degree `terms` - 1 stay far below the largest float."""
        return self.terms <= _MOST_TERMS and self.terms <= _MOST_RATE * self.scale

    def _binomial_sum(self, z: Floats, weights: Sequence[float]) -> Floats:
        """Sum over j of weights[j] C(x, j) (1 - a)^j a^(x - j), x = z + terms - 1, by Horner."""
        x = z + (self.terms - 1)
        near = np.minimum(x, _REACH * self.scale + self.terms)  # beyond, the power of a is 0
        odds = self._one_minus_a / self._a
        total = np.full_like(x, weights[-1])
        for j in range(self.terms - 1, 0, -1):
            total = weights[j - 1] + total * (near - (j - 1)) * (odds / j)
        half = np.exp(-x / (2 * self.scale))  # twice, so that it does not underflow by itself
        return _floats(total * half * half)

    def _mixture(self) -> Iterator[tuple[int, int, float]]:
        """Shift k, size r = T - k and weight w_k of each negative binomial in the sum."""
        weights = _mixture_weights(self.scale, self.terms)
        return ((k, self.terms - k, w) for k, w in enumerate(weights))


def joint_quantiles(laws: Sequence[NoiseLaw], beta: float) -> NDArray[np.int64]:
    """Bounds that independent noises satisfy jointly with probability 1 - beta.

    Every noise gets the same tail ``1 - (1 - beta)**(1 / F)``; then, law by law, the bound becomes
    the smallest that the exact product allows. If all laws are equal it is the smallest valid
    bound; otherwise none can be lowered for all functions of its law without raising another.

    Parameters
    ----------
    laws : sequence of F laws
        Hashable; equal laws share one bound, so the cost grows with the distinct ones.
    beta : float
        In (0, 1).

    Returns
    -------
    (F,) int64
        q with ``prod_f P(abs(Z_f) <= q_f) >= 1 - beta`` (eq. joint-certificate of
        docs/explanation/synthetic-rows/certificate.md).
    """
    beta = _check_probability(beta, "beta")
    counts = Counter(laws)
    target = math.log1p(-beta)
    # Slightly less than the common tail, so that rounding cannot make the start invalid.
    common = -math.expm1(target / max(len(laws), 1)) * (1 - 1e-12)
    bounds = {law: law.quantile(common) for law in counts}
    logs = {law: n * _log_within(law, bounds[law]) for law, n in counts.items()}
    # Rounding up to integers left some slack; it is worth most where bounds are small.
    for law in sorted(counts, key=lambda law: bounds[law]):
        n, rest = counts[law], math.fsum(logs[other] for other in logs if other != law)
        within = lambda q: n * _log_within(law, q) + rest >= target  # noqa: B023, E731
        bounds[law] = _smallest(within, near=int(bounds[law]))
        logs[law] = n * _log_within(law, bounds[law])
    return np.array([bounds[law] for law in laws], dtype=np.int64)


def _log_within(law: NoiseLaw, q: float) -> float:
    """Logarithm of P(abs(Z) <= q)."""
    outside = float(law.tail(q + 1))
    return math.log1p(-outside) if outside < 1 else -math.inf


@lru_cache(maxsize=4096)
def _quantile(law: LatticeLaw, beta: float) -> int:
    from scipy import special

    # Near that of a normal law or, for one Laplace noise, of the continuous one: few tails to try.
    normal = math.sqrt(2) * float(special.erfcinv(beta))
    reach = normal if law.gaussian or law.terms > 1 else -math.log(beta) / math.sqrt(2)
    near = int(min(math.sqrt(law.variance) * reach, _FAR))
    return _smallest(lambda q: bool(law.tail(q + 1) <= beta), near)


def _smallest(holds: Callable[[int], bool], near: int = 0) -> int:
    """Smallest integer q >= 0 for which a condition holds that never fails again above it."""
    low, high, step = near - 1, near, 1
    while not holds(high):
        low, high, step = high, high + step, 2 * step
    while low >= 0 and holds(low):
        low, high, step = max(low - step, -1), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=64)
def _smoothed_table(law: LatticeLaw) -> tuple[Floats, Floats]:
    """Half integers t and P(Z <= t) there, as far as tails are above 1e-18; empty if too far."""
    reach = law.support(1e-18)
    if reach >= _LARGEST_TABLE:
        return np.zeros(0), np.zeros(0)
    upper = law._upper(np.arange(1, reach + 3, dtype=np.float64))
    table = np.concatenate([upper[::-1], 1 - upper])
    halves = _floats(np.arange(len(table)) - (len(upper) - 0.5))
    for array in (halves, table):
        array.flags.writeable = False
    return _floats(halves), _floats(table)


@lru_cache(maxsize=256)
def _mixture_weights(scale: float, terms: int) -> tuple[float, ...]:
    from scipy.stats import nbinom

    weights = nbinom.pmf(np.arange(terms), terms, 1 / (1 + math.exp(-1 / scale)))
    return tuple(weights.tolist())


def _check_probability(value: float, name: str) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < 1:
        raise RequestError(f"{name} must be in (0, 1), got {short(value)}")
    return float(value)


def _clip(z: ArrayLike) -> Floats:
    return np.clip(np.asarray(z, dtype=np.float64), -_FAR, _FAR)


def _floats(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)
