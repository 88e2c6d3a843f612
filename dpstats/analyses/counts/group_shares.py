"""Shares in one group of unknown size, or in two groups compared, from noisy counts.

T_A = X + Z_A counts the rows of a group with a trait, T_C = (N - X) + Z_C those without; given the
size N, X ~ Binomial(N, p). N is never taken as known. Draws of the noise give possible counts
without it, and these draws of p; the equations are those of "Shares in groups" in
docs/explanation/inference/shares-and-tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from dpstats.analyses.counts.binomial import within_counts
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.corrected.proportions import clopper_pearson
from dpstats.error_rates import LEAST_COMPUTED, bonferroni, for_noise, split_for
from dpstats.inference.intervals import (
    MANY_DRAWS,
    Ends,
    limits_of_draws,
    pvalue_of_draws,
    with_far_tails,
)
from dpstats.inference.noisy_ratio import NoisyRatio, joint_noise
from dpstats.inference.simulation import calibration_seed, draw_evenly
from dpstats.results.estimates import Estimated, OneParameter

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.privacy.laws import NoiseLaw
    from dpstats.privacy.weighted_noise import JointNoise


Measure = Literal["difference", "ratio", "odds ratio"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


def measure_of(p: Floats, q: Floats, measure: Measure) -> Floats:
    """A measure of two risks; inf where it has no bound, nan where it is not defined (0/0)."""
    if measure == "difference":
        return np.asarray(p - q, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if measure == "ratio":
            return np.asarray(p / q, dtype=np.float64)
        return np.asarray(p * (1 - q) / (q * (1 - p)), dtype=np.float64)


def limits_of_measures(p: Ends, q: Ends) -> Ends:
    """Least and largest measures (3,) of two risks between limits, two (1,) arrays for each.

    All rise with p and fall with q; where a limit is 0/0 it is zero or infinite.
    """
    (p_low, p_high), (q_low, q_high) = p, q
    low = np.concatenate([measure_of(p_low, q_high, measure) for measure in MEASURES])
    high = np.concatenate([measure_of(p_high, q_low, measure) for measure in MEASURES])
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), np.inf, high)


def measure_gradients(p: float, q: float) -> Floats:
    """Derivatives (3, 2) of the measures by both risks; nan where a measure is not finite."""
    rows = [(1.0, -1.0), (np.nan, np.nan), (np.nan, np.nan)]
    if q > 0:
        rows[1] = (1 / q, -p / q**2)
        if p < 1:
            rows[2] = ((1 - q) / q / (1 - p) ** 2, -p / (1 - p) / q**2)
    return np.array(rows)


_NO_ROWS = 1e-9


def certified_share(
    yes: Floats,
    no: Floats,
    laws: tuple[NoiseLaw, NoiseLaw],
    errors: tuple[float, float],
    n: int | None,
    target: Target,
) -> tuple[Floats, Floats]:
    """Limits from boxes for two counts (m,).

    `errors` are alpha and the part of it that is for the box, and `n` the most rows of a group.
    """
    alpha, beta = errors
    most = np.inf if n is None else float(n)
    each = bonferroni(beta, 2)
    q_yes, q_no = (law.quantile(each) for law in laws)
    yes, no = np.clip(yes, 0, most), np.clip(no, 0, most)  # so that no box ends there by its noise
    least_yes, least_no = np.clip(yes - q_yes, 0, most), np.clip(no - q_no, 0, most)
    most_yes = np.maximum(least_yes, np.minimum(yes + q_yes, most - least_no))
    most_no = np.maximum(least_no, np.minimum(no + q_no, most - least_yes))
    if target == "population":
        return clopper_pearson(least_yes, most_yes, most_no, least_no, alpha - beta)
    low = least_yes / np.maximum(least_yes + most_no, 1)
    high = np.where(least_no > 0, most_yes / np.maximum(most_yes + least_no, 1), 1.0)
    return low, high


@dataclass(frozen=True)
class DrawnShares(Cached):
    """The share of one group, or the three measures of the shares of two, by draws of the noise."""

    answers: Answers  # of each group the rows with the trait, then those without

    def limits(self, alpha: float, *, sampled: bool = True) -> tuple[Floats, Floats]:
        """Ends (d,) between which all but alpha/2 of the draws on either side lie.

        Of the population where rows are `sampled`, else of the private table.
        """
        draws = self._once(("sorted", sampled), lambda: np.sort(self._measures(sampled)))
        largest = np.max(draws, axis=1, where=np.isfinite(draws), initial=0)  # no lower end is inf
        low, high = limits_of_draws(draws.T, alpha)
        return np.minimum(low, largest), high

    def pvalue(self, i: int, value: float, alternative: Alternative) -> float:
        """P-value that parameter number i of the population equals `value`, at least 1e-9.

        It is at most alpha exactly where the interval excludes the value, down to a level beyond
        which lie `FEWEST` draws. From there the tail is that of eq. 3.
        """
        return pvalue_of_draws(self._contrast(i, value), alternative)

    def _shares(self, sampled: bool) -> list[Floats]:
        """Draws (MANY_DRAWS,) of the share of each group."""
        return [share for share, _ in self._once(sampled, lambda: self._drawn(sampled))]

    def _drawn(self, sampled: bool) -> list[tuple[Floats, Floats]]:
        """Draws (MANY_DRAWS,) of the share of each group, and of its size."""
        answers = self.answers
        rng = np.random.default_rng(calibration_seed(answers, answers.names[0]))
        noise = np.zeros((len(answers.sums), MANY_DRAWS))
        for weights, law in answers.noise_parts:
            drawn, used = draw_evenly(law, MANY_DRAWS, rng), np.flatnonzero(weights)
            noise[used] += np.outer(weights[used], drawn)
        most = answers.rows.exact or np.inf
        sums = within_counts(answers.sums, most)[:, np.newaxis]
        counts = np.clip(sums - noise, 0, most)  # (1)
        draws = []
        for f in range(0, len(counts), 2):
            yes, no = counts[f : f + 2]
            certain = GroupIntervals(answers.subset(slice(f, f + 2))).certain
            share = _share_of(yes, no, rng, sampled=sampled)
            draws.append((share if certain is None else np.full(MANY_DRAWS, certain), yes + no))
        return draws

    def _measures(self, sampled: bool) -> Floats:
        """Draws (d, MANY_DRAWS) of the parameters; 0/0 counts one half at either end."""
        shares = self._shares(sampled)
        if len(shares) == 1:
            return np.array(shares)
        first, second = shares
        measures = np.array([measure_of(first, second, measure) for measure in MEASURES])
        return np.where(np.isnan(measures), np.where(_EITHER, np.inf, 0.0), measures)

    def _contrast(self, i: int, value: float) -> Floats:
        """Contrast of drawn counts, negative where parameter i is below a value."""
        (first, size), *others = self._once(True, lambda: self._drawn(True))
        if not others:
            return (first - value) * np.maximum(size, _NO_ROWS)
        ((second, other),) = others
        size = np.maximum(size * other / np.maximum(size + other, _NO_ROWS), _NO_ROWS)
        if MEASURES[i] == "difference":
            return (first - second - value) * size
        if MEASURES[i] == "ratio":
            contrast, unknown = first - value * second, (first == 0) & (second == 0)
        else:
            contrast = first * (1 - second) - value * second * (1 - first)
            unknown = (first == second) & ((first == 0) | (first == 1))
        return np.where(unknown, np.where(_EITHER, 1.0, -1.0), contrast) * size


_EITHER = np.random.default_rng(0).permutation(np.arange(MANY_DRAWS) % 2) > 0


def _share_of(yes: Floats, no: Floats, rng: np.random.Generator, *, sampled: bool) -> Floats:
    """Draws of a share from draws of its two counts, at least 0."""
    either = rng.permutation(np.arange(MANY_DRAWS) % 2)
    if not sampled:
        return np.where(yes + no > 0, yes / np.maximum(yes + no, 1e-300), either)
    a, b = yes + either, no + 1 - either  # (2)
    inside = rng.beta(np.maximum(a, 1e-9), np.maximum(b, 1e-9))
    return np.where(a <= 0, 0.0, np.where(b <= 0, 1.0, inside))


@dataclass(frozen=True)
class GroupIntervals(OneParameter):
    """The share of one group, from its noisy counts with and without a trait.

    Noise-aware ones are read off draws; where a person may have several rows, of counts of persons.
    For the private table itself both methods invert the law of the noise, see
    `inference.noisy_ratio`.
    """

    ranges: ClassVar[tuple[float, float]] = (0.0, 1.0)

    answers: Answers  # of the rows with the trait, then those without

    @property
    def observed_size(self) -> float:
        """Noisy number of rows in the group."""
        return float(self.answers.sums.sum())

    @cached_property
    def certain(self) -> float | None:
        """The share where rules between columns determine it: 0 or 1."""
        with_trait, without = self.answers.impossible
        if with_trait and without:  # no row can be in the group
            return None
        return 0.0 if with_trait else 1.0 if without else None

    @property
    def estimate(self) -> float:
        """The share, in [0, 1]; one half where the noisy group is empty."""
        if self.certain is not None:
            return self.certain
        size = self.observed_size
        return float(np.clip(self.answers.sums[0] / size, 0, 1)) if size > 0 else 0.5

    @property
    def size(self) -> float:
        """Estimate of the number of rows in the group, from 1 to n."""
        return min(max(self.observed_size, 1.0), float(self.answers.n))

    @cached_property
    def noise(self) -> JointNoise:
        """Law of the noise on the count with the trait and on the size."""
        return joint_noise((w[0], w.sum(), law) for w, law in self.answers.noise_parts)

    @property
    def size_noise(self) -> float:
        """Standard deviation of the noise on the size, in rows."""
        return float(np.sqrt(self.noise.moments[2]))

    @property
    def hidden_by_noise(self) -> bool:
        """True if the group is small relative to the noise: use the interval only."""
        return self.observed_size <= 2 * self.size_noise

    @property
    def sampling_variance(self) -> float:
        """Variance of its sampling error, the most that it can be for persons with several rows."""
        independent = self.estimate * (1 - self.estimate) / self.size
        return self.answers.rows.rows_per_person * independent

    @property
    def privacy_variance(self) -> float:
        """Variance of its noise."""
        return max(float(self.noise.variance(self.estimate)), 0.0) / self.size**2

    @property
    def of_table(self) -> NoisyRatio | None:
        """The share among the private rows themselves, if it is to be had from one law.

        Its uniform is the difference of the two modulo one: exchanged counts have its opposite.
        Counts that share noise have one uniform.
        """
        if self.certain is not None:
            return None
        u = self.answers.uniforms
        shift = u[0] - (0.0 if self.answers.share_noise else u[1])
        uniform = np.array([shift - round(shift)])
        return NoisyRatio.of(self.noise.parts, self.observed_size, self.answers.sums[:1], uniform)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [0, 1]: for the population from a box for the two counts.

        Both counts are within their quantiles at beta/2 with probability 1 - beta, also where they
        share noise (Bonferroni). On that event the Clopper-Pearson interval of the true counts,
        valid at alpha - beta given any N, is inside the union over the box, whose ends are at two
        corners. beta is that for a group of a quarter of a public number of rows. For the private
        table the interval of `of_table`, or the extremes of the ratio over the box at beta = alpha.
        """
        ratio = self.of_table if target == "table" and alpha >= LEAST_COMPUTED else None
        if ratio is not None:
            return ratio.interval(alpha)
        if self.certain is not None:
            return np.array([self.certain]), np.array([self.certain])
        n, laws = self.answers.rows.exact, (self.answers.law(0), self.answers.law(1))
        if target == "table":
            beta = alpha
        elif n is None:
            beta = for_noise(alpha, bound_only=self.answers.bound_only)
        else:
            beta = split_for(n / 4, max(laws, key=lambda law: law.variance), alpha)
        yes, no = self.answers.sums[:1], self.answers.sums[1:]
        return certified_share(yes, no, laws, (alpha, beta), n, target)

    @cached_property
    def _drawn(self) -> DrawnShares:
        return DrawnShares(self.answers.of_persons)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (1,) arrays in [0, 1]."""
        if target == "table":
            return self.certified(alpha, target)
        of_persons = GroupIntervals(self.answers.of_persons)  # used where the draws end
        certified = partial(of_persons.certified, alpha, target)
        return with_far_tails(self._drawn.limits(alpha), alpha / 2, MANY_DRAWS, certified)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-value (1,) of the hypothesis that the share equals `value`."""
        return np.array([self._drawn.pvalue(0, value, alternative)])


@dataclass(frozen=True)
class DifferenceIntervals(Estimated):
    """Intervals and tests of the three measures from the four noisy counts of `Difference`.

    Noise-aware ones are read off draws, also those for the private table; for the population of
    counts of persons where one may have several rows. Certified: both shares
    are in their certified intervals at alpha/2 each, and a measure lies between its extremes there,
    which are at corners.
    """

    answers: Answers
    chosen: slice = field(default_factory=lambda: slice(None))

    def __len__(self) -> int:
        return len(MEASURES[self.chosen])

    @property
    def ranges(self) -> Ends:
        """Least and largest values (d,) that the measures can have: ratios have no bound."""
        return np.array([-1.0, 0.0, 0.0])[self.chosen], np.array([1.0, np.inf, np.inf])[self.chosen]

    @cached_property
    def _drawn(self) -> DrawnShares:
        return DrawnShares(self.answers.of_persons)

    @cached_property
    def _of_table(self) -> DrawnShares:
        return DrawnShares(self.answers)

    @cached_property
    def groups(self) -> tuple[GroupIntervals, GroupIntervals]:
        """The two groups."""
        first, second = (GroupIntervals(self.answers.subset(slice(f, f + 2))) for f in (0, 2))
        return first, second

    @cached_property
    def _slopes(self) -> Floats:
        """Derivatives (3, 2) of the measures by both risks; nan where a measure is not finite."""
        first, second = self.groups
        return measure_gradients(first.estimate, second.estimate)

    @property
    def estimate(self) -> Floats:
        """Measures (d,) of the two risks; 0/0 shows no difference, and its intervals are valid."""
        p, q = (np.array(group.estimate) for group in self.groups)
        measures = np.array([measure_of(p, q, measure) for measure in MEASURES])
        return np.where(np.isnan(measures), 1.0, measures)[self.chosen]

    @property
    def sampling_variance(self) -> Floats:
        """Variances (d,) of the sampling errors, infinite for a ratio to zero."""
        sampling = self._sampling_variances()
        return np.where(np.isnan(self._slopes).any(axis=1), np.inf, sampling)[self.chosen]

    def _sampling_variances(self) -> Floats:
        of_risks = np.array([group.sampling_variance for group in self.groups])
        return np.asarray(self._slopes**2 @ of_risks)

    @property
    def privacy_variance(self) -> Floats:
        """Variances (d,) of the noise in the estimates."""
        noise = self.noise_variances(self._slopes)
        return np.where(np.isnan(self._slopes).any(axis=1), 0.0, noise)[self.chosen]

    def noise_variances(self, slopes: Floats) -> Floats:
        """Variances (k,) of the noise on combinations (k, 2) of the two estimates."""
        of_risks = np.zeros((2, 4))
        for i, group in enumerate(self.groups):
            of_risks[i, 2 * i : 2 * i + 2] = (
                np.array([1 - group.estimate, -group.estimate]) / group.size
            )
        along = slopes @ of_risks
        return np.asarray(np.sum((along @ self.answers.noise_covariance) * along, axis=1))

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), of the ratios in [0, inf]."""
        drawn, answers = self._drawn, self.answers.of_persons
        if target == "table":
            drawn, answers = self._of_table, self.answers
        ends = drawn.limits(alpha, sampled=target == "population")
        certified = partial(DifferenceIntervals(answers).certified, alpha, target)
        low, high = with_far_tails(ends, alpha / 2, MANY_DRAWS, certified)
        return low[self.chosen], high[self.chosen]

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), which hold jointly; of the ratios in [0, inf]."""
        each = bonferroni(alpha, len(self.groups))
        low, high = limits_of_measures(*(group.certified(each, target) for group in self.groups))
        return low[self.chosen], high[self.chosen]

    joint_certified = certified

    def subset(self, chosen: slice) -> DifferenceIntervals:
        """Intervals of some of the measures, from the same draws."""
        some = replace(self, chosen=chosen)
        some.__dict__.update(_drawn=self._drawn, _of_table=self._of_table)
        return some

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each measure equals `value`; nan where only others can."""
        possible = [-1 <= value <= 1, 0 <= value < np.inf, 0 <= value < np.inf]
        pairs = zip(MEASURES[self.chosen], possible[self.chosen], strict=True)
        return np.array([
            self.pvalue(one, value, alternative) if fits else np.nan for one, fits in pairs
        ])  # fmt: skip

    def pvalue(self, measure: Measure, value: float, alternative: Alternative) -> float:
        """P-value of one measure."""
        return self._drawn.pvalue(MEASURES.index(measure), value, alternative)
