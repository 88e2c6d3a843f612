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
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.counts.binomial import (
    ERROR,
    Tail,
    equal_at_ends,
    largest_logit,
    noisy_binomial_cdf,
    within_counts,
)
from dpstats.inference.counts.characteristic import WIDE, Inversion
from dpstats.inference.counts.unequal_tails import equal_tails

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw
    from dpstats.privacy.weighted_noise import JointNoise

_FEW_ROWS = 4.0  # times the reach of the count's noise
_DIRECT = 8  # parts of a noise that are evaluated at every proportion
_DEGREE = 24
_CLOSE = 1e-11
_NARROWEST = 2.0**-10  # part of [0, 1]
_GRID = 1 / (1 + np.exp(-np.linspace(-16, 16, 641)))  # of p, to see where D is wide

_Test: TypeAlias = Literal["D", "T", "chosen"]


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
        farthest = self._farthest(p, most, "chosen"), self._farthest(p, least, "chosen")
        cdfs = [self._cdf(t, u, p, n, f) for n, f in zip((most, least), farthest, strict=True)]
        mixed = np.flatnonzero(np.isfinite(farthest[0]) & np.isinf(farthest[1]))
        lowest = np.minimum(*cdfs)
        others = noisy_binomial_cdf((t + u)[mixed], int(most), p[mixed], self.law)
        lowest[mixed] = np.minimum(lowest[mixed], others)
        return np.maximum(*cdfs), 1 - lowest

    def read(self, t: Floats, u: Floats) -> Floats:
        """T with T + U in [0, N], see `within_counts`; where N is not positive as it is."""
        return t if self.count <= 0 else within_counts(t + u, self.count) - u

    def _farthest(self, p: Floats, n: float, test: _Test) -> Floats:
        """Last frequencies of D's law at p and n; infinite where the test is that of T.

        "chosen": by the standard deviation and the cost.
        """
        if test == "T" or n < _FEW_ROWS * self.within:
            return np.full(p.size, np.inf)
        farthest = self._inversion.farthest(np.full(p.size, n), p)
        if test == "chosen":
            farthest[n * p * (1 - p) + self.joint.variance(p) < WIDE**2] = np.inf
        return farthest

    def _cdf(self, t: Floats, u: Floats, p: Floats, n: float, farthest: Floats) -> Floats:
        """P(D <= observed), or P(T + U <= observed) where `farthest` is infinite."""
        from scipy import special

        cdf, wide = np.empty(p.size), np.isfinite(farthest)
        sizes = np.full(int(wide.sum()), n)
        d = (t - p * self.count + special.ndtri(u + 0.5))[wide]
        nodes = self._inversion.nodes(d, sizes, p[wide], farthest[wide])
        cdf[wide] = self._inversion.cdf(d, sizes, p[wide], nodes)
        cdf[~wide] = noisy_binomial_cdf((t + u)[~wide], int(n), p[~wide], self.law)
        return cdf

    @cached_property
    def _inversion(self) -> Inversion:
        noise = self.joint.log_characteristic
        if len(self.joint.parts) > _DIRECT:
            noise = _Interpolated(self.joint)
        return Inversion(lambda s, p: noise(s, p.ravel()), self.joint.reach, "normal")

    def interval(
        self, t: Floats, u: Floats, alpha: float, tail: Tail | None = None
    ) -> tuple[Floats, Floats]:
        """Ends (d,) of an interval that holds all p of which neither tail is below its level.

        The levels are alpha/2, or those of `tail`, see `inference.counts.unequal_tails`. The test
        is D's between two p and T's outside, so the values kept may be in pieces: what D alone
        keeps in its region, and what T alone keeps in its own. The ends are the outer ones.
        """
        from scipy import special

        grid = np.concatenate([[0.0], _GRID, [1.0]])
        farthest = [self._farthest(grid, float(n), "chosen") for n in dict.fromkeys(self.sizes)]
        wide, level = np.isfinite(farthest), tail or equal_tails(alpha)
        t = self.read(t, u) if equal_at_ends(level, alpha) else t
        of_d, of_t = np.flatnonzero(wide.any(axis=0)), np.flatnonzero(~wide.all(axis=0))
        if not of_d.size:
            return self._ends(t, u, level, "T")
        low, high = self._ends(t, u, level, "D")
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
            look |= from_t >= level(special.logit(1 - smallest))  # levels rise outwards
            look |= up_to_t >= level(special.logit(largest))
        else:
            look[:] = True
        ones = np.flatnonzero(look)
        t_low, t_high = self._ends(t[ones], u[ones], level, "T")
        low[ones] = np.where(kept[ones], np.minimum(low[ones], t_low), t_low)
        high[ones] = np.where(kept[ones], np.maximum(high[ones], t_high), t_high)
        return low, high

    def _ends(self, t: Floats, u: Floats, level: Tail, test: _Test) -> tuple[Floats, Floats]:
        """Ends of the interval of one kind of test."""
        from scipy import special

        high, mirrored = (self._end(t, u, level, test, side) for side in (1, -1))
        return special.expit(-mirrored), special.expit(high)

    def _end(self, t: Floats, u: Floats, level: Tail, test: _Test, side: int) -> Floats:
        """Largest logits of p, or of 1 - p on side -1, kept at one of the two n at least."""
        from scipy import special

        def tail(n: int, some: NDArray[np.intp]) -> Callable[..., Floats]:
            def of_some(q: Floats, which: NDArray[np.intp]) -> Floats:
                p, i = q if side > 0 else 1 - q, some[which]
                cdf = self._cdf(t[i], u[i], p, n, self._farthest(p, n, test))
                return cdf if side > 0 else 1 - cdf

            return of_some

        every, half = np.arange(t.size), float(level(np.zeros(1))[0])
        largest, some = np.full(t.size, -np.inf), every
        first = self.sizes[0] if test == "T" and side > 0 else self.sizes[1]  # mostly the larger
        for n in dict.fromkeys((first, *self.sizes)):
            if n != first:  # tails decrease in q
                kept = tail(n, every)(special.expit(largest), every) + ERROR >= level(largest)
                some = np.flatnonzero(kept & (largest < np.inf))
            found = largest_logit(tail(n, some), level, *self._guess(t[some], half, side))
            largest[some] = np.maximum(largest[some], found)
        return largest

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


@dataclass(frozen=True)
class _Interpolated:
    """The characteristic function of a noise of many parts, by Chebyshev polynomials in p.

    Where each part is a small share of it, its logarithm is nearly quadratic in p. It is compared
    with the function itself at some p; where they differ, [0, 1] is halved.
    """

    joint: JointNoise
    _kept: dict[tuple[float, ...], Floats | None] = field(default_factory=dict)

    def __call__(self, s: Floats, p: Floats) -> Floats:
        """Logarithms (m, k) at frequencies (k,), which are few, and shares (m,)."""
        found = np.empty((p.size, s.size))
        parts = [(0.0, 1.0, np.arange(p.size))]
        while parts:
            low, high, which = parts.pop()
            key = (float(s[0]), float(s[-1]), s.size, low, high)
            if key not in self._kept:
                self._kept[key] = self._coefficients(s, low, high)
            kept, middle = self._kept[key], (low + high) / 2
            if kept is not None:
                found[which] = _polynomial(kept, (p[which] - low) / (high - low))
            elif high - low <= _NARROWEST:
                found[which] = self.joint.log_characteristic(s, p[which])
            else:
                below = p[which] < middle
                halves = (low, middle, which[below]), (middle, high, which[~below])
                parts += [half for half in halves if half[2].size]
        return found

    def _coefficients(self, s: Floats, low: float, high: float) -> Floats | None:
        """Coefficients (degree, k) between two p; None if they do not serve."""
        angle = np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE
        basis = np.cos(np.arange(_DEGREE) * angle[:, np.newaxis])
        basis[:, 0] /= 2
        shares = low + (high - low) * (1 + np.cos(angle)) / 2
        found = np.asarray(2 / _DEGREE * basis.T @ self.joint.log_characteristic(s, shares))
        tried = (1 + np.cos(np.pi * np.arange(0, _DEGREE + 1, 3) / _DEGREE)) / 2
        exact = np.exp(self.joint.log_characteristic(s, low + (high - low) * tried))
        close = np.max(np.abs(np.exp(_polynomial(found, tried)) - exact)) < _CLOSE
        return found if close else None


def _polynomial(coefficients: Floats, p: Floats) -> Floats:
    """Chebyshev polynomials on [0, 1] with coefficients (degree, k) at p (m,): (m, k)."""
    place = np.arccos(np.clip(2 * p - 1, -1, 1))
    return np.asarray(np.cos(np.arange(len(coefficients)) * place[:, np.newaxis]) @ coefficients)
