"""Intervals and tests of two groups compared, from the four noisy counts of `Difference`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.inference.counts.drawn_shares import DrawnShares
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.inference.counts.proportion_intervals import GroupIntervals
from dpstats.inference.counts.risk_measures import MEASURES, Measure, measure_of
from dpstats.inference.counts.two_risks import Share, measure_interval, measure_pvalue
from dpstats.spending import LEAST_COMPUTED, bonferroni

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.measured.answers import Answers


@dataclass(frozen=True)
class DifferenceIntervals:
    """Intervals and tests of the three measures from four noisy counts.

    Noise-aware: see `inference.counts.two_risks`; valid whatever the sizes of the groups.
    Certified: both risks are in their certified intervals at alpha/2 each, and a measure lies
    between its extremes there, which are at corners. For the private table both methods are the
    noise-aware one, with the law of the noise alone. Where counts share noise, noise-aware ones are
    those of `inference.counts.drawn_shares`, and only they.
    """

    answers: Answers
    chosen: slice = field(default_factory=lambda: slice(None))

    @property
    def range_widths(self) -> Floats:
        """(d,) of all values that the measures can have: ratios have no bound."""
        return np.array([2.0, np.inf, np.inf])[self.chosen]

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on draws of the noise."""
        return 0.0 if self.drawn is None else self.drawn.least_pvalue

    @cached_property
    def drawn(self) -> DrawnShares | None:
        """Draws of the measures where counts share noise."""
        return DrawnShares(self.answers) if self.answers.share_noise else None

    @cached_property
    def groups(self) -> tuple[GroupCounts, GroupCounts]:
        """The counts of the two groups."""
        return GroupCounts.of(self.answers, 0), GroupCounts.of(self.answers, 2)

    def noise_variances(self, slopes: Floats) -> Floats:
        """Variances (k,) of the noise on combinations (k, 2) of the two estimates."""
        of_risks = np.zeros((2, 4))
        for i, group in enumerate(self.groups):
            size = group.size(self.answers.n)
            of_risks[i, 2 * i : 2 * i + 2] = np.array([1 - group.risk, -group.risk]) / size
        along = slopes @ of_risks
        return np.asarray(np.sum((along @ self.answers.noise_covariance) * along, axis=1))

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits (d,), of the ratios in [0, inf]."""
        if self.drawn is not None and method == "noise_aware":
            certified = partial(self._certified, alpha, target)
            low, high = self.drawn.interval(alpha, certified, sampled=target == "population")
            return low[self.chosen], high[self.chosen]
        found, shares = None, self._shares(method, target)
        if shares is not None and alpha >= LEAST_COMPUTED:
            found = measure_interval(*shares, self.answers.rows.exact, alpha)
        # If every pair of risks is rejected, the certified interval can only cover more.
        low, high = self._certified(alpha, target) if found is None else found
        return low[self.chosen], high[self.chosen]

    def _shares(self, method: Method, target: Target) -> tuple[Share, Share] | None:
        """The risks whose law is inverted; None for certified boxes."""
        if target == "table" and self.drawn is None:
            first, second = (group.of_table for group in self.groups)
            return None if first is None or second is None else (first, second)
        return self.groups if method == "noise_aware" else None

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits: the certified ones are; otherwise by Bonferroni."""
        if self._shares(method, target) is None:
            return self.conf_int(alpha, method, target)
        return self.conf_int(bonferroni(alpha, len(MEASURES)), method, target)

    def _certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        each = bonferroni(alpha, len(self.groups))
        pairs = (GroupIntervals(self.answers.subset(slice(f, f + 2))) for f in (0, 2))
        (p_low, p_high), (q_low, q_high) = (
            np.concatenate(pair.conf_int(each, "certified", target)) for pair in pairs
        )
        low = np.array([measure_of(p_low, q_high, measure) for measure in MEASURES])
        high = np.array([measure_of(p_high, q_low, measure) for measure in MEASURES])
        # 0/0: the other risk alone gives no bound
        return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), np.inf, high)

    def subset(self, chosen: slice) -> DifferenceIntervals:
        """The same for some of the measures."""
        return replace(self, chosen=chosen)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each measure equals `value`; nan where that is not possible."""
        possible = [-1 <= value <= 1, 0 <= value < np.inf, 0 <= value < np.inf]
        return np.array(
            [
                self.pvalue(measure, value, alternative) if fits else np.nan
                for measure, fits in zip(MEASURES, possible, strict=True)
            ][self.chosen]
        )

    def pvalue(self, measure: Measure, value: float, alternative: Alternative) -> float:
        """P-value of one measure, valid whatever the sizes of the groups."""
        if self.drawn is not None:
            return self.drawn.pvalue(MEASURES.index(measure), value, alternative)
        return measure_pvalue(*self.groups, self.answers.rows.exact, measure, value, alternative)
