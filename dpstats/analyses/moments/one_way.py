"""Analysis of variance of a number between groups, from their noisy sizes, sums and squares."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.noisy_mean import LEAST_ROWS, NoisyMean
from dpstats.arrays import Floats
from dpstats.error_rates import least_of_noise
from dpstats.inference.confidence_law import DRAWS
from dpstats.inference.declared_levels import DeclaredLevels

_LEAST_VARIANCE = 1e-26  # of a mean, in unit scale: an error of zero still needs a scale
_MOST_DF = 1e12
_NEGLIGIBLE = 1e-18  # noise variance over sampling variance


@dataclass(frozen=True)
class OneWay:
    """Groups of rows without a row in common, numbers in [-1, 1] (unit scale)."""

    groups: tuple[NoisyMean, ...]
    # (k,) mean noise on the sizes of groups that were chosen by them; see `DeclaredLevels`
    shifts: Floats | None = None

    @cached_property
    def levels(self) -> DeclaredLevels:
        """Which groups have two rows, so that their mean has an error."""
        laws = [law for group in self.groups for law in group.laws]
        if any(law is not None and law.bound_only for law in laws):
            return DeclaredLevels.all_used(len(self.groups))
        sizes = np.array([group.observed[0] for group in self.groups])
        return DeclaredLevels.of(sizes, [group.size_law for group in self.groups], LEAST_ROWS)

    @cached_property
    def used(self) -> OneWay:
        """The groups that tests and effect sizes use."""
        return self._only(self.levels.used)

    def _only(self, used: NDArray[np.bool_]) -> OneWay:
        return OneWay(tuple(itertools.compress(self.groups, used)), self.levels.shifts[used])

    def test(self) -> tuple[float, float, float, float]:
        """Welch's test of the groups that surely have rows: statistic, p-value, both df.

        The p-value has the share for empty groups added, see `DeclaredLevels.pvalue`. With fewer
        than two groups it is 1, and there is no statistic.
        """

        def pvalue(some: NDArray[np.bool_]) -> float | None:
            same = np.array_equal(some, self.levels.used)
            return (self.used if same else self._only(some)).welch[1] if some.sum() > 1 else None

        total = self.levels.pvalue(pvalue)
        if self.levels.used.sum() < 2:
            return np.nan, total, np.nan, np.nan
        statistic, _, df_num, df_denom = self.used.welch
        return statistic, total, df_num, df_denom

    @cached_property
    def _means(self) -> Floats:
        return np.array([group.mean for group in self.groups])

    @cached_property
    def _sizes(self) -> Floats:
        return np.array([group.size for group in self.groups])

    @cached_property
    def _df(self) -> Floats:
        """(k,) degrees of freedom of each mean: of rows, or of the fewest persons with them."""
        return np.array([max(group.size / group.clustering - 1, 1.0) for group in self.groups])

    @cached_property
    def _sampling(self) -> Floats:
        return np.array([group.sampling_variance for group in self.groups])

    @cached_property
    def _noise(self) -> Floats:
        return np.array([group.privacy_variance for group in self.groups])

    @cached_property
    def _chosen(self) -> Floats:
        """(k,) squared errors of the means because groups were chosen by their noisy sizes.

        The sum of m rows with mean c is over a size that is too large by the shift.
        """
        if self.shifts is None:
            return np.zeros(len(self.groups))
        weights = 1 / np.maximum(self._sampling + self._noise, _LEAST_VARIANCE)
        centre = weights @ self._means / weights.sum()
        return np.asarray(np.minimum((centre * self.shifts / self._sizes) ** 2, 1.0))

    @cached_property
    def _variances(self) -> Floats:
        """(k,) of the errors of the means: of sampling, of noise and of the choice."""
        return np.asarray(self._sampling + self._noise + self._chosen)

    @cached_property
    def _weights(self) -> Floats:
        return np.asarray(1 / np.maximum(self._variances, _LEAST_VARIANCE))

    def _between(self, means: Floats) -> Floats:
        """Weighted sums of squares (m,) of means (m, k) around their weighted mean."""
        centre = means @ self._weights / self._weights.sum()
        return np.asarray((means - centre[:, np.newaxis]) ** 2 @ self._weights)

    @cached_property
    def welch(self) -> tuple[float, float, float, float]:
        """Welch's F test that all means are equal: statistic, p-value and degrees of freedom.

        The variance of each mean is that of sampling and noise together, with Satterthwaite's
        degrees of freedom. To the p-value of Welch's law, which takes all errors as normal, the
        chance that the sum of squares is exceeded under draws of the noise is added, less that
        under normal errors of the same variance. A draw is that of a single mean (see
        `ConfidenceLaw`). Without noise it is Welch's own p-value.

        Welch, B. L. (1951). On the comparison of several mean values: an alternative approach.
        Biometrika 38, 330-336. Weerahandi, S. (1995). ANOVA under unequal error variances.
        Biometrics 51, 589-599.
        """
        from scipy import special

        k, weights = len(self.groups), self._weights
        squares = float(self._between(self._means[np.newaxis])[0])
        df = self._df / np.maximum(self._sampling * weights, 1e-12) ** 2
        spread = float(np.sum((1 - weights / weights.sum()) ** 2 / df))
        statistic = squares / (k - 1) / (1 + 2 * (k - 2) / (k**2 - 1) * spread)
        df_denom = min((k**2 - 1) / (3 * spread), _MOST_DF)
        classical = float(special.fdtrc(k - 1, df_denom, statistic))
        if np.all(self._noise <= _NEGLIGIBLE * self._sampling):
            return statistic, classical, k - 1.0, df_denom
        drawn, normal = self._errors()
        above = [float(np.mean(self._between(errors) >= squares)) for errors in (drawn, normal)]
        total = float(np.sum(weights * self._variances))
        least = least_of_noise(float(np.sum(weights * self._noise)), total, DRAWS)
        pvalue = float(np.clip(classical + above[0] - above[1], least, 1))
        return statistic, pvalue, k - 1.0, df_denom

    def _errors(self) -> tuple[Floats, Floats]:
        """Errors (DRAWS, k) of the means: with draws of the noise, and with normal noise.

        Both have the same uniforms in the sampling part, so that they differ by the noise alone.
        """
        from scipy import special

        shape = (DRAWS, len(self.groups))
        rng = np.random.default_rng([group.seed for group in self.groups])
        uniform, normal = rng.random(shape), rng.standard_normal(shape)
        chosen = np.sqrt(self._chosen) * rng.standard_normal(shape)
        mean, square, size = np.stack([group.drawn for group in self.groups], axis=-1)
        drawn = mean - self._means + np.sqrt(square) * special.stdtrit(size - 1, uniform)
        t = special.stdtrit(self._df, uniform)
        return drawn + chosen, np.sqrt(self._sampling) * t + np.sqrt(self._noise) * normal + chosen

    @cached_property
    def _sums_of_squares(self) -> tuple[float, float]:
        """Between and within the groups, unit scale; that between without the noise's share."""
        if len(self.groups) < 2:
            return np.nan, np.nan
        sizes, rows = self._sizes, self._sizes.sum()
        centre = sizes @ self._means / rows
        between = sizes @ (self._means - centre) ** 2
        between -= float(np.sum(sizes * (1 - sizes / rows) * self._noise))
        within = sizes @ np.array([group.variance for group in self.groups])
        return max(float(between), 0.0), float(within)

    @property
    def eta_squared(self) -> float:
        """Share of the variance between the groups, in [0, 1].

        nan where all rows are equal, and of fewer than two groups.
        """
        between, within = self._sums_of_squares
        return between / (between + within) if between + within > 0 else np.nan

    @property
    def omega_squared(self) -> float:
        """Eta squared less the bias of sampling, at least 0."""
        between, within = self._sums_of_squares
        more = len(self.groups) - 1
        mean_square = within / max(self._sizes.sum() - more - 1, 1.0)
        total = between + within + mean_square
        return max(between - more * mean_square, 0.0) / total if total > 0 else np.nan
