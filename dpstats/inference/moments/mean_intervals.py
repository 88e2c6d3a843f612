"""Intervals and tests of means, and of differences of two means, in original units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_finite
from dpstats.corrected.means import mean_confint
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import with_far_tails
from dpstats.inference.moments.noisy_mean import NoisyMean, law_of_contrast
from dpstats.spending import bonferroni, for_noise_of_means

if TYPE_CHECKING:
    from dpstats.checks import Method, Target

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
    """

    groups: tuple[NoisyMean, ...]
    middle: float
    half: float

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
        return self.half**2 * sum(group.sampling_variance for group in self.groups)

    @property
    def privacy_variance(self) -> float:
        """Variance of the estimate's noise, in original units squared."""
        return self.half**2 * sum(group.privacy_variance for group in self.groups)

    @cached_property
    def _law(self) -> ConfidenceLaw:
        return law_of_contrast(self.groups)

    def interval(self, alpha: float, method: Method, target: Target) -> tuple[float, float]:
        """Lower and upper limit, within the range of the number."""
        reach = float(len(self.groups))
        if method == "noise_aware" and target == "population":
            low, high = self._law.limits(alpha, -reach, reach)
        else:
            low, high = self._certified(alpha, target)
        return self._shift + self.half * low, self._shift + self.half * high

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
        """Noise-aware p-value of the hypothesis that it equals `value` (original units)."""
        return self._law.pvalue((value - self._shift) / self.half, alternative)


@dataclass(frozen=True)
class MeanIntervals:
    """Intervals and tests of d contrasts.

    Noise-aware: see `inference.confidence_law`. Certified: see `corrected.means`. For the
    private table itself both methods give the box of the noise.
    """

    contrasts: tuple[Contrast, ...]
    preview_remark: ClassVar[str] = MEANS

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays."""
        ends = np.array([c.interval(alpha, method, target) for c in self.contrasts])
        if method == "certified" or target == "table":
            return ends[:, 0], ends[:, 1]
        return with_far_tails(
            (ends[:, 0], ends[:, 1]),
            alpha,
            DRAWS,
            lambda: self.conf_int(alpha, "certified", target),
        )

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
