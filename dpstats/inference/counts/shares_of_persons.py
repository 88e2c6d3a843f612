"""Intervals and tests of shares where a person may have several rows.

A count is then no binomial one. Noise-aware limits for the population are those of the mean of a
column of zeros and ones, with a sampling variance that allows for persons, see
`RowCount.of_persons`; all others are those of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_proportion
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.counts.difference_intervals import DifferenceIntervals
from dpstats.inference.counts.proportion_intervals import GroupIntervals, ProportionIntervals
from dpstats.inference.counts.risk_measures import MEASURES, Measure
from dpstats.inference.moments.mean_intervals import Contrast, MeanIntervals
from dpstats.inference.moments.noisy_mean import NoisyMean
from dpstats.inference.moments.person_variance import PersonVariance
from dpstats.spending import bonferroni

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.measured.answers import Answers

SHARES = (0.0, 1.0)  # the values of a row without the trait and with it


@dataclass(frozen=True)
class SharesOfPersons:
    """Intervals and tests of d shares, of all rows or of a group.

    Attributes
    ----------
    rows : ProportionIntervals or GroupIntervals
        Of independent rows: exact for the private table.
    persons : MeanIntervals
        The same shares as means.
    """

    rows: ProportionIntervals | GroupIntervals
    persons: MeanIntervals
    range_widths: ClassVar[float] = 1.0

    @classmethod
    def of_all(
        cls, rows: ProportionIntervals, answers: Answers, totals: PersonVariance | None = None
    ) -> SharesOfPersons:
        """Shares of all rows; the last of the answers is the number of rows if it is noisy.

        With the sampling variance of persons, if there is one share and `totals` are measured.
        """
        means = (NoisyMean.of_share(answers, f) for f in range(len(rows.answers.sums)))
        found = tuple(Contrast((mean,), 0.0, 1.0, totals) for mean in means)
        return cls(rows, MeanIntervals(found))

    @classmethod
    def of_group(
        cls, rows: GroupIntervals, totals: PersonVariance | None = None
    ) -> SharesOfPersons:
        """The share within a group."""
        mean = NoisyMean.of_trait(rows.answers)
        return cls(rows, MeanIntervals((Contrast((mean,), 0.0, 1.0, totals),)))

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays in [0, 1]."""
        if method == "certified" or target == "table":
            return self.rows.conf_int(alpha, method, target)
        low, high = self.persons.conf_int(alpha, method, target)
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits; noise-aware ones by Bonferroni's inequality."""
        if method == "certified" or target == "table":
            return self.rows.simultaneous(alpha, method, target)
        return self.conf_int(bonferroni(alpha, len(self.persons.contrasts)), method, target)

    def subset(self, chosen: slice) -> SharesOfPersons:
        """The same for some of them."""
        return SharesOfPersons(self.rows.subset(chosen), self.persons.subset(chosen))

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each equals `value`.

        Raises
        ------
        RequestError
            For a value that is not in [0, 1].
        """
        return self.persons.pvalues(check_proportion(value), alternative)


@dataclass(frozen=True)
class DifferenceOfPersons:
    """Intervals and tests of two groups compared, from the four noisy counts of `Difference`.

    The difference of risks is that of two means. Ratios are compared on the logarithm, to first
    order in the sampling error; a draw of the noise with a risk that has no logarithm says nothing.
    A person may have rows in both groups: the bound on the sampling variance holds all the same,
    and where person totals were measured their products over both groups are too.
    """

    rows: DifferenceIntervals
    totals: PersonVariance | None = None

    @property
    def range_widths(self) -> Floats:
        """(d,) of all values that the measures can have."""
        return self.rows.range_widths

    @property
    def _means(self) -> tuple[NoisyMean, NoisyMean]:
        return NoisyMean.of_trait(self.rows.answers), NoisyMean.of_trait(self.rows.answers, 2)

    def variances(self, slopes: Floats) -> Floats:
        """Of combinations (k, 2) of the shares, (k,), from person totals; nan where they are."""
        assert self.totals is not None
        known = ~np.isnan(slopes).any(axis=1)
        found = np.full(len(slopes), np.nan)
        found[known] = [self.totals.variance(self._means, row) for row in slopes[known].tolist()]
        return found

    def _law(self, measure: Measure) -> ConfidenceLaw:
        """Of the logarithm of a ratio."""
        (a, square_a, n_a), (b, square_b, n_b) = (mean.drawn for mean in self._means)
        odds = measure == "odds ratio"
        low, high = (np.minimum(a, b), np.maximum(a, b)) if odds else (np.minimum(a, b), a * 0)
        known = (low > 0) & (high < 1)
        a, b = np.where(known, a, 0.5), np.where(known, b, 0.5)
        centre = np.log(a / b) - (np.log((1 - a) / (1 - b)) if odds else 0.0)
        slopes = [1 / (p * (1 - p)) if odds else 1 / p for p in (a, b)]
        parts = [slopes[0] ** 2 * square_a, slopes[1] ** 2 * square_b]
        total = np.maximum(parts[0] + parts[1], 1e-300)
        error = total
        if self.totals is not None:
            error = self.totals.drawn(self._means, [slopes[0], -slopes[1]], total)
        df = total**2 / np.maximum(
            parts[0] ** 2 / (n_a - 1) + parts[1] ** 2 / (n_b - 1), 1e-300
        )  # fmt: skip
        return ConfidenceLaw(centre, np.where(known, np.sqrt(error), np.inf), df)

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits (d,), of the ratios in [0, inf]."""
        if method == "certified" or target == "table":
            return self.rows.conf_int(alpha, method, target)
        ends = [self._difference.interval(alpha, method, target)]
        for measure in MEASURES[1:]:
            law = self._law(measure)
            found = law.limits(alpha, -_FAR, _FAR) if law.reaches(alpha) else (-_FAR, _FAR)
            ends.append((_exp(found[0]), _exp(found[1])))
        low, high = np.array(ends).T
        return low[self.rows.chosen], high[self.rows.chosen]

    @property
    def _difference(self) -> Contrast:
        return Contrast(self._means, 0.0, 1.0, self.totals)

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits; noise-aware ones by Bonferroni's inequality."""
        if method == "certified" or target == "table":
            return self.rows.simultaneous(alpha, method, target)
        return self.conf_int(bonferroni(alpha, len(MEASURES)), method, target)

    def subset(self, chosen: slice) -> DifferenceOfPersons:
        """The same for some of the measures."""
        return replace(self, rows=self.rows.subset(chosen))

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each measure equals `value`; nan where that is not possible."""
        possible = [-1 <= value <= 1, 0 <= value < np.inf, 0 <= value < np.inf]
        return np.array([
            self.pvalue(measure, value, alternative) if fits else np.nan
            for measure, fits in zip(MEASURES, possible, strict=True)
        ][self.rows.chosen])  # fmt: skip

    def pvalue(self, measure: Measure, value: float, alternative: Alternative) -> float:
        """P-value of one measure."""
        if measure == MEASURES[0]:
            return self._difference.pvalue(value, alternative)
        at = np.log(value) if value > 0 else -_FAR
        return self._law(measure).pvalue(float(at), alternative)


_FAR = 700.0  # a logarithm whose exponential floats can hold


def _exp(value: float) -> float:
    if abs(value) >= _FAR:
        return 0.0 if value < 0 else np.inf
    return float(np.exp(value))
