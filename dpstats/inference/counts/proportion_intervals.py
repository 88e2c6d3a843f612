"""Intervals and tests of proportions: each from its own noisy count, or within one group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.corrected.proportions import proportion_confint
from dpstats.inference.counts.binomial import (
    Tail,
    proportion_interval,
    proportion_pvalue,
    within_counts,
)
from dpstats.inference.counts.conditional import (
    conditional_certified,
    conditional_interval,
    conditional_pvalue,
)
from dpstats.inference.counts.count_pivot import CountPivot
from dpstats.inference.counts.drawn_shares import DrawnShares
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.inference.counts.unequal_tails import shortest_between, shortest_tails
from dpstats.inference.joint_coverage import joint_level
from dpstats.inference.noisy_ratio import NoisyRatio
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.spending import LEAST_COMPUTED, LEAST_OF_COUNT, bonferroni, for_noise, split_for

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.measured.answers import Answers
    from dpstats.privacy.laws import NoiseLaw


SHARES = """\
A share of all rows has the widest interval at one half. Most cells of an uneven table are smaller
than even ones and have narrower intervals; larger cells have wider ones."""
_ROUNDING = 1e-6  # of a count
BOTH: tuple[Alternative, ...] = ("smaller", "larger")


@dataclass(frozen=True)
class ProportionIntervals:
    """Intervals and tests for d proportions, each from its own noisy count.

    Noise-aware: F_p(T + U) is continuous and decreases in p (Awan & Slavkovic 2018), so two
    root-finds have exact coverage. Certified: Clopper-Pearson at the ends of T +- q, q a quantile
    of the noise at a share of alpha fixed before looking. Where the number of rows is not public, a
    share of alpha is for a confidence set of it. Noise-aware intervals then invert T - p N, see
    `inference.counts.count_pivot`; certified ones are unions over the set. For the private table
    T - p N is noise alone, and no set is needed; see `inference.noisy_ratio`.

    With `unequal`, noise-aware intervals divide alpha so that they are shortest on average, see
    `inference.counts.unequal_tails`. For the private table that is so where n is public: away from
    the ends of [0, 1] a symmetric interval is the shortest.
    """

    answers: Answers
    tables: tuple[slice, ...] = ()
    unequal: bool = False
    preview_remark: ClassVar[str] = SHARES
    range_widths: ClassVar[float] = 1.0

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows."""
        return 0.0 if self.answers.rows.public else LEAST_OF_COUNT

    @property
    def shortest(self) -> ProportionIntervals:
        """The same with unequal tails; its simultaneous limits are Bonferroni's."""
        return replace(self, unequal=True)

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits for all d proportions; see `inference.joint_coverage`."""
        answers, d = self.answers, len(self.answers.sums)
        if self.unequal:
            return self.conf_int(bonferroni(alpha, d), method, target)
        if target == "table" and answers.with_count is not None and not answers.certain:
            return self.conf_int(bonferroni(alpha, d), method, target)
        of_rows = answers.rows.spent(alpha)
        sizes, alpha = answers.rows.bounds(of_rows), alpha - of_rows
        if target == "table":
            return self._shares(answers.sums, joint_noise_quantiles(answers, alpha), sizes)
        if method == "certified":
            beta = for_noise(alpha, certain=answers.certain)
            radius = joint_noise_quantiles(answers, beta)
            single = beta + bonferroni(alpha - beta, d)  # one box for all
            return _clopper_pearson(answers.sums, radius, sizes, single, beta)
        levels = np.full(d, bonferroni(alpha, d))
        pieces = self.tables or tuple(slice(f, f + 1) for f in range(d))
        for piece in pieces:
            levels[piece] = joint_level(answers.subset(piece), bonferroni(alpha, len(pieces)))
        return self._inverted(levels, sizes)

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays in [0, 1]."""
        answers, whole = self.answers, alpha
        of_rows = answers.rows.spent(alpha)
        sizes, alpha = answers.rows.bounds(of_rows), alpha - of_rows
        if target == "population" and method == "noise_aware":
            return self._inverted(np.full(len(answers.sums), alpha), sizes)
        low, high = np.zeros(len(answers.sums)), np.ones(len(answers.sums))
        for i, law in enumerate(answers.law_table):
            of_law = np.flatnonzero(answers.law_of == i)
            sums = answers.sums[of_law]
            if self.unequal and target == "table" and answers.rows.public:
                smoothed = sums + answers.uniforms[of_law]
                ends = _shortest_of_table(smoothed, answers.n, law, alpha)
            elif target == "table":  # the private count is T - Z, an integer from 0 to n
                ends = self._shares(sums, law.quantile(alpha), sizes)
            else:
                beta = split_for(answers.n, law, alpha)
                ends = _clopper_pearson(sums, law.quantile(beta), sizes, alpha, beta)
            low[of_law], high[of_law] = ends
        if target == "table":
            self._of_table(low, high, whole)
        return low, high

    def _of_table(self, low: Floats, high: Floats, alpha: float) -> None:
        """Replace limits (d,) for the private rows by those of the ratios of noisy counts."""
        answers, joint = self.answers, self.answers.with_count
        if joint is None or answers.certain or alpha < LEAST_COMPUTED:
            return
        for i, noise in enumerate(joint[0]):
            chosen = np.flatnonzero(joint[1] == i)
            sums, uniforms = answers.sums[chosen], answers.uniforms[chosen]
            ratio = NoisyRatio(noise, answers.rows.estimate, sums, uniforms)
            if chosen.size and ratio.computable:
                low[chosen], high[chosen] = ratio.interval(alpha)

    def _shares(
        self, sums: Floats, q: Floats | float, sizes: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Shares of the private rows whose counts are within q of the noisy ones."""
        sums = within_counts(sums, self.answers.n)
        low, high = np.clip((sums - q) / sizes[1], 0, 1), np.clip((sums + q) / sizes[0], 0, 1)
        return _of_counts(low, high, sizes[0]) if self.answers.rows.public else (low, high)

    def _inverted(self, levels: Floats, sizes: tuple[int, int]) -> tuple[Floats, Floats]:
        """Ends of levels (d,) that hold at every number of rows between two."""
        answers = self.answers
        low, high = np.zeros(len(answers.sums)), np.ones(len(answers.sums))
        for every, pivot in self._pivots(sizes):
            for alpha in np.unique(levels[every]).tolist():
                chosen = every[levels[every] == alpha]
                tail = self._tail(pivot.law, alpha, sizes)
                ends = pivot.interval(answers.sums[chosen], answers.uniforms[chosen], alpha, tail)
                low[chosen], high[chosen] = ends
        if answers.with_count is not None:
            return low, high
        smoothed = answers.sums + answers.uniforms
        for i, alpha in dict.fromkeys(zip(answers.law_of.tolist(), levels.tolist(), strict=True)):
            chosen = np.flatnonzero((answers.law_of == i) & (levels == alpha))
            law = answers.law_table[i]  # ends decrease in the number of rows
            tail = self._tail(law, alpha, sizes)
            found = {
                n: proportion_interval(smoothed[chosen], n, law, alpha, tail) for n in set(sizes)
            }
            low[chosen], high[chosen] = found[sizes[1]][0], found[sizes[0]][1]
        return low, high

    def _tail(self, law: NoiseLaw, alpha: float, sizes: tuple[int, int]) -> Tail | None:
        """How alpha is divided; None for equal tails."""
        if not self.unequal:
            return None
        if self.answers.rows.public:
            return shortest_tails(self.answers.n, law, alpha)
        return shortest_between(sizes, law, alpha)

    def _pivots(self, sizes: tuple[int, int]) -> Iterator[tuple[NDArray[np.intp], CountPivot]]:
        """Counts of one law, and their joint law with the number of rows where it was measured."""
        answers, joint = self.answers, self.answers.with_count
        if joint is None:
            return
        count = answers.rows.estimate
        within = max(count - sizes[0], sizes[1] - count)
        laws, law_of = joint
        for i in np.unique(law_of).tolist():
            chosen = np.flatnonzero(law_of == i)
            yield chosen, CountPivot(answers.law(int(chosen[0])), laws[i], count, sizes, within)

    def subset(self, chosen: slice) -> ProportionIntervals:
        """The same for some of the counts."""
        whole = tuple(piece for piece in self.tables if piece.stop <= (chosen.stop or 0))
        exact = whole and slice(0, whole[-1].stop, 1) == slice(*chosen.indices(chosen.stop))
        tables = whole if exact else ()
        return replace(self, answers=self.answers.subset(chosen), tables=tables)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that the proportion equals `value`; exact where n is public.

        Otherwise the largest at the ends of a confidence set of error 0.001 for n, plus that error.
        """
        if alternative == "two-sided":
            tails, sides = self._tails(value, read=True), 2
        else:
            tails, sides = self._tails(value, read=False)[[BOTH.index(alternative)]], 1
        found = sides * tails.min(axis=0) + self.least_pvalue
        return np.asarray(np.minimum(1, found), dtype=np.float64)

    def pvalues_of_limit(self, value: float, alternative: Alternative) -> Floats:
        """One-sided p-values (d,) that are dual to a limit, as half of a two-sided one is."""
        found = self._tails(value, read=True)[BOTH.index(alternative)] + self.least_pvalue
        return np.asarray(np.minimum(1, found), dtype=np.float64)

    def _tails(self, value: float, *, read: bool) -> Floats:
        """Lower and upper tails (2, d); of counts read as in `within_counts`, or as they are."""
        answers = self.answers
        sizes = answers.rows.bounds(self.least_pvalue)
        tails = np.ones((2, len(answers.sums)))
        for chosen, pivot in self._pivots(sizes):
            shares, u = np.full(chosen.size, value), answers.uniforms[chosen]
            t = pivot.read(answers.sums[chosen], u) if read else answers.sums[chosen]
            tails[:, chosen] = pivot.tails(t, u, shares)
        if answers.with_count is None:
            for f, t in enumerate(answers.sums + answers.uniforms):
                of_sizes = [
                    [
                        proportion_pvalue(counted, n, value, answers.law(f), side).item()
                        for side in BOTH
                    ]
                    for n in set(sizes)
                    for counted in [within_counts(t, n) if read else t]
                ]
                tails[:, f] = np.max(of_sizes, axis=0)
        return tails


def _shortest_of_table(t: Floats, n: int, law: NoiseLaw, alpha: float) -> tuple[Floats, Floats]:
    """Limits for the shares of the private rows, whose counts are integers from 0 to n."""
    tail = shortest_tails(n, law, alpha, sampled=False)
    return _of_counts(*proportion_interval(t, n, law, alpha, tail, sampled=False), n)


def _of_counts(low: Floats, high: Floats, n: int) -> tuple[Floats, Floats]:
    """The least and the largest share between two that are whole counts of n rows."""
    first, last = np.ceil(n * low - _ROUNDING) / n, np.floor(n * high + _ROUNDING) / n
    some = first <= last  # else the interval is between two counts
    return np.where(some, first, low), np.where(some, last, high)


def _clopper_pearson(
    sums: Floats, q: Floats | float, sizes: tuple[int, int], alpha: float, beta: float
) -> tuple[Floats, Floats]:
    """Certified limits from counts within q of the noisy ones, at every number of rows."""
    found = {
        n: proportion_confint(within_counts(sums, n) / n, q / n, n, alpha=alpha, beta=beta)
        for n in set(sizes)
    }
    return found[sizes[1]][0], found[sizes[0]][1]


@dataclass(frozen=True)
class GroupIntervals:
    """Intervals and tests for the prevalence within a group; see `inference.counts.conditional`.

    Where the two counts share noise, noise-aware ones are those of `inference.counts.drawn_shares`.
    For the private table itself both methods invert the law of the noise, see
    `inference.noisy_ratio`.
    """

    answers: Answers
    range_widths: ClassVar[float] = 1.0

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows of the group, or on draws."""
        return LEAST_OF_COUNT if self.drawn is None else self.drawn.least_pvalue

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """The same as `conf_int`: there is one parameter."""
        return self.conf_int(alpha, method, target)

    @cached_property
    def group(self) -> GroupCounts:
        """The counts of the group."""
        return GroupCounts.of(self.answers)

    @cached_property
    def drawn(self) -> DrawnShares | None:
        """Draws of the share where the two counts share noise."""
        return DrawnShares(self.answers) if self.answers.share_noise else None

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limit, two (1,) arrays in [0, 1]."""
        group, n = self.group, self.answers.rows.exact
        ratio = group.of_table if target == "table" and alpha >= LEAST_COMPUTED else None
        if ratio is not None:
            return ratio.interval(alpha)
        if method == "certified" or target == "table":
            low, high = conditional_certified(
                group.yes, group.no, group.law_yes, group.law_no, alpha, n=n, target=target
            )
            return np.atleast_1d(low), np.atleast_1d(high)
        if self.drawn is not None:
            return self.drawn.interval(alpha, partial(self.conf_int, alpha, "certified", target))
        ends = conditional_interval(group, alpha, n=n)
        return np.array(ends[:1]), np.array(ends[1:])

    def subset(self, chosen: slice) -> GroupIntervals:
        """The same: there is one parameter."""
        return self

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) of the hypothesis that the prevalence equals `value`."""
        return np.array([self.pvalue(value, alternative, self.least_pvalue)])

    pvalues_of_limit = pvalues

    def pvalue(self, value: float, alternative: Alternative, beta: float) -> float:
        """The same, with error beta for the number of rows."""
        if self.drawn is not None:
            return self.drawn.pvalue(0, value, alternative)
        n = self.answers.rows.exact
        return conditional_pvalue(self.group, value, alternative, n=n, beta=beta)
