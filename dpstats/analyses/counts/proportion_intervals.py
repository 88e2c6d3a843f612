"""Intervals and tests of proportions, each from its own noisy count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.counts.binomial import proportion_interval, proportion_pvalue, within_counts
from dpstats.arrays import Floats
from dpstats.checks import Alternative, Target
from dpstats.corrected.proportions import proportion_confint
from dpstats.error_rates import LEAST_COMPUTED, LEAST_OF_COUNT, bonferroni, for_noise, split_for
from dpstats.inference.joint_coverage import joint_level
from dpstats.inference.noisy_ratio import NoisyRatio
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.results.estimates import Estimated

if TYPE_CHECKING:
    from dpstats.inference.intervals import Ends


_ROUNDING = 1e-6  # of a count
BOTH: tuple[Alternative, ...] = ("smaller", "larger")


@dataclass(frozen=True)
class ProportionIntervals(Estimated):
    """Intervals and tests for d proportions, each from its own noisy count.

    Noise-aware: F_p(T + U) is continuous and decreases in p (Awan & Slavkovic 2018), so two
    root-finds have exact coverage. Where the number of rows N is measured beside T, T - p N is
    inverted instead; see `inference.noisy_ratio`. Where it is of a subgroup, a share of alpha is
    for a confidence set of it. Certified: Clopper-Pearson at the ends of T +- q, q a quantile of
    the noise at a share of alpha fixed before looking, at every number of rows in a confidence set.
    For the private table T - p N is noise alone, and no set is needed.
    """

    answers: Answers
    tables: tuple[slice, ...] = ()
    ranges: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __len__(self) -> int:
        return len(self.answers.sums)

    @property
    def estimate(self) -> Floats:
        """Unbiased shares (d,): noise can put them below 0 or above 1."""
        return self.answers.means

    @property
    def sampling_variance(self) -> Floats:
        """Variances (d,) of the sampling errors, the most that they can be for persons."""
        shares, rows = np.clip(self.answers.means, 0, 1), self.answers.rows
        return np.asarray(rows.rows_per_person * (shares * (1 - shares) / self.answers.n))

    @property
    def privacy_variance(self) -> Floats:
        """Variances (d,) of the noise: T / N moves by (Z - p Z_N) / n."""
        return self.answers.noise_of_shares(np.clip(self.answers.means, 0, 1))

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows."""
        if self._persons.rows.public or not len(self._others(self._counted(sampled=True))):
            return 0.0
        return LEAST_OF_COUNT

    @property
    def _persons(self) -> Answers:
        """Counts of independent units, of which noise-aware limits for the population are."""
        return self.answers.of_persons

    def _zero_where_impossible(self, low: Floats, high: Floats) -> Ends:
        """Limits (d,), both 0 of cells that cannot occur."""
        impossible = self.answers.impossible
        return np.where(impossible, 0.0, low), np.where(impossible, 0.0, high)

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits for all d proportions together; see `inference.joint_coverage`."""
        if target == "table":
            return self._joint_box(alpha, target)
        possible = max(1, len(self) - int(np.sum(self.answers.impossible)))
        levels = np.full(len(self), bonferroni(alpha, possible))
        pieces = self.tables or tuple(slice(f, f + 1) for f in range(len(self)))
        if self.answers.rows.rows_per_person > 1:  # cells of persons need not be multinomial
            pieces = ()
        for piece in pieces:
            level = joint_level(self.answers.subset(piece), bonferroni(alpha, len(pieces)))
            levels[piece] = level
        return self._inverted(levels)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits for all d proportions together: a box for all noise."""
        return self._without_totals._joint_box(alpha, target)

    def _joint_box(self, alpha: float, target: Target) -> Ends:
        answers, d = self.answers, len(self)
        if target == "table" and not len(self._others(self._counted(sampled=False))):
            return self.from_bounds(bonferroni(alpha, d), target)
        of_rows = answers.rows.spent(alpha)
        sizes, alpha = answers.rows.bounds(of_rows), alpha - of_rows
        if target == "table":
            radius = joint_noise_quantiles(answers, alpha)
            return self._zero_where_impossible(*self._shares(answers.sums, radius, sizes))
        beta = for_noise(alpha, bound_only=answers.bound_only)
        radius = joint_noise_quantiles(answers, beta)
        single = beta + bonferroni(alpha - beta, d)  # one box for all
        return self._zero_where_impossible(
            *_clopper_pearson(answers.sums, radius, sizes, single, beta)
        )

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays in [0, 1]."""
        if target == "table":
            return self.from_bounds(alpha, target)
        return self._inverted(np.full(len(self), alpha))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays in [0, 1]."""
        return self._without_totals.from_bounds(alpha, target)

    @property
    def _without_totals(self) -> ProportionIntervals:
        return replace(self, answers=self.answers.without_totals)

    def from_bounds(self, alpha: float, target: Target) -> Ends:
        """Limits (d,) from a bound on the noise of each count; they use what the answers use."""
        answers, whole = self.answers, alpha
        of_rows = answers.rows.spent(alpha)
        sizes, alpha = answers.rows.bounds(of_rows), alpha - of_rows
        low, high = np.zeros(len(answers.sums)), np.ones(len(answers.sums))
        for i, law in enumerate(answers.law_table):
            of_law = np.flatnonzero(answers.law_of == i)
            sums = answers.sums[of_law]
            if target == "table":  # the private count is T - Z, an integer from 0 to n
                ends = self._shares(sums, law.quantile(alpha), sizes)
            else:
                beta = split_for(answers.n, law, alpha)
                ends = _clopper_pearson(sums, law.quantile(beta), sizes, alpha, beta)
            low[of_law], high[of_law] = ends
        if target == "table" and whole >= LEAST_COMPUTED:
            for counts, ratio in self._counted(sampled=False):
                low[counts], high[counts] = ratio.interval(whole)
        return self._zero_where_impossible(low, high)

    def _counted(self, *, sampled: bool) -> list[tuple[NDArray[np.intp], NoisyRatio]]:
        """Counts whose noise has a known joint law with that of the number of rows.

        Only those for which this law can be inverted.
        """
        answers = self._persons if sampled else self.answers
        joint = answers.with_count
        if joint is None or answers.bound_only:
            return []
        ratios, (laws, law_of) = [], joint
        for i in np.unique(law_of).tolist():
            counts = np.flatnonzero(law_of == i)
            sums, uniforms = answers.sums[counts], answers.uniforms[counts]
            ratio = NoisyRatio(laws[i], answers.rows.estimate, sums, uniforms, sampled)
            if ratio.computable:
                ratios.append((counts, ratio))
        return ratios

    def _others(self, counted: list[tuple[NDArray[np.intp], NoisyRatio]]) -> NDArray[np.intp]:
        """Places of the counts that can occur and are not among these."""
        settled = [np.flatnonzero(self.answers.impossible), *(counts for counts, _ in counted)]
        return np.setdiff1d(np.arange(len(self)), np.concatenate(settled))

    def _shares(
        self, sums: Floats, q: Floats | float, sizes: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Shares of the private rows whose counts are within q of the noisy ones."""
        sums, n = within_counts(sums, self.answers.n), sizes[0]
        low, high = np.clip((sums - q) / sizes[1], 0, 1), np.clip((sums + q) / n, 0, 1)
        if not self.answers.rows.public:
            return low, high
        first, last = np.ceil(n * low - _ROUNDING) / n, np.floor(n * high + _ROUNDING) / n
        some = first <= last  # else the interval is between two counts
        return np.where(some, first, low), np.where(some, last, high)

    def _inverted(self, levels: Floats) -> Ends:
        """Limits (d,) of levels (d,) for the population."""
        answers = self._persons
        low, high = np.zeros(len(answers.sums)), np.ones(len(answers.sums))
        counted = self._counted(sampled=True)
        for counts, ratio in counted:
            for alpha in np.unique(levels[counts]).tolist():
                alike = levels[counts] == alpha
                own = replace(ratio, t=ratio.t[alike], u=ratio.u[alike])
                low[counts[alike]], high[counts[alike]] = own.interval(alpha)
        smoothed, others = answers.sums + answers.uniforms, self._others(counted)
        pairs = zip(answers.law_of[others].tolist(), levels[others].tolist(), strict=True)
        for i, alpha in dict.fromkeys(pairs):
            chosen = others[(answers.law_of[others] == i) & (levels[others] == alpha)]
            of_rows, law = answers.rows.spent(alpha), answers.law_table[i]
            limits = {  # they decrease in the number of rows
                n: proportion_interval(smoothed[chosen], n, law, alpha - of_rows)
                for n in set(answers.rows.bounds(of_rows))
            }
            low[chosen], high[chosen] = limits[max(limits)][0], limits[min(limits)][1]
        return self._zero_where_impossible(low, high)

    def subset(self, chosen: slice) -> ProportionIntervals:
        """Intervals of some of the counts."""
        whole = tuple(piece for piece in self.tables if piece.stop <= (chosen.stop or 0))
        exact = whole and slice(0, whole[-1].stop, 1) == slice(*chosen.indices(chosen.stop))
        tables = whole if exact else ()
        return replace(self, answers=self.answers.subset(chosen), tables=tables)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that the proportion equals `value`; exact where n is public.

        Of a subgroup the largest at the ends of a confidence set of error 0.001 for n, plus that
        error.
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
        answers = self._persons
        tails = np.ones((2, len(answers.sums)))
        counted, smoothed = self._counted(sampled=True), answers.sums + answers.uniforms
        for counts, ratio in counted:
            tails[:, counts] = np.maximum(ratio.tails(value, read=read), LEAST_COMPUTED)
        for f in self._others(counted).tolist():
            t = smoothed[f]
            of_sizes = [
                [proportion_pvalue(count, n, value, answers.law(f), side).item() for side in BOTH]
                for n in set(answers.rows.bounds(self.least_pvalue))
                for count in [within_counts(t, n) if read else t]
            ]
            tails[:, f] = np.max(of_sizes, axis=0)
        lower = LEAST_COMPUTED if value > 0 else 1.0
        return np.where(self.answers.impossible, np.array([[lower], [1.0]]), tails)


def _clopper_pearson(
    sums: Floats, q: Floats | float, sizes: tuple[int, int], alpha: float, beta: float
) -> tuple[Floats, Floats]:
    """Certified limits from counts within q of the noisy ones, at every number of rows."""
    found = {
        n: proportion_confint(within_counts(sums, n) / n, q / n, n, alpha=alpha, beta=beta)
        for n in set(sizes)
    }
    return found[sizes[1]][0], found[sizes[0]][1]
