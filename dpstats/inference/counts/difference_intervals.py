"""Intervals and tests of two groups compared, from the four noisy counts of `Difference`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.inference.counts.conditional import conditional_certified
from dpstats.inference.counts.group_counts import GroupCounts
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
    noise-aware one, with the law of the noise alone.
    """

    answers: Answers
    chosen: slice = field(default_factory=lambda: slice(None))

    @property
    def range_widths(self) -> Floats:
        """(d,) of all values that the measures can have: ratios have no bound."""
        return np.array([2.0, np.inf, np.inf])[self.chosen]

    @cached_property
    def groups(self) -> tuple[GroupCounts, GroupCounts]:
        """The counts of the two groups."""
        return GroupCounts.of(self.answers, 0), GroupCounts.of(self.answers, 2)

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits (d,), of the ratios in [0, inf]."""
        found, shares = None, self._shares(method, target)
        if shares is not None and alpha >= LEAST_COMPUTED:
            found = measure_interval(*shares, self.answers.rows.exact, alpha)
        # If every pair of risks is rejected, the certified interval can only cover more.
        low, high = self._certified(alpha, target) if found is None else found
        return low[self.chosen], high[self.chosen]

    def _shares(self, method: Method, target: Target) -> tuple[Share, Share] | None:
        """The risks whose law is inverted; None for certified boxes."""
        if target == "table":
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
        (p_low, p_high), (q_low, q_high) = (
            conditional_certified(
                group.yes, group.no, group.law_yes, group.law_no, each,
                n=self.answers.rows.exact, target=target,
            )
            for group in self.groups
        )  # fmt: skip
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
        return measure_pvalue(*self.groups, self.answers.rows.exact, measure, value, alternative)
