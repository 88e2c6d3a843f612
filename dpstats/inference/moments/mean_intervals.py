"""Intervals and tests of means, and of differences of two means, in original units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_finite
from dpstats.corrected.means import mean_confint
from dpstats.errors import RequestError
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.intervals import wider
from dpstats.inference.moments.noisy_mean import NoisyMean, law_of_contrast
from dpstats.spending import LEAST_COMPUTED, bonferroni, for_noise_of_means

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.inference.moments.person_variance import PersonVariance

_ROUNDED = 1e-9  # relative, of bounds
MEANS = """\
Means of columns that vary less within their bounds than even ones have narrower intervals, down to
the width that the noise leaves; those of small groups have wider ones."""


@dataclass(frozen=True)
class Contrast:
    """The mean of one group of rows, or that of the first of two minus that of the second.

    Attributes
    ----------
    groups : one or two NoisyMean
    middle, half : float
        An original value is middle + half times its unit value; in a difference the middle cancels.
    persons : PersonVariance or None
        The sampling variance of persons, where their totals were measured.
    tested : bool
        Whether there is a test: not where a group may be empty. The p-value is 1 without one.
    """

    groups: tuple[NoisyMean, ...]
    middle: float
    half: float
    persons: PersonVariance | None = None
    tested: bool = True

    @property
    def _signs(self) -> tuple[float, ...]:
        return (1.0, -1.0)[: len(self.groups)]

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
        if self.persons is not None:
            return self.half**2 * self.persons.variance(self.groups, self._signs)
        return self.half**2 * sum(group.sampling_variance for group in self.groups)

    @property
    def privacy_variance(self) -> float:
        """Variance of the estimate's noise, in original units squared."""
        return self.half**2 * sum(group.privacy_variance for group in self.groups)

    @cached_property
    def _law(self) -> ConfidenceLaw:
        law = law_of_contrast(self.groups, None if self.persons is None else self.persons.drawn)
        return law.within(*self._range)

    @property
    def _range(self) -> tuple[float, float]:
        """Of the mean, or of the difference of two, in unit scale."""
        least, *others = (0.0 if group.share else -1.0 for group in self.groups)
        return (least - 1.0, 1.0 - others[0]) if others else (least, 1.0)

    def interval(self, alpha: float, method: Method, target: Target) -> tuple[float, float]:
        """Lower and upper limit, within the range of the number.

        Noise-aware ones for the population contain those for the private table: both are read off
        draws, and the wider of two intervals errs no more often than either.
        """
        if target == "table":
            low, high = self._of_table(alpha, method)
        elif method == "certified":
            low, high = self._certified(alpha, target)
        else:
            reach = float(len(self.groups))
            ends = np.array([
                self._law.limits(alpha, -reach, reach), self._of_table(alpha, method)
            ])  # fmt: skip
            low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        return self._shift + self.half * low, self._shift + self.half * high

    def _of_table(self, alpha: float, method: Method) -> tuple[float, float]:
        """Limits from the law of the noise alone; a box where only a box is to be had.

        On the scale of [0, 1] the mean of a group is the ratio of two noisy sums, and of one mean
        both methods invert the law of the noise. Of two means, certified limits are the extremes
        over both intervals at alpha/2; noise-aware ones average over draws.
        """
        ratios = [ratio for group in self.groups if (ratio := group.of_table) is not None]
        if alpha < LEAST_COMPUTED or len(ratios) < len(self.groups):
            return self._certified(alpha, "table")
        if len(ratios) > 1 and method == "noise_aware":
            return self._law.without_sampling.limits(alpha, -2.0, 2.0)
        each = bonferroni(alpha, len(ratios))
        ends = np.array([2 * np.concatenate(ratio.interval(each)) - 1 for ratio in ratios])
        if len(ratios) == 1:
            return float(ends[0, 0]), float(ends[0, 1])
        return float(ends[0, 0] - ends[1, 1]), float(ends[0, 1] - ends[1, 0])

    def _certified(self, alpha: float, target: Target) -> tuple[float, float]:
        """Every mean in its certified interval, at alpha over their number."""
        each = bonferroni(alpha, len(self.groups))
        low = high = 0.0
        for sign, group in zip(self._signs, self.groups, strict=True):
            if target == "table":
                ends = group.box(each, squares=False)[:2]
            else:
                beta = for_noise_of_means(each, certain=group.certain)
                first, last, variance, size = group.box(beta)
                box = np.array([[first], [last], [variance]])
                found = mean_confint(box[0], box[1], box[2], size, each - beta)
                ends = float(found[0][0]), float(found[1][0])
            low, high = low + min(sign * end for end in ends), high + max(sign * e for e in ends)
        return low, high

    def pvalue(self, value: float, alternative: Alternative) -> float:
        """Noise-aware p-value of the hypothesis that it equals `value` (original units).

        Raises
        ------
        RequestError
            For a value beyond the declared bounds, to which the rows are clamped.
        """
        reach = self.half * len(self.groups)
        if abs(value - self._shift) > reach * (1 + _ROUNDED):
            low, high = self._shift - reach, self._shift + reach
            raise RequestError(
                f"value={value:g} is impossible: rows are clamped to the declared bounds, so that "
                f"this is between {low:g} and {high:g} in any table; test a value between them"
            )
        if not self.tested:
            return 1.0
        return self._law.pvalue((value - self._shift) / self.half, alternative)

    def reaches(self, alpha: float) -> bool:
        """Whether noise-aware limits are of this level; see `ConfidenceLaw.reaches`."""
        return self._law.reaches(alpha)


@dataclass(frozen=True)
class MeanIntervals:
    """Intervals and tests of d contrasts.

    Noise-aware: see `inference.confidence_law`. Certified: see `corrected.means`. Of the private
    table both use the law of the noise alone: a box if n is public, else `inference.noisy_ratio`.
    """

    contrasts: tuple[Contrast, ...]
    preview_remark: ClassVar[str] = MEANS

    @property
    def range_widths(self) -> Floats:
        """(d,) of all values within the declared bounds."""
        return np.array([2 * one.half * len(one.groups) for one in self.contrasts])

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays."""
        ends = np.array([c.interval(alpha, method, target) for c in self.contrasts])
        if method == "certified":
            return ends[:, 0], ends[:, 1]
        if all(contrast.reaches(alpha) for contrast in self.contrasts):
            return ends[:, 0], ends[:, 1]
        return wider((ends[:, 0], ends[:, 1]), self.conf_int(alpha, "certified", target))

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits, by Bonferroni's inequality.

        Products of different columns, which determine the correlation of the means, are not
        measured.
        """
        return self.conf_int(bonferroni(alpha, len(self.contrasts)), method, target)

    def subset(self, chosen: slice) -> MeanIntervals:
        """The same for some of them."""
        return MeanIntervals(self.contrasts[chosen])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each equals `value`."""
        check_finite("value", value)
        return np.array([c.pvalue(float(value), alternative) for c in self.contrasts])
