"""Ends of the interval of one question, for the private table and for the population."""

from __future__ import annotations

import numpy as np

from dpstats.analyses.questions import Interval, Question
from dpstats.arrays import Floats
from dpstats.bounds.consistent import Consistent
from dpstats.bounds.programs import Contradiction
from dpstats.corrected.means import chernoff_confint
from dpstats.corrected.proportions import clopper_pearson
from dpstats.error_rates import bonferroni

_ROUNDING = 1e-6  # of a count


class Ends:
    """Ends of the interval of one question over the tables that agree with a release."""

    def __init__(self, question: Question, tables: Consistent) -> None:
        self.question, self.program = question, tables.program
        self.above, self.below = tables.numerator, tables.denominator

    def interval(self, alpha: float) -> Interval:
        """Interval for the private table if alpha is 0, else for the population."""
        if alpha == 0:
            return self._of_table()
        if self.question.share:
            yes = self._counts(self.above)
            public = self.question.of_all and self.program.rows[0] == self.program.rows[1]
            n = self.program.rows[1]
            no = (n - yes[1], n - yes[0]) if public else self._counts(self.below - self.above)
            return _of_population(yes, no, alpha)
        if not np.isfinite(self.question.range[1]):
            return self._of_ratio(alpha)
        least, most = self.question.range
        size = self._least_rows()
        if size < 1 or least == most:
            return self.question.range
        ends = (np.array(self._of_table()) - least) / (most - least)
        low, high = chernoff_confint(ends[:1], ends[1:], size, alpha)
        return least + (most - least) * float(low[0]), least + (most - least) * float(high[0])

    def _of_table(self) -> Interval:
        rows = self.program.rows
        if self.question.of_all and rows[0] == rows[1]:
            low, high = self._sums(self.above)
            if self.question.share:
                low, high = _whole(low, high)
            return low / rows[0], high / rows[0]
        at_least = max(1.0, self._least_rows())
        low = self.program.least_ratio(self.above, self.below, at_least)
        high = -self.program.least_ratio(-self.above, self.below, at_least)
        return low, high

    def _of_ratio(self, alpha: float) -> Interval:
        """The ratio of two population shares: of the counts of either, and those of the others."""
        each, inside = bonferroni(alpha, 2), self.program.rows
        ends = []
        for part in (self.above, self.below):
            low, high = self._counts(part)
            others = max(inside[0] - high, 0.0), inside[1] - low
            ends.append(_of_population((low, high), others, each))
        (a, b), (c, d) = ends
        return a / d, b / c if c > 0 else np.inf

    def _least_rows(self) -> float:
        """The least number of rows that the denominator counts."""
        if self.question.of_all:
            return self.program.rows[0]
        return float(np.ceil(self.program.least_sum(self.below) - _ROUNDING))

    def _sums(self, values: Floats) -> Interval:
        return self.program.least_sum(values), -self.program.least_sum(-values)

    def _counts(self, values: Floats) -> Interval:
        """Bounds on a count."""
        low, high = _whole(*self._sums(values))
        return max(low, 0.0), high


def _of_population(yes: Interval, no: Interval, alpha: float) -> Interval:
    """A population share, for counts between bounds."""
    low_yes, high_yes, low_no, high_no = (np.array(end) for end in (*yes, *no))
    low, high = clopper_pearson(low_yes, high_yes, high_no, low_no, alpha)
    return float(low), float(high)


def _whole(low: float, high: float) -> Interval:
    """A count between two numbers."""
    low, high = np.ceil(low - _ROUNDING), np.floor(high + _ROUNDING)
    if low > high:
        raise Contradiction
    return float(low), float(high)
