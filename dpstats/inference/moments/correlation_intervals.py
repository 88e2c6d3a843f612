"""Intervals and tests of correlations, from noisy first and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.arrays import Floats, within
from dpstats.checks import Alternative
from dpstats.corrected.correlation import LEAST_VARIANCE, Range, correlation_range
from dpstats.corrected.means import bernstein_radius, chernoff_confint
from dpstats.error_rates import bonferroni, for_noise_of_means
from dpstats.errors import RequestError
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import Intervals, wider
from dpstats.inference.moments.correlation_spread import correlation_spread, two_valued_spread
from dpstats.inference.moments.noisy_covariance import NoisyCovariance
from dpstats.inference.simulation import calibration_seed, draw_evenly

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.inference.intervals import Ends
    from dpstats.measured.view import ReleaseView
    from dpstats.privacy.laws import NoiseLaw

_FAR = 19.0  # atanh(1 - 2^-53) is 18.7
_WITHIN = 3.0  # noise sds from 1 or -1, where the scale of atanh is of use
_NUMBERS = 5  # moments of a pair, not counting the number of rows


@dataclass(frozen=True)
class NoisyPair(Intervals):
    """The correlation of two numbers in [-1, 1] (unit scale) from their noisy moments.

    Noise-aware: Fisher's transformation draw by draw of the noise, see `law`, with the
    variance under the distribution of the rows (`correlation_spread`). Certified:
    all five moments of the pair in a box, from quantiles of the noise and (for the population)
    Chernoff's bound for the squares and Bernstein's for the others, a fifth of the error each.

    Attributes
    ----------
    observed : (6,) float64
        Noisy n, sum x, sum y, sum x^2, sum y^2, sum xy.
    laws : tuple of 6 laws
        Of independent noises; None for a public n.
    units : (6,) float64
        What the noises are divided by.
    spread : float
        n Var(r) over that of normal rows, at least 1; see `correlation_spread`.
    two_valued : bool
        Both numbers are -1 or 1: then their moments give the whole distribution, and `spread` too.
    seed : int
        Of the draws of the noise; see `calibration_seed`.
    """

    range_widths: ClassVar[float] = 2.0

    observed: Floats
    laws: tuple[NoiseLaw | None, ...]
    units: Floats
    spread: float = 1.0
    two_valued: bool = False
    seed: int = 0

    @classmethod
    def of_pairs(
        cls, release: ReleaseView, covariance: NoisyCovariance, places: Sequence[tuple[int, int]]
    ) -> tuple[NoisyPair, ...]:
        """Some pairs of columns of a covariance matrix, with their spread."""
        plain = [NoisyPair.of(covariance, i, j) for i, j in places]
        rest = np.zeros((covariance.p, covariance.p))
        for pair, (i, j) in zip(plain, places, strict=True):
            rest[i, j] = rest[j, i] = pair.relative_noise
        spread = correlation_spread(release, covariance, rest)
        pairs = zip(plain, places, strict=True)
        return tuple(replace(pair, spread=float(spread[at])) for pair, at in pairs)

    @classmethod
    def of(cls, covariance: NoisyCovariance, i: int, j: int) -> NoisyPair:
        """Columns number i and j of a covariance matrix, from 0."""
        matrix = covariance.moments
        two_valued = covariance.two_valued[i] and covariance.two_valued[j]
        i, j = i + 1, j + 1
        places = [matrix.place[a, b] for a, b in ((0, i), (0, j), (i, i), (j, j), (i, j))]
        answers, rows = matrix.answers, matrix.answers.rows
        units = matrix.units[places].astype(np.float64)
        count = None if rows.public else answers.law(matrix.place[0, 0])
        return cls(
            np.append(rows.estimate, answers.sums[places] / units),
            (count, *(answers.law(f) for f in places)),
            np.append(1.0, units),
            two_valued=two_valued,
            seed=calibration_seed(answers, (i, j)),
        )

    def __len__(self) -> int:
        return 1

    def subset(self, chosen: slice) -> NoisyPair:
        """These intervals: there is one parameter."""
        return self

    @property
    def rows(self) -> float:
        """Number of rows, or its estimate; at least 1."""
        return max(float(self.observed[0]), 1.0)

    @cached_property
    def noise_variances(self) -> Floats:
        """(6,) variances of the noises, in rows squared."""
        variances = np.array([0.0 if law is None else law.variance for law in self.laws])
        return np.asarray(variances / self.units**2)

    @cached_property
    def moments(self) -> tuple[float, float, float, float, float]:
        """Means of x and y, their variances less the bias of the noise, their covariance."""
        x, y, xx, yy, xy = (self.observed[1:] / self.rows).tolist()
        noise = self.noise_variances / self.rows**2
        gain = [noise[k + 1] + mean**2 * noise[0] for k, mean in enumerate((x, y))]
        return x, y, xx - x * x + gain[0], yy - y * y + gain[1], xy - x * y + x * y * noise[0]

    @property
    def seen(self) -> bool:
        """Whether both noisy variances are positive, by more than rounding."""
        return min(self.moments[2:4]) > LEAST_VARIANCE

    @property
    def estimate(self) -> float:
        """Correlation in [-1, 1]; 0 where the noise exceeds a variance."""
        _, _, xx, yy, xy = self.moments
        return float(np.clip(xy / np.sqrt(xx * yy), -1, 1)) if self.seen else 0.0

    @property
    def sampling_variance(self) -> float:
        """(1 - r^2)^2 / (n - 1), normal theory, times the spread."""
        x, y = self.moments[:2]
        r, n = np.array([self.estimate]), np.array([self.rows])
        spread = self.spread
        if self.two_valued and self.seen:
            spread = float(two_valued_spread(np.array([x]), np.array([y]), r, n)[0])
        return (1 - self.estimate**2) ** 2 * spread / max(self.rows - 1, 1.0)

    @property
    def privacy_variance(self) -> float:
        """Variance of the noise on the correlation, to first order; inf if not `seen`."""
        if not self.seen:
            return np.inf
        (x, y, xx, yy, _), r = self.moments, self.estimate
        root = np.sqrt(xx * yy)
        gradient = np.array([
            x * y / root - r * ((x * x - xx) / xx + (y * y - yy) / yy) / 2 - r,
            -y / root + r * x / xx,
            -x / root + r * y / yy,
            -r / (2 * xx),
            -r / (2 * yy),
            1 / root,
        ])  # fmt: skip
        return float(gradient**2 @ self.noise_variances) / self.rows**2

    @property
    def relative_noise(self) -> float:
        """`privacy_variance` over the variance of sampling of normal rows; 0 if not `seen`."""
        normal = max((1 - self.estimate**2) ** 2, self.rows**-2) / self.rows
        return self.privacy_variance / normal if self.seen else 0.0

    @cached_property
    def law(self) -> ConfidenceLaw:
        """Law of the correlation on Fisher's scale.

        Each draw of the noise gives a correlation r, and atanh r is normal with variance
        spread / (n - 3), 1 / (n - 3) for normal rows; a draw with no variance, or fewer than 4
        rows, counts against both sides.

        Noise may put nearly all draws beyond 1, which no correlation is. Their limits would be 1
        and 1: an error within the level, but no interval. If most draws are beyond 1 (or -1) all
        are moved until half are. That moves the limit inside outwards, and the one at 1 remains,
        since half of the draws are there: the interval only widens, and is nested in alpha.
        """
        rng = np.random.default_rng(self.seed)
        noises = np.array([
            np.zeros(DRAWS) if law is None else draw_evenly(law, DRAWS, rng) for law in self.laws
        ])  # fmt: skip
        n, *sums = self.observed[:, np.newaxis] - noises / self.units[:, np.newaxis]
        enough = n >= 4
        x, y, xx, yy, xy = np.array(sums) / np.where(enough, n, 4.0)
        xx, yy = xx - x * x, yy - y * y
        seen = enough & (np.minimum(xx, yy) > LEAST_VARIANCE)
        root = np.sqrt(np.where(seen, xx, 1.0) * np.where(seen, yy, 1.0))
        r = np.where(seen, (xy - x * y) / root, 0.0)
        middle = float(np.median(r[seen])) if seen.any() else 0.0
        r -= middle - np.clip(middle, -1, 1)
        with np.errstate(divide="ignore"):
            centre = np.clip(np.arctanh(np.clip(r, -1, 1)), -_FAR, _FAR)
        spread = two_valued_spread(x, y, r, n) if self.two_valued else self.spread
        error = np.sqrt(spread / np.maximum(n - 3, 1))
        noise = np.inf
        if _WITHIN * np.sqrt(self.privacy_variance) < 1 - abs(self.estimate):
            noise = self.privacy_variance / (1 - self.estimate**2) ** 2
        return ConfidenceLaw(
            centre,
            np.where(seen & (n > 3), error, np.inf),
            noise_variance=noise,
            gaussian=all(law.gaussian for law in self.laws if law is not None),
        )

    def box(self, beta: float) -> tuple[list[Range], float]:
        """Ranges of the five private means, all of them with probability 1 - beta; least n."""
        each = bonferroni(beta, sum(law is not None for law in self.laws))
        q = np.array([0.0 if law is None else law.quantile(each) for law in self.laws]) / self.units
        least, most = np.ceil(self.observed[0] - q[0] - 1e-9), max(self.observed[0] + q[0], 1.0)
        lowest = np.array([-1.0, -1, 0, 0, -1])
        if least < 1:
            return [(low, 1.0) for low in lowest.tolist()], 0.0
        sums = np.stack([self.observed[1:] - q[1:], self.observed[1:] + q[1:]])
        ratios = np.concatenate([sums / least, sums / most])
        low, high = within(ratios.min(axis=0), ratios.max(axis=0), lowest, 1)
        largest = float(np.sqrt(np.prod(low[2:4] + high[2:4]) / 4))  # of a product, given squares
        low[4], high[4] = within(low[4], high[4], -largest, largest)
        return list(zip(low.tolist(), high.tolist(), strict=True)), float(least)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [-1, 1]; for the private table the certified ones."""
        if target == "table":
            return self.certified(alpha, target)
        ends = np.array(self.law.limits(alpha, -_FAR, _FAR))[:, np.newaxis]
        low, high = np.where(np.abs(ends) >= _FAR, np.sign(ends), np.tanh(ends))
        if self.law.reaches(alpha):
            return low, high
        return wider((low, high), self.certified(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [-1, 1]."""
        low, high = self.extremes(alpha, target)
        if low == high:  # no table lies in the box: its event has failed
            low, high = -1.0, 1.0
        return np.array([low]), np.array([high])

    def extremes(self, alpha: float, target: Target) -> Range:
        """Extremes of the correlation over a box of moments."""
        if target == "table":
            return correlation_range(*self.box(alpha)[0])
        certain = all(law.certain for law in self.laws if law is not None)
        beta = for_noise_of_means(alpha, certain=certain)
        box, n = self.box(beta)
        if n < 1:
            return -1.0, 1.0
        each = bonferroni(alpha - beta, _NUMBERS)
        low, high = np.array(box).T
        square = [2, 3]
        low[square], high[square] = chernoff_confint(low[square], high[square], n, each)
        # x^2, y^2 <= 1, so x, y and x y have at most the variances E x^2, E y^2 and the smaller.
        variance = np.array([high[2], high[3], min(high[2:4])])
        others, radius = [0, 1, 4], bernstein_radius(variance, n, each)
        low[others] = np.maximum(low[others] - radius, -1)
        high[others] = np.minimum(high[others] + radius, 1)
        x, y, xx, yy, xy = zip(low.tolist(), high.tolist(), strict=True)
        return correlation_range(x, y, xx, yy, xy)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) that the correlation equals `value`."""
        if not -1 < value < 1:
            raise RequestError(f"value={value:g} must be a correlation between -1 and 1")
        return np.array([self.law.pvalue(float(np.arctanh(value)), alternative)])
