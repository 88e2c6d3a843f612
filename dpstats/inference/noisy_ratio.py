"""Ratios of two sums over the private rows, both measured with noise: those of the table itself.

T = X + Z and N = M + Z_0; at the true ratio r = X / M, T - r N = Z - r Z_0 has a known law ("The
private table itself" in docs/explanation/inference/intervals.md; Fieller 1954).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.characteristic import WIDE, Inversion
from dpstats.privacy.weighted_noise import Combination, JointNoise
from dpstats.roots import find_roots_near

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

_TAIL = 1e-12
_LONGEST = 100.0  # relative reach of a noise; a longer one is that of sums which are nearly exact
_EXACT = 1e-12  # largest variance of a sum that counts as exact
_FARTHEST = 7.5  # frequency beyond which R leaves nothing, below 1e-12
_TOLERANCE = 1e-6  # of an end, in standard errors; ends are moved outwards by it


def joint_noise(weighted: Iterable[tuple[float, float, NoiseLaw]]) -> JointNoise:
    """Joint law of the sums of a Z and of b Z, from (a, b, law of Z) of independent noises."""
    parts = []
    for a, b, law in weighted:
        inner = law.parts if isinstance(law, Combination) else ((1.0, law),)
        parts += [(a * weight, b * weight, one) for weight, one in inner]
    return JointNoise(tuple(parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class NoisyRatio(Cached):
    """Ratios with one joint law of the noise, in [0, 1].

    D + R, D = T - r N and R normal with an eighth of D's standard deviation (of sampled rows at
    most one row), has exactly uniform tails at the true r. R makes the law continuous and is a
    function of a stored uniform.
    """

    noise: JointNoise  # of Z and Z_0
    count: float  # N
    # t, u: (d,): T, and stored uniforms on (-1/2, 1/2)
    t: Floats
    u: Floats
    sampled: bool = False  # X is binomial with the share r: D has the sampling variance of N rows

    @classmethod
    def of(
        cls, weighted: Iterable[tuple[float, float, NoiseLaw]], count: float, t: Floats, u: Floats
    ) -> NoisyRatio | None:
        """From (a, b, law) of independent noises, of which Z and Z_0 have the weights a and b.

        None where only bounds on a noise are known, or there is hardly any: a box for both sums
        serves then.
        """
        parts = list(weighted)
        if any(law.bound_only for _, _, law in parts):
            return None
        found = cls(joint_noise(parts), count, t, u)
        return found if found.computable else None

    @property
    def computable(self) -> bool:
        """True if there is enough noise to invert its distribution; no answer enters.

        At parameter 0 or 1 there is no noise where T, or N - T, is a public total.
        """
        exact = np.min(self.noise.variance(np.array([0.0, 1.0]))) <= _EXACT
        return not exact and self.noise.relative_reach <= _LONGEST

    @cached_property
    def _read(self) -> Floats:
        """T read as the nearest possible one, as in `analyses.counts.binomial.within_counts`."""
        return self.t if self.count <= 0 else np.clip(self.t, 0.0, self.count)

    @property
    def _rows(self) -> float:
        """Rows whose sampling error D has."""
        return max(self.count, 1.0) if self.sampled else 0.0

    @cached_property
    def _inversion(self) -> Inversion:
        """Inversion of D over its unit, with the unit of each ratio."""
        noise = self.noise

        def log_noise(s: Floats, r: Floats) -> Floats:
            return noise.log_characteristic(s / self._unit(r), r.ravel())

        return Inversion(log_noise, WIDE * noise.relative_reach, "normal")

    @cached_property
    def _inversion_of_rows(self) -> Inversion:
        """Inversion of D in units of one row, so that many ratios share their frequencies."""
        noise = self.noise.log_characteristic
        return Inversion(lambda s, r: noise(s, r.ravel()), self.noise.reach, "normal")

    def _variance(self, r: Floats) -> Floats:
        """Variance of D."""
        return np.asarray(self.noise.variance(r) + self._rows * r * (1 - r))

    def _unit(self, r: Floats) -> Floats:
        """An eighth of D's standard deviation."""
        return np.asarray(np.sqrt(np.maximum(self._variance(r), 1e-18)) / WIDE)

    def cdf(self, r: Floats, which: NDArray[np.intp], *, read: bool = True) -> Floats:
        """P(D + R <= observed) at ratios (k,) of the numbers (k,), with an error of about 1e-12."""
        from scipy import special

        rows, unit = np.full(r.size, self._rows), self._unit(r)
        whole, farthest = unit >= 1, np.full(r.size, np.inf)
        if self.sampled and whole.any():
            farthest[whole] = self._inversion_of_rows.farthest(rows[whole], r[whole])
        whole = np.isfinite(farthest)
        unit = np.where(whole, 1.0, unit)
        t = self._read if read else self.t
        d = (t[which] - r * self.count) / unit + special.ndtri(self.u[which] + 0.5)
        cdf = np.empty(r.size)
        if whole.any():
            inversion, given = self._inversion_of_rows, (d[whole], rows[whole], r[whole])
            cdf[whole] = inversion.cdf(*given, inversion.nodes(*given, farthest[whole]))
        if not whole.all():
            cdf[~whole] = self._scaled_cdf(*(values[~whole] for values in (d, rows, r, unit)))
        return cdf

    def _scaled_cdf(self, d: Floats, rows: Floats, r: Floats, unit: Floats) -> Floats:
        of_rows = unit if self.sampled else 1.0
        farthest = np.where(
            unit * self._period > _FARTHEST, self._inversion.farthest(rows, r, of_rows), _FARTHEST
        )
        nodes = self._inversion.nodes(d, rows, r, farthest, of_rows)
        return self._inversion.cdf(d, rows, r, nodes, of_rows)

    @cached_property
    def _period(self) -> float:
        """Frequency at which the law of a count, or of a noise on the integers, returns to one."""
        largest = max(max(abs(a), abs(a - b)) for a, b, _ in self.noise.parts)
        return 2 * np.pi / max(largest, float(self.sampled))

    def interval(self, alpha: float) -> tuple[Floats, Floats]:
        """Ends (d,) of the hull of the ratios of which neither tail is below alpha/2.

        Quantiles of a symmetric log-concave noise are convex in its weights, so on either side of T
        / N the set is one piece (on the integers up to a probability far below alpha), and with a
        small N one at 0 or 1.
        """
        every = np.arange(self.t.size)
        if self.count <= 0:
            return np.zeros(every.size), np.ones(every.size)
        low = 1 - self._upper(alpha / 2, every, mirrored=True)
        high = self._upper(alpha / 2, every, mirrored=False)
        return np.minimum(low, high), np.maximum(low, high)

    def _upper(self, level: float, every: NDArray[np.intp], *, mirrored: bool) -> Floats:
        """Upper ends of r, or of 1 - r if mirrored."""
        from scipy import special

        score = special.ndtri(level)

        def excess(q: Floats, which: NDArray[np.intp]) -> Floats:
            cdf = self.cdf(1 - q, which) if mirrored else self.cdf(q, which)
            tail = 1 - cdf if mirrored else cdf
            return np.asarray(special.ndtri(np.clip(tail, _TAIL, 1 - _TAIL)) - score)

        ratio = np.clip(self.t / self.count, 0, 1)
        sd = np.sqrt(self._variance(ratio)) / self.count
        start = 1 - ratio if mirrored else ratio
        low, high = start, np.ones(every.size)  # below the estimate this tail is about one half
        guess, step = np.clip(start - score * sd, low, high), 0.1 * sd
        tolerance = _TOLERANCE * sd
        found = find_roots_near(excess, guess, step, low, high, tolerance=tolerance) + tolerance
        found = np.where(excess(high, every) >= 0, high, found)
        return np.asarray(np.clip(found, low, high))

    def tails(self, r: float, *, read: bool) -> Floats:
        """P(D + R <= observed) and P(D + R >= observed), (2, d); T as `read`, or as it is."""
        if read and self.count <= 0:  # no rows are seen: nothing is known
            return np.full((2, self.t.size), 0.5)
        every = np.arange(self.t.size)
        cdf = self.cdf(np.full(self.t.size, r), every, read=read)
        return np.array([cdf, 1 - cdf])
