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
    DifferenceIntervals,
    GroupIntervals,
)
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.analyses.counts.risk_measures import MEASURES, Measure
from dpstats.analyses.moments.mean_intervals import Contrast
from dpstats.analyses.moments.mean_sampling import PersonVariance
from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_proportion
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.intervals import Intervals

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.inference.intervals import Ends


@dataclass(frozen=True)
class SharesFromTotals(Intervals):
    """Intervals and tests of shares with the totals of persons.

    Attributes
    ----------
    rows : ProportionIntervals or GroupIntervals
        From the counts: certified ones, and those for the private table.
    totals : Contrast
        Noise-aware ones for the population.
    """

    rows: ProportionIntervals | GroupIntervals
    totals: Contrast

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def range_widths(self) -> Floats | float:
        """Widths of the ranges of the parameters."""
        return self.rows.range_widths

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        if target == "table":
            return self.rows.noise_aware(alpha, target)
        low, high = self.totals.noise_aware(alpha, target)  # of numbers in [-1, 1]
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        return self.rows.certified(alpha, target)

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all parameters together."""
        if target == "table":
            return self.rows.joint_noise_aware(alpha, target)
        return super().joint_noise_aware(alpha, target)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all parameters together."""
        return self.rows.joint_certified(alpha, target)

    def subset(self, chosen: slice) -> SharesFromTotals:
        """Intervals of some of the parameters."""
        return SharesFromTotals(self.rows.subset(chosen), self.totals.subset(chosen))

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each equals `value`.

        Raises
        ------
        RequestError
            For a share that is not in [0, 1].
        """
        return self.totals.pvalues(check_proportion(value), alternative)


@dataclass(frozen=True)
class DifferenceFromTotals(DifferenceIntervals):
    """Intervals and tests of two groups compared; noise-aware for the population, from totals.

    The difference of risks is that of two means. Ratios are compared on the logarithm, to first
    order in the sampling error; a draw of the noise with a risk that has no logarithm says nothing.
    A person may have rows in both groups: products of totals over both are measured too.

    Attributes
    ----------
    totals : PersonVariance
    """

    totals: PersonVariance = field(kw_only=True)

    @property
    def _means(self) -> tuple[NoisyMean, NoisyMean]:
        return NoisyMean.of_trait(self.answers), NoisyMean.of_trait(self.answers, 2)

    def variances(self, slopes: Floats) -> Floats:
        """Of combinations (k, 2) of the shares, (k,), from person totals; nan where they are."""
        known = ~np.isnan(slopes).any(axis=1)
        found = np.full(len(slopes), np.nan)
        found[known] = [self.totals.variance(self._means, row) for row in slopes[known].tolist()]
        return found

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
