"""Intervals and tests of means, and of differences of two means, in original units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpstats.analyses.moments.mean_sampling import MeanSampling
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.corrected.means import mean_confint
from dpstats.error_rates import LEAST_COMPUTED, bonferroni, for_noise_of_means
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.intervals import Ends, wider
from dpstats.results.estimates import OneParameter

_SIGNS = (1.0, -1.0)  # of groups in a contrast


@dataclass(frozen=True)
class Contrast(OneParameter, Cached):
    """The mean of one group of rows, or that of the first of two minus that of the second.

    Noise-aware: `inference.confidence_law`; certified: `corrected.means`. For the private table: a
    box if n is public, else one mean is a `NoisyRatio` for both methods; of two means, noise-aware
    limits average over draws, and certified ones are the extremes of both ratios at alpha/2.
    """

    groups: tuple[NoisyMean, ...]
    middle: float  # an original value is middle + half * x; in a difference the middle cancels
    half: float
    sampling: MeanSampling = field(default_factory=MeanSampling)

    @property
    def _signs(self) -> tuple[float, ...]:
        return _SIGNS[: len(self.groups)]

    @property
    def _shift(self) -> float:
        return self.middle if len(self.groups) == 1 else 0.0

    @property
    def estimate(self) -> float:
        """Estimate, in original units."""
        means = [sign * g.mean for sign, g in zip(self._signs, self.groups, strict=True)]
        return self._shift + self.half * sum(means)

    @property
    def sampling_variance(self) -> float:
        """Variance of the estimate's sampling error, in original units squared."""
        return self.half**2 * self.sampling.variance(self.groups, self._signs)

    @property
    def privacy_variance(self) -> float:
        """Variance of the estimate's noise, in original units squared."""
        return self.half**2 * sum(group.privacy_variance for group in self.groups)

    @cached_property
    def _law(self) -> ConfidenceLaw:
        return _law_of_contrast(self.groups, self.sampling).within(*self._range)

    @property
    def _range(self) -> tuple[float, float]:
        """Range of the mean, or of the difference of two, in unit scale."""
        least, *others = (group.possible(-np.inf) for group in self.groups)
        return (least - 1.0, 1.0 - others[0]) if others else (least, 1.0)

    @property
    def ranges(self) -> tuple[float, float]:
        """Least and largest value that the declared bounds allow."""
        reach = self.half * len(self.groups)
        return self._shift - reach, self._shift + reach

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays, within the range of the number.

        Those for the population are widened to contain those for the private table, which are
        computed in another way: the wider of two intervals errs no more often than either.
        """
        ends = self._in_units(self._of_table(alpha))
        if target == "table":
            return ends
        reach = float(len(self.groups))
        ends = wider(ends, self._in_units(self._law.limits(alpha, -reach, reach)))
        return ends if self._law.reaches(alpha) else wider(ends, self.certified(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays."""
        exact = self._exactly(alpha) if target == "table" else None
        return self._in_units(self._box(alpha, target) if exact is None else exact)

    def _in_units(self, ends: tuple[float, float]) -> Ends:
        low, high = self._shift + self.half * np.array(ends)[:, np.newaxis]
        return low, high

    def _of_table(self, alpha: float) -> tuple[float, float]:
        """Noise-aware limits for the private table: of two means they average over draws."""
        exact = self._exactly(alpha)
        if exact is None:
            return self._box(alpha, "table")
        if len(self.groups) == 1:
            return exact
        return self._law.without_sampling.limits(alpha, -2.0, 2.0)

    def _exactly(self, alpha: float) -> tuple[float, float] | None:
        """Limits from the distribution of the noise alone; None where only a box is to be had.

        On the scale of [0, 1] the mean of a group is the ratio of two noisy sums. Of two means,
        they are the extremes over both intervals at alpha/2.
        """
        ratios = [ratio for group in self.groups if (ratio := group.of_table) is not None]
        if alpha < LEAST_COMPUTED or len(ratios) < len(self.groups):
            return None
        each = bonferroni(alpha, len(ratios))
        ends = np.array([2 * np.concatenate(ratio.interval(each)) - 1 for ratio in ratios])
        if len(ratios) == 1:
            return float(ends[0, 0]), float(ends[0, 1])
        return float(ends[0, 0] - ends[1, 1]), float(ends[0, 1] - ends[1, 0])

    def _box(self, alpha: float, target: Target) -> tuple[float, float]:
        """Every mean in its box, at alpha over their number."""
        each = bonferroni(alpha, len(self.groups))
        low = high = 0.0
        for sign, group in zip(self._signs, self.groups, strict=True):
            if target == "table":
                ends = group.box(each, squares=False)[:2]
            else:
                beta = for_noise_of_means(each, bound_only=group.bound_only)
                first, last, variance, size = group.box(beta)
                box = np.array([[first], [last], [variance]])
                found = mean_confint(box[0], box[1], box[2], size, each - beta)
                ends = float(found[0][0]), float(found[1][0])
            low, high = low + min(sign * end for end in ends), high + max(sign * e for e in ends)
        return low, high

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-value (1,) of the hypothesis that it equals `value` (original units)."""
        at = (value - self._shift) / self.half
        return np.array([max(self._law.pvalue(at, alternative), self._of_noise(at, alternative))])

    def _of_noise(self, value: float, alternative: Alternative) -> float:
        """P-value by the limits for the private table, which those for the population contain."""
        ratios = [group.of_table for group in self.groups]
        if None in ratios:
            return 0.0
        if len(ratios) > 1:
            return self._law.without_sampling.pvalue(value, alternative)
        (ratio,) = ratios
        assert ratio is not None
        # Limits are the hull of a set that may have a second piece, at the end of the range.
        places = (1 + value) / 2, float(value > self.groups[0].mean)
        smaller, larger = np.max([ratio.tails(at, read=True)[:, 0] for at in places], axis=0)
        sides = {"larger": larger, "smaller": smaller, "two-sided": 2 * min(larger, smaller)}
        found = float(min(sides[alternative], 1.0))
        return found if found >= LEAST_COMPUTED else 0.0


def _law_of_contrast(groups: Sequence[NoisyMean], sampling: MeanSampling) -> ConfidenceLaw:
    """Law of the mean of one group, or of the first minus the second, in unit scale.

    Welch's approximation to the degrees of freedom, draw by draw; see `ConfidenceLaw`. The noise at
    a value is that of eq. noise-of-mean and noise-of-means in
    docs/explanation/inference/means-and-covariances.md.
    """
    first, *others = groups
    centre, independent, size = first.drawn
    df = size - 1
    for other in others:
        mean, square, size = other.drawn
        centre = centre - mean
        total = independent + square
        known = total > 0
        a, b = (np.where(known, own, 1.0) for own in (independent, square))
        welch = (a + b) ** 2 / (a**2 / df + b**2 / (size - 1))
        df = np.where(known, welch, df + size - 1)
        independent = total
    squared_error = sampling.drawn(groups, _SIGNS[: len(groups)])
    hidden = any(group.hidden_by_noise for group in groups)
    variance = np.inf if hidden else sum(group.privacy_variance for group in groups)
    laws = [law for group in groups for law in group.laws if law is not None]
    gaussian = all(law.gaussian for law in laws)

    def noise_at(value: float) -> float:
        if not others:
            return first.noise_at(value)
        (second,) = others
        a, b = second.possible(second.mean + value), second.possible(first.mean - value)
        pairs = (a, a - value), (b + value, b)
        return max(first.noise_at(one) + second.noise_at(other) for one, other in pairs)

    error, estimate = np.sqrt(squared_error), first.mean - sum(other.mean for other in others)
    changing = (estimate, float(np.median(error)), noise_at)
    return ConfidenceLaw(centre, error, df, float(variance), gaussian, changing)
