"""Ratios of two sums over the private rows, both measured with noise: those of the table itself.

T = X + Z and N = M + Z_0, where X / M is a share or, on the scale of [0, 1], a mean. At the true
ratio r the difference T - r N = Z - r Z_0 consists of noise alone and has a known law, whatever X
and M are (Fieller 1954). Nothing is spent on M, as it would be in a box for both sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.corrected.roots import find_roots_near
from dpstats.inference.counts.characteristic import WIDE, Inversion
from dpstats.privacy.weighted_noise import Combination, JointNoise

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

_TAIL = 1e-12
_LONGEST = 100.0  # relative reach of a noise; a longer one is that of sums which are nearly exact
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
class NoisyRatio:
    """Ratios with one joint law of the noise, in [0, 1].

    D + R, D = T - r N and R normal with an eighth of D's standard deviation, has exactly uniform
    tails at the true r. R makes the law continuous and is a function of a stored uniform.

    Attributes
    ----------
    noise : JointNoise
        Of Z and Z_0.
    count : float
        N.
    t, u : (d,) float64
        T, and stored uniforms on (-1/2, 1/2).
    """

    sampled: ClassVar[bool] = False

    noise: JointNoise
    count: float
    t: Floats
    u: Floats

    @classmethod
    def of(
        cls, weighted: Iterable[tuple[float, float, NoiseLaw]], count: float, t: Floats, u: Floats
    ) -> NoisyRatio | None:
        """From (a, b, law) of independent noises, of which Z and Z_0 have the weights a and b.

        None where only bounds on a noise are known, or where there is hardly any noise: a box for
        both sums serves then. Neither depends on the answers.
        """
        parts = list(weighted)
        if any(law.certain for _, _, law in parts):
            return None
        found = cls(joint_noise(parts), count, t, u)
        return found if found.computable else None

    @property
    def computable(self) -> bool:
        """Whether there is noise enough for its law to be inverted; known from the law alone."""
        return self.noise.relative_reach <= _LONGEST

    @cached_property
    def _read(self) -> Floats:
        """T read as the nearest possible one, as in `inference.counts.binomial.within_counts`."""
        return self.t if self.count <= 0 else np.clip(self.t, 0.0, self.count)

    @cached_property
    def _inversion(self) -> Inversion:
        noise = self.noise

        def log_noise(s: Floats, r: Floats) -> Floats:
            return noise.log_characteristic(s / self._unit(r), r.ravel())

        return Inversion(log_noise, WIDE * noise.relative_reach, "normal")

    def _unit(self, r: Floats) -> Floats:
        """Standard deviation of R."""
        return np.asarray(np.sqrt(np.maximum(self.noise.variance(r), 1e-18)) / WIDE)

    def cdf(self, r: Floats, which: NDArray[np.intp]) -> Floats:
        """P(D + R <= observed) at ratios (k,) of the numbers (k,), with an error of about 1e-12."""
        from scipy import special

        d = (self._read[which] - r * self.count) / self._unit(r) + special.ndtri(
            self.u[which] + 0.5
        )
        none = np.zeros(r.size)  # rows drawn: D has no sampling error
        farthest = np.where(
            self._unit(r) * self._period > _FARTHEST, self._inversion.farthest(none, r), _FARTHEST
        )
        return self._inversion.cdf(d, none, r, self._inversion.nodes(d, none, r, farthest))

    @cached_property
    def _period(self) -> float:
        """Frequency at which the law of one noise on the integers first returns to one."""
        return 2 * np.pi / max(max(abs(a), abs(a - b)) for a, b, _ in self.noise.parts)

    def interval(self, alpha: float) -> tuple[Floats, Floats]:
        """Ends (d,) of the hull of the ratios of which neither tail is below alpha/2.

        Quantiles of a symmetric log-concave noise are convex in its weights. Hence what the tests
        keep on either side of T / N is one piece next to it and, with a small N, one at 0 or 1. On
        the integers this holds nearly: a further piece can be missed, of probability far below
        alpha.
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
        sd = np.sqrt(self.noise.variance(ratio)) / self.count
        start = 1 - ratio if mirrored else ratio
        low, high = start, np.ones(every.size)  # below the estimate this tail is about one half
        guess, step = np.clip(start - score * sd, low, high), 0.1 * sd
        tolerance = _TOLERANCE * sd
        found = find_roots_near(excess, guess, step, low, high, tolerance=tolerance) + tolerance
        found = np.where(excess(high, every) >= 0, high, found)
        return np.asarray(np.clip(found, low, high))

    # What `inference.counts.two_risks` asks of each of two groups, here with d = 1.

    @property
    def risk(self) -> float:
        """Estimate in [0, 1]; one half where the noisy denominator is not positive."""
        return float(np.clip(self.t[0] / self.count, 0, 1)) if self.count > 0 else 0.5

    @property
    def observed_size(self) -> float:
        """N."""
        return self.count

    @property
    def size_noise(self) -> float:
        """Standard deviation of the noise on N."""
        return float(np.sqrt(self.noise.moments[2]))

    def sizes(self, n: int | None, beta: float) -> Floats:
        """Ends of a confidence set of error beta for M, at least 0 and at most n."""
        most = np.inf if n is None else float(n)
        q = self._of_count.quantile(beta)
        return np.asarray(np.clip([self.count - q, self.count + q], 0, most), dtype=np.float64)

    @cached_property
    def _of_count(self) -> NoiseLaw:
        parts = tuple((b, law) for _, b, law in self.noise.parts if b)
        weight, law = parts[0]
        return law if len(parts) == 1 and weight == 1 else Combination(parts)

    def tails(self, ratios: Floats, sizes: Floats) -> tuple[Floats, Floats]:
        """P(D + R <= observed) and P(D + R >= observed), (m,) for ratios (m,), at any size."""
        cdf = self.cdf(ratios, np.zeros(ratios.size, dtype=np.intp))
        return cdf, 1 - cdf

    def variances(self, risk: Floats | float, size: float) -> tuple[Floats, Floats]:
        """Sampling variance, which is none, and that of the noise, of T / N at a ratio and size."""
        risk = np.asarray(risk, dtype=np.float64)
        none: Floats = np.zeros(risk.shape)
        return none, self.noise.variance(risk) / np.float64(max(size, 1.0) ** 2)
