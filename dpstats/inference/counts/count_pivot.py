"""Proportions where the number of rows was measured with noise.

T = X + Z counts the rows with a trait, X ~ Binomial(n, p), and N = n + Z_0 counts the rows. At the
true p the difference D = T - p N = (X - p n) + (Z - p Z_0) has a known law but for n, which enters
through the variance of X alone. Hence no share of the error is lost to the shift p Z_0, as it is
when p is inferred from T at every n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.counts.binomial import largest_logit, noisy_binomial_cdf
from dpstats.inference.counts.characteristic import WIDE, Inversion

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw
    from dpstats.privacy.weighted_noise import JointNoise

_FEW_ROWS = 4.0  # times the reach of the count's noise
_DIRECT = 8  # parts of a noise that are evaluated at every proportion
_DEGREE = 24
_CLOSE = 1e-11
_GRID = 1 / (1 + np.exp(-np.linspace(-16, 16, 641)))  # of p, to see where D is wide


@dataclass(frozen=True)
class CountPivot:
    """Tails of D for counts with one law of the noise.

    Every p and n has its own test, chosen by public numbers and by n: D + R with R standard normal
    where D is wide and n is large beside the noise of N, else T + U at this n. Both have exactly
    uniform tails for the true n. R and U are functions of the stored uniform. A p is rejected where
    the largest tail over a set of n is small, hence with at most the probability for the true n.

    Attributes
    ----------
    law : NoiseLaw
        Of Z.
    joint : JointNoise
        Of Z and Z_0.
    count : float
        N.
    sizes : pair of int
        Ends of a set that holds n, whose error is counted elsewhere.
    within : float
        Largest distance of N from n in that set.
    """

    law: NoiseLaw
    joint: JointNoise
    count: float
    sizes: tuple[int, int]
    within: float

    def tails(self, t: Floats, u: Floats, p: Floats) -> tuple[Floats, Floats]:
        """Largest probabilities (r,) of a D (or T) up to the observed one, and from it on.

        Of a wide D they are monotone in n away from the middle of its law, and of T anywhere: the
        ends of the set of n suffice. Where the larger n has a D and the smaller one a T, the tail
        of T from the observed one on is also taken at the larger n, where it is largest.
        """
        most, least = float(self.sizes[1]), float(self.sizes[0])
        wide = self._wide(p, most), self._wide(p, least)
        cdfs = [self._cdf(t, u, p, n, w) for n, w in zip((most, least), wide, strict=True)]
        mixed = np.flatnonzero(wide[0] & ~wide[1])
        lowest = np.minimum(*cdfs)
        others = noisy_binomial_cdf((t + u)[mixed], int(most), p[mixed], self.law)
        lowest[mixed] = np.minimum(lowest[mixed], others)
        return np.maximum(*cdfs), 1 - lowest

    def _wide(self, p: Floats, n: float) -> NDArray[np.bool_]:
        """Whether the test at p and n is that of D: by its standard deviation and cost."""
        wide = n * p * (1 - p) + self.joint.variance(p) >= WIDE**2
        return np.asarray(wide & self._possible(p, n))

    def _cdf(self, t: Floats, u: Floats, p: Floats, n: float, wide: NDArray[np.bool_]) -> Floats:
        """P(D <= observed) where wide, P(T + U <= observed) elsewhere."""
        from scipy import special

        cdf, sizes = np.empty(p.size), np.full(int(wide.sum()), n)
        d = (t - p * self.count + special.ndtri(u + 0.5))[wide]
        nodes = self._inversion.nodes(d, sizes, p[wide])
        cdf[wide] = self._inversion.cdf(d, sizes, p[wide], nodes)
        cdf[~wide] = noisy_binomial_cdf((t + u)[~wide], int(n), p[~wide], self.law)
        return cdf

    @cached_property
    def _inversion(self) -> Inversion:
        noise = self.joint.log_characteristic
        if len(self.joint.parts) > _DIRECT:
            noise = _Interpolated(self.joint)
        return Inversion(lambda s, p: noise(s, p.ravel()), self.joint.reach, "normal")

    def interval(self, t: Floats, u: Floats, alpha: float) -> tuple[Floats, Floats]:
        """Ends (d,) of an interval that holds all p of which neither tail is below alpha/2.

        The test is D's between two p and T's outside, so the values kept may be in pieces: what D
        alone keeps in its region, and what T alone keeps in its own. The ends are the outer ones.
        """
        grid = np.concatenate([[0.0], _GRID, [1.0]])
        wide = np.array([self._wide(grid, float(n)) for n in dict.fromkeys(self.sizes)])
        of_d, of_t = np.flatnonzero(wide.any(axis=0)), np.flatnonzero(~wide.all(axis=0))
        if not of_d.size:
            return self._ends(t, u, alpha, _never)
        low, high = self._ends(t, u, alpha, self._possible)
        if not of_t.size:
            return low, high
        first, last = grid[max(of_d[0] - 1, 0)], grid[min(of_d[-1] + 1, len(grid) - 1)]
        kept = (low <= last) & (high >= first)
        low, high = np.maximum(low, first), np.minimum(high, last)
        inside = grid[wide.all(axis=0)]  # where T has no say
        look = ~kept
        if inside.size:
            smallest, largest = np.full(t.size, inside[0]), np.full(t.size, inside[-1])
            from_t = 1 - noisy_binomial_cdf(t + u, self.sizes[1], smallest, self.law)
            up_to_t = noisy_binomial_cdf(t + u, self.sizes[0], largest, self.law)
            look |= np.maximum(from_t, up_to_t) >= alpha / 2
        else:
            look[:] = True
        ones = np.flatnonzero(look)
        t_low, t_high = self._ends(t[ones], u[ones], alpha, _never)
        low[ones] = np.where(kept[ones], np.minimum(low[ones], t_low), t_low)
        high[ones] = np.where(kept[ones], np.maximum(high[ones], t_high), t_high)
        return low, high

    def _possible(self, p: Floats, n: float) -> NDArray[np.bool_]:
        """Where D has a test at all."""
        if n < _FEW_ROWS * self.within:
            return _never(p, n)
        nodes = self._inversion.nodes(np.zeros(p.size), np.full(p.size, n), p)
        return np.isfinite(nodes)

    def _ends(
        self, t: Floats, u: Floats, alpha: float, wide: Callable[[Floats, float], NDArray[np.bool_]]
    ) -> tuple[Floats, Floats]:
        """Ends of the interval of one kind of test."""
        from scipy import special

        def cdfs(p: Floats, which: NDArray[np.intp]) -> Floats:
            ones = t[which], u[which]
            return np.array([
                self._cdf(*ones, p, float(n), wide(p, float(n))) for n in dict.fromkeys(self.sizes)
            ])  # fmt: skip

        def lower(p: Floats, which: NDArray[np.intp]) -> Floats:
            return np.asarray(cdfs(p, which).max(axis=0))

        def upper(q: Floats, which: NDArray[np.intp]) -> Floats:
            """At p = 1 - q, in which it decreases."""
            return np.asarray(1 - cdfs(1 - q, which).min(axis=0))

        def near(side: float) -> Callable[[NDArray[np.intp]], tuple[Floats, Floats]]:
            return lambda which: self._guess(t[which], alpha / 2, side)

        high = largest_logit(lower, alpha / 2, near(1.0), t.size)
        mirrored = largest_logit(upper, alpha / 2, near(-1.0), t.size)
        return special.expit(-mirrored), special.expit(high)

    def _guess(self, t: Floats, level: float, side: float) -> tuple[Floats, Floats]:
        """Logit (times the side) of the end if D were normal, and a first step from there."""
        from scipy import special

        n, score = max(self.count, 1.0), special.ndtri(level)
        least = 0.1 / n
        p = np.clip(t / n, least, 1 - least)
        for _ in range(3):
            spread = np.sqrt(n * p * (1 - p) + self.joint.variance(p) + 1)
            p = np.clip((t - side * score * spread) / n, least, 1 - least)
        return side * special.logit(p), np.minimum(0.1 * spread / (n * p * (1 - p)), 1.0)


def _never(p: Floats, n: float) -> NDArray[np.bool_]:
    """The test is that of T at all p."""
    return np.zeros(p.size, bool)


@dataclass(frozen=True)
class _Interpolated:
    """The characteristic function of a noise of many parts, by Chebyshev polynomials in p.

    Where each part is a small share of it, its logarithm is nearly quadratic in p. It is compared
    with the function itself at some p, which serves where they differ.
    """

    joint: JointNoise
    _kept: dict[tuple[float, float], Floats | None] = field(default_factory=dict)

    def __call__(self, s: Floats, p: Floats) -> Floats:
        """Logarithms (m, k) at frequencies (k,), which are few, and shares (m,)."""
        key = (float(s[0]), float(s[-1]))
        if key not in self._kept:
            angle = np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE
            basis = np.cos(np.arange(_DEGREE) * angle[:, np.newaxis])
            basis[:, 0] /= 2
            values = self.joint.log_characteristic(s, (1 + np.cos(angle)) / 2)
            found = np.asarray(2 / _DEGREE * basis.T @ values)
            tried = (1 + np.cos(np.pi * np.arange(0, _DEGREE + 1, 3) / _DEGREE)) / 2
            exact = np.exp(self.joint.log_characteristic(s, tried))
            close = np.max(np.abs(np.exp(_polynomial(found, tried)) - exact)) < _CLOSE
            self._kept[key] = found if close else None
        kept = self._kept[key]
        return self.joint.log_characteristic(s, p) if kept is None else _polynomial(kept, p)


def _polynomial(coefficients: Floats, p: Floats) -> Floats:
    """Chebyshev polynomials on [0, 1] with coefficients (degree, k) at p (m,): (m, k)."""
    place = np.arccos(np.clip(2 * p - 1, -1, 1))
    return np.asarray(np.cos(np.arange(len(coefficients)) * place[:, np.newaxis]) @ coefficients)
