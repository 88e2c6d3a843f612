"""The law of a real-weighted combination of independent noises, by its characteristic function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.errors import RequestError
from dpstats.privacy.laws import DiscreteLaplace, LatticeLaw

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

_POINTS = 2**17
_TAIL = 28.0  # the window leaves out a probability below exp(-28), about 1e-12
_VANISHED = -60.0  # logarithm of a characteristic function that is zero to every digit
_FARTHEST = 200.0  # frequency up to which returns are looked for
_SMOOTHING = 2.0  # grid steps: sd of the normal variable that turns atoms into a density


@dataclass(frozen=True)
class Combination(Cached):
    """Law of the sum over parts of weight * noise.

    Parameters
    ----------
    parts : tuple of (weight, law)
        Real weight, and the law on the integers of the noises of this weight: a sum of equal ones.

    Notes
    -----
    The characteristic function is the product of those of the parts. It is inverted by a fast
    Fourier transform on a window that, by Chernoff's bound, holds all but 1e-12 of the law.
    Atoms are smoothed by a normal variable of two grid steps (a step is about 1/8000 of the
    standard deviation, more for heavy tails); quantiles stay outside a smoothed atom.
    """

    lattice: ClassVar[bool] = False
    bound_only: ClassVar[bool] = False

    parts: tuple[tuple[float, LatticeLaw], ...]

    def __post_init__(self) -> None:
        if not self.parts or not any(weight for weight, _ in self.parts):
            raise RequestError("a combination of noises needs at least one non-zero weight")

    @property
    def gaussian(self) -> bool:
        """True if all the noises are Gaussian."""
        return all(law.gaussian for _, law in self.parts)

    @cached_property
    def variance(self) -> float:
        """Variance of the combination."""
        return math.fsum(weight**2 * law.variance for weight, law in self.parts)

    def log_characteristic(self, t: Floats) -> Floats:
        """Logarithm of E exp(i t W), or any number below -60 where it is below that."""
        total = np.zeros(t.size)
        for weight, law in sorted(self.parts, key=lambda part: -(part[0] ** 2) * part[1].variance):
            above = np.flatnonzero(total > _VANISHED)  # each part only lowers it
            total[above] += law.log_characteristic(weight * t.ravel()[above])
        return total.reshape(t.shape)

    @cached_property
    def invertible(self) -> bool:
        """True if the characteristic function is below exp(-20) from frequency pi to 200.

        That of a part with weight w returns to 1 at the multiples of 2 pi / w, and stays high over
        a distance of about 1 / (w scale): the product is looked at there, and on a grid. A lattice
        that returns beyond 200 has a step below 1/30, which the uniform of width 1 covers.
        """
        looked = [np.linspace(math.pi, _FARTHEST, 2**14)]
        for weight, law in self.parts:
            period = 2 * math.pi / max(abs(weight), 1e-3)
            returns = period * np.arange(1, _FARTHEST / period + 1)
            around = np.linspace(-4, 4, 17) / max(abs(weight) * law.scale, 1e-3)
            looked.append((returns[:, np.newaxis] + around).ravel())
        s = np.concatenate(looked)
        s = s[(s >= math.pi) & (s <= _FARTHEST)]
        return bool(np.max(self.log_characteristic(s)) < -20)

    @cached_property
    def _window(self) -> float:
        """Half-width outside which the probability is below exp(-_TAIL) (Chernoff)."""
        parts = [(abs(weight), law) for weight, law in self.parts if weight]
        # where the bound of a normal law of the same curvature is least
        curvature = sum((weight * law.scale) ** 2 * law.terms for weight, law in parts)
        largest = min(
            4 * math.sqrt(2 * _TAIL / curvature), *(law.steepest / weight for weight, law in parts)
        )
        theta = largest * np.linspace(0.02, 0.98, 49)
        log_mgf = sum(law.log_mgf(weight * theta) for weight, law in parts)
        return float(np.min((log_mgf + _TAIL) / theta))

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Grid points and the distribution function of the combination W at them."""
        return _inverted(self, uniform=False)

    @cached_property
    def _smoothed(self) -> tuple[Floats, Floats]:
        """Grid points and the distribution function of W + U at them."""
        return _inverted(self, uniform=True)

    def cdf(self, t: ArrayLike) -> Floats:
        """P(W <= t) for real t."""
        points, cdf = self._table
        return np.asarray(np.interp(np.asarray(t, float), points, cdf, left=0.0, right=1.0))

    def smoothed_cdf(self, t: ArrayLike) -> Floats:
        """P(W + U <= t), U independent and uniform on (-1/2, 1/2).

        Few noises, or narrow ones, leave atoms; T + U has none, so what is inverted is exact.
        """
        points, cdf = self._smoothed
        return np.asarray(np.interp(np.asarray(t, float), points, cdf, left=0.0, right=1.0))

    def tail(self, t: ArrayLike) -> Floats:
        """P(abs(W) >= t)."""
        return 2 * self.cdf(-np.maximum(np.asarray(t, float), 0.0))

    def quantile(self, beta: float) -> float:
        """Smallest q on the grid with P(abs(W) > q) <= beta, and the width of a smoothed atom.

        The grid's law has an atom spread over its neighbourhood, where the quantile may fall.
        """
        points, cdf = self._table
        atom = 4 * _SMOOTHING * (points[1] - points[0])
        return float(atom - points[np.searchsorted(cdf, beta / 2, side="right") - 1])

    def support(self, tail: float = 1e-12) -> int:
        """Integer beyond which the probability is at most 1e-12."""
        return math.ceil(self._window)


def divided(law: NoiseLaw, unit: float) -> NoiseLaw:
    """Law of a noise over a positive unit."""
    if unit == 1:
        return law
    parts = law.parts if isinstance(law, Combination) else ((1.0, law),)
    return Combination(tuple((weight / unit, one) for weight, one in parts))  # type: ignore[misc]


def law_of_sum(row: Floats, laws: Sequence[NoiseLaw | None]) -> tuple[NoiseLaw | None, float]:
    """Law of a combination of noises, and what to multiply it by; None where there is no noise."""
    pairs = zip(np.abs(row).tolist(), laws, strict=True)  # the noises are symmetric
    used = [(weight, law) for weight, law in pairs if weight and law is not None]
    if not used:
        return None, 1.0
    weight, first = used[0]
    if len(used) == 1:
        return first, weight
    lattice = [(own, law) for own, law in used if isinstance(law, LatticeLaw)]
    assert len(lattice) == len(used)
    if all(part == used[0] for part in used) and isinstance(first, LatticeLaw):
        return replace(first, terms=len(used) * first.terms), weight
    return Combination(tuple(lattice)), 1.0


def laplace_scale(law: NoiseLaw) -> float:
    """Scale of a single Laplace noise, also over a unit; zero for any other law."""
    weight, one = 1.0, law
    if isinstance(law, Combination) and len(law.parts) == 1:
        weight, one = law.parts[0]
    return weight * one.scale if isinstance(one, DiscreteLaplace) and one.terms == 1 else 0.0


@dataclass(frozen=True)
class JointNoise(Cached):
    """Joint law of the noise on a sum, sum of a Z, and on the number of rows, sum of b Z.

    Of a share p it is the noise on the sum less p times the noise on the number that counts.

    Parameters
    ----------
    parts : tuple of (a, b, law)
        Weights, and the law of the noises with these weights: of a sum of equal ones.
    """

    parts: tuple[tuple[float, float, LatticeLaw], ...]

    @cached_property
    def moments(self) -> tuple[float, float, float]:
        """Variances of both, and their covariance after the first."""
        parts = [(a, b, law.variance) for a, b, law in self.parts]
        return (
            math.fsum(a * a * v for a, _, v in parts),
            math.fsum(a * b * v for a, b, v in parts),
            math.fsum(b * b * v for _, b, v in parts),
        )

    def variance(self, p: Floats | float) -> Floats:
        """Variance of the noise on (sum - p rows), of the shape of p."""
        own, crossed, count = self.moments
        return np.asarray(own - 2 * p * crossed + p**2 * count, dtype=np.float64)

    def over(self, unit: float) -> JointNoise:
        """Joint noise on the sum and the number of rows, both divided by a positive unit."""
        return JointNoise(tuple((a / unit, b / unit, law) for a, b, law in self.parts))

    @cached_property
    def reach(self) -> float:
        """Beyond it the noise on (sum - p rows) has a probability below 1e-12, for p in [0, 1].

        There abs(a - p b) is at most the larger of its values at 0 and 1, and so is each weight in
        Chernoff's bound.
        """
        largest = tuple((max(abs(a), abs(a - b)), law) for a, b, law in self.parts)
        return Combination(largest)._window

    @cached_property
    def relative_reach(self) -> float:
        """Largest reach of the noise on (sum - p rows) in its own sds, for p on a grid.

        A quarter is added, which is far more than it changes between two points. Infinite where the
        variance of a noise is below what a float holds.
        """
        largest = 0.0
        for p in np.linspace(0, 1, 33).tolist():
            parts = tuple((a - p * b, law) for a, b, law in self.parts if a != p * b)
            if parts:
                sd = math.sqrt(max(float(self.variance(p)), 0.0))
                largest = max(largest, Combination(parts)._window / sd if sd > 0 else math.inf)
        return 1.25 * largest

    def log_characteristic(self, s: Floats, p: Floats) -> Floats:
        """Logarithm (m, k) of E exp(i s (sum - p rows)) at frequencies and shares (m,).

        The frequencies are (k,), or (m, k) where each share has its own.
        """
        s = np.atleast_2d(s)
        total = np.zeros((len(p), s.shape[1]))
        for law, a, b, counts in self._by_scale:
            weights = a - p[:, np.newaxis] * b
            of_parts = law.log_characteristic(weights[:, :, np.newaxis] * s[:, np.newaxis])
            total += np.einsum("mgk,g->mk", of_parts, counts)
        return total

    @cached_property
    def _by_scale(self) -> list[tuple[LatticeLaw, Floats, Floats, Floats]]:
        """One noise of each scale, and the weights a and b and numbers (g,) of those like it."""
        found = []
        for scale in dict.fromkeys(law.scale for _, _, law in self.parts):
            parts = [part for part in self.parts if part[2].scale == scale]
            a, b, counts = np.array([(a, b, law.terms) for a, b, law in parts]).T
            found.append((replace(parts[0][2], terms=1), a, b, counts))
        return found


@lru_cache(maxsize=32)
def _inverted(law: Combination, *, uniform: bool) -> tuple[Floats, Floats]:
    """Grid points and distribution function; kept, since releases of one plan share their laws."""
    half = 1.02 * (law._window + 0.5 * uniform)
    step = 2 * half / _POINTS
    frequencies = np.asarray(np.pi / half * np.arange(_POINTS // 2 + 1), dtype=np.float64)
    phi = np.exp(law.log_characteristic(frequencies) - 0.5 * (_SMOOTHING * step * frequencies) ** 2)
    if uniform:
        phi *= np.sinc(frequencies / (2 * np.pi))
    mass = np.fft.irfft(phi, _POINTS)  # probability of each grid cell, from zero on
    mass = np.clip(np.roll(mass, _POINTS // 2), 0, None)
    points: Floats = step * (np.arange(_POINTS) - _POINTS // 2).astype(np.float64)
    cdf = np.asarray((np.cumsum(mass) - mass / 2) / mass.sum(), dtype=np.float64)
    points.flags.writeable = cdf.flags.writeable = False
    return points, cdf
