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
from dpstats.inference.counts.characteristic import Inversion

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw
    from dpstats.privacy.weighted_noise import JointNoise

_WIDE = 8.0  # standard deviation of D to which a standard normal variable adds below 1%
_FEW_ROWS = 4.0  # times the reach of the count's noise
_DIRECT = 8  # parts of a noise that are evaluated at every proportion
_DEGREE = 24


@dataclass(frozen=True)
class CountPivot:
    """Tails of D for counts with one law of the noise.

    Every p and n has its own test, chosen by public numbers and by n: D + R with R standard normal
    where D is wide and n is large beside the noise of N, else T + U at this n. Both have exactly
    uniform tails for the true n. R and U are functions of the stored uniform.

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

        Of a D that is wide they are monotone in n away from the middle of its law, of T they are
        monotone anywhere: so the two ends of the set of n suffice.
        """
        found = np.array([self._cdf(t, u, p, float(n)) for n in dict.fromkeys(self.sizes)])
        return found.max(axis=0), 1 - found.min(axis=0)

    def _cdf(self, t: Floats, u: Floats, p: Floats, n: float) -> Floats:
        from scipy import special

        sizes, inversion = np.full(p.size, n), self._inversion
        d = t - p * self.count + special.ndtri(u + 0.5)
        wide = np.full(p.size, n >= _FEW_ROWS * self.within)
        wide &= n * p * (1 - p) + self.joint.variance(p) >= _WIDE**2
        nodes = np.full(p.size, np.inf)
        nodes[wide] = inversion.nodes(d[wide], sizes[wide], p[wide])
        wide = np.isfinite(nodes)
        cdf = np.empty(p.size)
        cdf[wide] = inversion.cdf(d[wide], sizes[wide], p[wide], nodes[wide])
        cdf[~wide] = noisy_binomial_cdf((t + u)[~wide], int(n), p[~wide], self.law)
        return cdf

    @cached_property
    def _inversion(self) -> Inversion:
        noise = self.joint.log_characteristic
        if len(self.joint.parts) > _DIRECT:
            noise = _Interpolated(self.joint)
        return Inversion(lambda s, p: noise(s, p.ravel()), self.joint.reach, "normal")

    def interval(self, t: Floats, u: Floats, alpha: float) -> tuple[Floats, Floats]:
        """Ends (d,) of the values of p of which neither tail is below alpha/2."""
        from scipy import special

        def lower(p: Floats, which: NDArray[np.intp]) -> Floats:
            return self.tails(t[which], u[which], p)[0]

        def upper(q: Floats, which: NDArray[np.intp]) -> Floats:
            """At p = 1 - q, in which it decreases."""
            return self.tails(t[which], u[which], 1 - q)[1]

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


@dataclass(frozen=True)
class _Interpolated:
    """The characteristic function of a noise of many parts, by Chebyshev polynomials in p.

    Each part is a small share of it, so that its logarithm is nearly quadratic in p.
    """

    joint: JointNoise
    _kept: dict[tuple[float, float], Floats] = field(default_factory=dict)

    def __call__(self, s: Floats, p: Floats) -> Floats:
        """Logarithms (m, k) at frequencies (k,), which are few, and shares (m,)."""
        key = (float(s[0]), float(s[-1]))
        if key not in self._kept:
            angle = np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE
            basis = np.cos(np.arange(_DEGREE) * angle[:, np.newaxis])
            basis[:, 0] /= 2
            values = self.joint.log_characteristic(s, (1 + np.cos(angle)) / 2)
            self._kept[key] = 2 / _DEGREE * basis.T @ values
        place = np.arccos(np.clip(2 * p - 1, -1, 1))
        return np.asarray(np.cos(np.arange(_DEGREE) * place[:, np.newaxis]) @ self._kept[key])
