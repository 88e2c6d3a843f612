"""The discrete Gaussian law, of one noise and of sums of equal ones. Nothing is drawn here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.privacy.laws import LatticeLaw

_SMOOTH = 2.0  # scale from which sums over the lattice are integrals, to 1e-16
_TABLE = 256.0  # scale up to which tails are summed term by term
_REACH = 39.0  # exp(-39^2 / 2) is below the smallest float
_REACH_OF_SUMS = 14.0  # scales of a sum beyond which its probability is below exp(-98)


@dataclass(frozen=True)
class DiscreteGaussian(LatticeLaw):
    """Law of the sum Z of independent discrete Gaussian variables of one scale.

    One term has P(Z = z) proportional to exp(-z^2 / (2 scale^2)) on the integers [1]_ (eq.
    gaussian-cost of docs/explanation/privacy/privacy.md).

    Parameters
    ----------
    scale : float
        Parameter sigma of each term, in (0, 2**52]. The variance of a term is at most its square,
        and equal to it, to floating-point precision, from a scale of 2 on.
    terms : int
        Number of independent terms, at least 1.

    Notes
    -----
    All methods take arrays of any shape. By Poisson's summation formula the sum of
    exp(-z^2 / (2 s^2)) over the integers is s sqrt(2 pi), to a relative 2 exp(-2 pi^2 s^2).
    Tails are sums of terms up to a scale of 256; beyond, they are the normal tail at t - 1/2 with
    three terms of the Euler-Maclaurin formula, whose remainder is below 1e-13 of them.

    From a scale of 2 on, a sum of T terms is discrete Gaussian of scale sqrt(T) s, to a relative
    5 sum_{k<T} exp(-2 pi^2 s^2 k/(k+1)) < 1e-16 [2]_. Smaller scales are convolved, in
    positive numbers only, on 14 scales of the sum, outside which the probability is at most
    2 exp(-98), the law being sub-Gaussian: E exp(u Z) is exp(s^2 u^2 / 2) times the sum of
    exp(-x^2 / (2 s^2)) over the integers shifted by s^2 u, over the unshifted sum, which is larger.

    References
    ----------
    .. [1] C. Canonne, G. Kamath and T. Steinke (2020), The discrete Gaussian for differential
       privacy, NeurIPS 33, Definition 1.
    .. [2] P. Kairouz, Z. Liu and T. Steinke (2021), The distributed discrete Gaussian mechanism
       for federated learning with secure aggregation, ICML (sums of discrete Gaussians).

    Examples
    --------
    >>> DiscreteGaussian(10.0).quantile(0.05)
    20
    """

    gaussian: ClassVar[bool] = True

    @property
    def _whole(self) -> float | None:
        """Scale of the one discrete Gaussian that the sum is; None if it has to be convolved."""
        if self.terms > 1 and self.scale < _SMOOTH:
            return None
        return self.scale * math.sqrt(self.terms)

    @property
    def variance(self) -> float:
        """Variance of the sum, at most ``terms * scale**2``."""
        if self.scale >= _SMOOTH:
            return self.terms * self.scale**2
        mass, _ = _table(self.scale, 1)
        return float(self.terms * 2 * np.sum(mass * np.arange(len(mass)) ** 2.0))

    def _upper(self, t: Floats) -> Floats:
        """P(Z >= t) for integers t >= 1."""
        whole = self._whole
        if whole is None or whole <= _TABLE:
            key = (self.scale, self.terms) if whole is None else (whole, 1)
            _, upper = _table(*key)
            return np.asarray(upper[np.minimum(t, len(upper) - 1).astype(np.int64)])
        from scipy.special import ndtr

        y = np.minimum((t - 0.5) / whole, 40.0)
        density = np.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
        h = 1 / whole**2  # derivatives of the density at y, times powers of the grid's step
        series = y * h / 24 - 7 * (y**3 - 3 * y) * h**2 / 5760
        series += 31 * (y**5 - 10 * y**3 + 15 * y) * h**3 / 967680
        return np.asarray(ndtr(-y) - density * series)

    def log_characteristic(self, t: Floats) -> Floats:
        """Logarithm of E exp(i t Z), from the sum over the lattice or over its dual."""
        t = np.remainder(t + math.pi, 2 * math.pi) - math.pi
        if self.scale < 1:
            mass, _ = _table(self.scale, 1)
            waves = sum(m * np.cos(z * t) for z, m in enumerate(mass[1:].tolist(), 1) if m > 0)
            return np.asarray(self.terms * np.log(mass[0] + 2 * waves), dtype=np.float64)
        if self.scale >= _SMOOTH and np.max(np.abs(t), initial=0) <= math.pi / 2:
            return np.asarray(-0.5 * self.terms * self.scale**2 * t**2)  # to a relative 1e-17
        k = 2 * math.pi * np.arange(1, 4)
        square = self.scale**2
        both = (*k.tolist(), *(-k).tolist())
        # exp(-s^2 (t - 2 pi k)^2 / 2) relative to k = 0
        others = sum(np.exp(-0.5 * square * (c * c - 2 * c * t)) for c in both)
        at_zero = 2 * float(np.exp(-0.5 * square * k**2).sum())
        logs = np.log1p(others) - math.log1p(at_zero) - 0.5 * square * t**2
        return np.asarray(self.terms * logs, dtype=np.float64)

    @property
    def steepest(self) -> float:
        """E exp(u Z) is finite for every u."""
        return math.inf

    def log_mgf(self, u: Floats) -> Floats:
        """Upper bound of log E exp(u Z): the law is sub-Gaussian."""
        return np.asarray(0.5 * self.terms * (self.scale * u) ** 2, dtype=np.float64)


def _weights(scale: float) -> Floats:
    """The terms exp(-z^2 / (2 scale^2)), z = 0, 1, .., until they underflow."""
    z = np.arange(math.ceil(_REACH * scale) + 2) / scale
    return np.exp(-0.5 * np.minimum(z, 40.0) ** 2)


@lru_cache(maxsize=256)
def _table(scale: float, terms: int) -> tuple[Floats, Floats]:
    """P(Z = z) at z = 0, 1, .., and P(Z >= t) at t = 0, 1, .., which ends with a zero."""
    weights = _weights(scale)
    mass = weights / (2 * weights.sum() - 1)
    if terms > 1:
        mass = _power(mass, scale, terms)
    upper = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    for array in (mass, upper):
        array.flags.writeable = False
    return mass, upper


def _power(mass: Floats, scale: float, terms: int) -> Floats:
    """The law of a sum of `terms`, z = 0, 1, .., by repeated squaring of the whole lattice."""
    result, count = np.ones(1), 0
    power, size = np.concatenate([mass[:0:-1], mass]), 1
    while True:
        if terms & size:
            result, count = np.convolve(result, power), count + size
            result = _cut(result, scale, count)
        if count == terms:
            return result[len(result) // 2 :]
        power, size = _cut(np.convolve(power, power), scale, 2 * size), 2 * size


def _cut(mass: Floats, scale: float, terms: int) -> Floats:
    """The middle of the law of a sum."""
    reach = math.ceil(_REACH_OF_SUMS * scale * math.sqrt(terms)) + 1
    spare = max(0, len(mass) // 2 - reach)
    return mass[spare : len(mass) - spare]
