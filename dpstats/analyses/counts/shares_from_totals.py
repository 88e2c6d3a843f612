"""Intervals and tests of shares from the totals of persons who may have several rows.

Where their totals were measured, a share is the mean of a column of zeros and ones. Without totals,
counts are divided by k, the most rows of one person, as if they counted persons: see
`Answers.of_persons`, and docs/explanation/inference/persons.md for why that is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.counts.group_shares import (
    MEASURES,
    DifferenceIntervals,
    GroupIntervals,
    Measure,
)
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.arrays import Floats
from dpstats.checks import Alternative, Target
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.results.estimates import OneParameter

if TYPE_CHECKING:
    from dpstats.inference.intervals import Ends


@dataclass(frozen=True)
class SharesFromTotals(OneParameter):
    """Intervals and tests of a share with the totals of persons."""

    # from the counts: certified ones, and those for the private table
    rows: ProportionIntervals | GroupIntervals
    totals: Contrast  # noise-aware ones for the population

    @property
    def estimate(self) -> float:
        """The share."""
        return float(np.squeeze(self.rows.estimate))

    @property
    def sampling_variance(self) -> float:
        """Variance of its sampling error, over persons."""
        return self.totals.sampling_variance

    @property
    def privacy_variance(self) -> float:
        """Variance of its noise."""
        return float(np.squeeze(self.rows.privacy_variance))

    @property
    def ranges(self) -> tuple[Floats | float, Floats | float]:
        """Least and largest share."""
        return self.rows.ranges

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays."""
        if target == "table":
            return self.rows.noise_aware(alpha, target)
        low, high = self.totals.noise_aware(alpha, target)  # of numbers in [-1, 1]
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays."""
        return self.rows.certified(alpha, target)

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all parameters together, of which there is one."""
        of = self.rows.joint_noise_aware if target == "table" else self.noise_aware
        return of(alpha, target)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all parameters together, of which there is one."""
        return self.rows.joint_certified(alpha, target)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) that it equals `value`."""
        return self.totals.pvalues(value, alternative)


@dataclass(frozen=True)
class DifferenceFromTotals(DifferenceIntervals):
    """Intervals and tests of two groups compared; noise-aware for the population, from totals.

    The difference of risks is that of two means. Ratios are compared on the logarithm, to first
    order in the sampling error; a draw of the noise with a risk that has no logarithm says nothing.
    A person may have rows in both groups: products of totals over both are measured too.
    """

    totals: PersonVariance = field(kw_only=True)

    @property
    def _means(self) -> tuple[NoisyMean, NoisyMean]:
        return NoisyMean.of_trait(self.answers), NoisyMean.of_trait(self.answers, 2)

    def _sampling_variances(self) -> Floats:
        rows = [None if np.isnan(row).any() else row.tolist() for row in self._slopes]
        means = self._means
        return np.array(
            [np.nan if row is None else self.totals.variance(means, row) for row in rows]
        )

    def _law(self, measure: Measure) -> ConfidenceLaw:
        """Confidence law of the logarithm of a ratio."""
        (a, square_a, n_a), (b, square_b, n_b) = (mean.drawn for mean in self._means)
        odds = measure == "odds ratio"
        low, high = (np.minimum(a, b), np.maximum(a, b)) if odds else (np.minimum(a, b), a * 0)
        known = (low > 0) & (high < 1)
        a, b = np.where(known, a, 0.5), np.where(known, b, 0.5)
        centre = np.log(a / b) - (np.log((1 - a) / (1 - b)) if odds else 0.0)
        slopes = [1 / (p * (1 - p)) if odds else 1 / p for p in (a, b)]
        parts = [slopes[0] ** 2 * square_a, slopes[1] ** 2 * square_b]
        total = np.maximum(parts[0] + parts[1], 1e-300)
        error = self.totals.drawn(self._means, [slopes[0], -slopes[1]])
        df = total**2 / np.maximum(
            parts[0] ** 2 / (n_a - 1) + parts[1] ** 2 / (n_b - 1), 1e-300
        )  # fmt: skip
        return ConfidenceLaw(centre, np.where(known, np.sqrt(error), np.inf), df)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), of the ratios in [0, inf]; for the private table from the counts."""
        if target == "table":
            return super().noise_aware(alpha, target)
        ends = [tuple(np.concatenate(self._difference.noise_aware(alpha, target)))]
        for measure in MEASURES[1:]:
            law = self._law(measure)
            found = law.limits(alpha, -_FAR, _FAR) if law.reaches(alpha) else (-_FAR, _FAR)
            ends.append((_exp(found[0]), _exp(found[1])))
        low, high = np.array(ends).T
        return low[self.chosen], high[self.chosen]

    @property
    def _difference(self) -> Contrast:
        return Contrast(self._means, 0.0, 1.0, self.totals)

    def pvalue(self, measure: Measure, value: float, alternative: Alternative) -> float:
        """P-value of one measure."""
        if measure == MEASURES[0]:
            return float(self._difference.pvalues(value, alternative)[0])
        at = np.log(value) if value > 0 else -_FAR
        return self._law(measure).pvalue(float(at), alternative)


_FAR = 700.0  # a logarithm whose exponential floats can hold


def _exp(value: float) -> float:
    if abs(value) >= _FAR:
        return 0.0 if value < 0 else np.inf
    return float(np.exp(value))
