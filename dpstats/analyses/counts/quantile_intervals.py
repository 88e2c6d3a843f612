"""Intervals and tests for quantiles, from the distribution function at edges or values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.counts.binomial import within_counts
from dpstats.analyses.counts.group_shares import GroupIntervals
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.error_rates import splits_of_band
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals
from dpstats.inference.simulation import draw_noise
from dpstats.measured.answers import joint_noise_quantiles

if TYPE_CHECKING:
    from dpstats.checks import Method, Target
    from dpstats.inference.intervals import Ends
    from dpstats.measured.answers import Answers
    from dpstats.schema import Number


@dataclass(frozen=True)
class QuantileIntervals(Intervals, Cached):
    """Intervals and tests for quantiles by the distribution function F at the edges.

    The quantile at t, inf{x: F(x) >= t}, is in bin j only if F_j <= t <= F_j+1, F_j the mass of
    the first j bins. From the lowest bin upwards, bin j - 1 is excluded as long as the upper limit
    of F_j is below t; from the highest downwards, bin j as long as the lower limit is above t. The
    first false rejection from below can only be at the first j with F_j >= t (a fixed sequence
    of tests), so its error is that of one one-sided limit, alpha/2, and so from above.
    """

    answers: Answers
    number: Number
    probabilities: tuple[float, ...]

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows."""
        return ProportionIntervals(self.answers).least_pvalue

    def counts(self, method: Method, target: Target) -> Answers:
        """The answers; counts of persons where the sampling of these is inferred."""
        return self.answers.of_persons if _sampled(method, target) else self.answers

    @property
    def discrete(self) -> bool:
        """Whether bins are single declared values."""
        return bool(self.number.values) and not self.number.edges

    @cached_property
    def cuts(self) -> Floats:
        """(bins + 1,) bounds and edges, or the (bins,) declared values."""
        number = self.number
        if self.discrete:
            return np.array(number.values, dtype=np.float64)
        return np.array([number.low, *number.edges, number.high], dtype=np.float64)

    @property
    def edges(self) -> Floats:
        """The edges, or the declared values but the last: where the answers are."""
        return self.cuts[:-1] if self.discrete else self.cuts[1:-1]

    @property
    def range_widths(self) -> float:
        """Distance of the bounds."""
        return float(np.ptp(self.cuts))

    @cached_property
    def fitted(self) -> Floats:
        """(bins + 1,) nearest increasing distribution function, from 0 to 1."""
        from scipy import optimize

        increasing = optimize.isotonic_regression(self.answers.means).x
        return np.concatenate([[0.0], np.clip(increasing, 0, 1), [1.0]])

    def estimate(self, probability: float) -> tuple[float, float, float]:
        """Quantile, sampling and privacy variance; linear inside a bin, infinite for values.

        Delta method: the variance of F at the estimate, over the squared density of its bin. The
        position of the quantile inside the bin is not measured: add the variance of a uniform law.
        """
        j = int(np.searchsorted(self.fitted[:-1], probability, side="left")) - 1  # F_j < p <= F_j+1
        below, above = self.fitted[j], self.fitted[j + 1]
        if self.discrete:
            return float(self.cuts[j]), np.inf, 0.0
        share = (probability - below) / (above - below)
        low, high = self.cuts[j], self.cuts[j + 1]
        weights = np.zeros(len(self.fitted))
        weights[j], weights[j + 1] = 1 - share, share
        mass, inner = self.fitted, weights[1:-1]
        covariance = np.minimum.outer(mass, mass) - np.outer(mass, mass)
        sampling = weights @ covariance @ weights / self.answers.of_persons.n
        privacy = self._noise_of(inner, probability) / self.answers.n**2
        slope = ((high - low) / (above - below)) ** 2
        place = (high - low) ** 2 / 12
        estimate = float(low + share * (high - low))
        return estimate, float(sampling * slope + place), float(privacy * slope)

    def _noise_of(self, weights: Floats, probability: float) -> float:
        """Variance of the noise on a combination of the counts, less a share of the rows."""
        return self.answers.noise_less_rows(weights, probability)

    def of_edges(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends (edges,) of the distribution function at every edge, computed once."""
        whole = ProportionIntervals(self.counts(method, target))
        return self._once((alpha, method, target), lambda: whole.conf_int(alpha, method, target))

    def bins(self, low: Floats, high: Floats) -> NDArray[np.int64]:
        """(d, 2) first and last bin of each quantile, from limits (edges,) of F at the edges."""
        found = []
        for probability in self.probabilities:
            below, above = high < probability, low > probability
            rejected = np.append(below, False), np.append(above[::-1], False)
            first, left_out = (int(np.argmin(run)) for run in rejected)
            found.append((first, len(below) - left_out))
        return np.array(found)

    def _limits(self, low: Floats, high: Floats) -> Ends:
        first, last = self.bins(low, high).T
        return self.cuts[first], self.cuts[last + (0 if self.discrete else 1)]

    def __len__(self) -> int:
        return len(self.probabilities)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), in original units: edges, bounds or declared values."""
        return self._limits(*self.of_edges(alpha, "noise_aware", target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), in original units."""
        return self._limits(*self.of_edges(alpha, "certified", target))

    def subset(self, chosen: slice) -> QuantileIntervals:
        """Intervals of some of the quantiles."""
        return replace(self, probabilities=self.probabilities[chosen])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that the quantile equals `value`, by F at the two ends of its bin.

        Exact for a quantile above (below) the bin; 1 if the bounds of F there are 0 and 1.
        """
        j = self._bin_of(value)
        return np.array([self._pvalue(j, p, alternative) for p in self.probabilities])

    def _pvalue(self, j: int, probability: float, alternative: Alternative) -> float:
        def pvalue(j: int, side: Alternative) -> float:
            edge = self._of_edge(j)
            of = edge.pvalues_of_limit if alternative == "two-sided" else edge.pvalues
            return float(of(probability, side)[0])

        larger = smaller = 1.0  # evidence that F at the upper end < p, and at the lower end > p
        if j < self.number.value_bins - 1:
            larger = pvalue(j, "smaller")
        if j > 0:
            smaller = pvalue(j - 1, "larger")
        if alternative == "two-sided":
            return min(1.0, 2 * min(larger, smaller))
        return larger if alternative == "larger" else smaller

    def _of_edge(self, j: int) -> ProportionIntervals | GroupIntervals:
        """The distribution function at the end of bin j, of the population."""
        return ProportionIntervals(self.answers.of_persons.subset(slice(j, j + 1)))

    def _bin_of(self, value: float) -> int:
        if self.discrete:
            if value not in self.cuts:
                raise RequestError(f"{value:g} is not a declared value of {self.number.name!r}")
            return int(np.searchsorted(self.cuts, value))
        if not self.cuts[0] <= value <= self.cuts[-1]:
            raise RequestError(f"{value:g} is outside the bounds of {self.number.name!r}")
        side = "right" if self.number.closed == "left" else "left"
        return int(np.searchsorted(self.cuts[1:-1], value, side=side))  # type: ignore[call-overload]


@dataclass(frozen=True)
class GroupQuantileIntervals(QuantileIntervals):
    """The same within a group of rows, whose number is not public.

    At every edge the group's rows below it and above it are counted: F there is the prevalence in
    the group, for any number of its rows; see `analyses.counts.group_shares`. Each of the two
    sequences of tests has error alpha/2 as before.

    Attributes
    ----------
    answers : Answers
        Below each edge; the number of rows is that of the group.
    whole : Answers
        The same, then the group.
    pairs : Answers
        Below and above the first edge, below and above the second, and so on.
    """

    whole: Answers
    pairs: Answers

    @property
    def least_pvalue(self) -> float:
        """None is spent."""
        return 0.0

    def _noise_of(self, weights: Floats, probability: float) -> float:
        every = np.append(weights, -probability)
        return float(every @ self.whole.noise_covariance @ every)

    def of_edges(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends (edges,) of the distribution function at every edge, computed once."""
        return self._once((alpha, method, target), lambda: self._inverted(alpha, method, target))

    def _inverted(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        edges, sampled = range(len(self.answers.sums)), _sampled(method, target)
        each = (self._of_edge(j, sampled=sampled) for j in edges)
        found = [one.conf_int(alpha, method, target) for one in each]
        low, high = np.array(found).reshape(-1, 2).T
        return low, high

    def _of_edge(self, j: int, *, sampled: bool = True) -> GroupIntervals:
        def made() -> GroupIntervals:
            pairs = self.pairs.of_persons if sampled else self.pairs
            return GroupIntervals(pairs.subset(slice(2 * j, 2 * j + 2)))

        return self._once(("edge", j, sampled), made)


_DRAWS = 3_999  # of a maximal deviation; or as many as put
_TAIL = 4  # of them beyond the bound, which is an order statistic


def _sampled(method: Method, target: Target) -> bool:
    """Whether the sampling of persons is inferred, from counts of these."""
    return method == "noise_aware" and target == "population"


def distribution_band(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Limits (d,) of a band around the noisy answers to the distribution function F at d points.

    Noise-aware, the simulated quantile of the largest deviation of sampling (at the fitted
    distribution, so approximate) plus noise; certified, the bound of Dvoretzky, Kiefer and
    Wolfowitz plus the simulated quantile of the largest noise, at the best of several splits of
    alpha. For the private table itself noise is the only error.

    Parameters
    ----------
    answers : Answers
        Noisy counts of the rows up to each point, in increasing order.
    fitted : (d + 2,) float64
        Increasing estimate of F, with a 0 before and a 1 after.
    alpha : float
        Error probability of the band as a whole.
    method : {"noise_aware", "certified"}
    target : {"population", "table"}
    rng : numpy Generator

    Returns
    -------
    low, high : (d,) float64, increasing, in [0, 1]

    References
    ----------
    Massart, P. (1990). The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality. Ann.
    Probab. 18, 1269-1283.
    """
    rows = answers.rows
    of_rows = rows.spent(alpha)
    fewest, most = rows.bounds(of_rows)
    width = _half_width(answers, fitted, alpha - of_rows, method, target, fewest, rng)
    sums = within_counts(answers.sums, answers.n)
    # F increases, so running maxima and minima of the limits are valid too.
    low = np.clip(np.maximum.accumulate(sums / most - width), 0, 1)
    above = sums / fewest + width
    high = np.minimum.accumulate(above[::-1])[::-1]
    return low, np.clip(high, 0, 1)


def _half_width(
    answers: Answers,
    fitted: Floats,
    alpha: float,
    method: Method,
    target: Target,
    n: int,
    rng: np.random.Generator,
) -> float:
    if target == "population" and method == "noise_aware":
        noise = draw_noise(answers, _draws_for(alpha), rng) / n
        cells = np.diff(fitted)
        drawn = rng.multinomial(n, cells / cells.sum(), size=len(noise)).cumsum(axis=1)[:, :-1]
        return _bound(np.abs(drawn / n - fitted[1:-1] + noise).max(axis=1), alpha)
    beta = alpha
    sampling = 0.0
    if target == "population":

        def width(
            beta: float,
        ) -> float:  # by Bonferroni's inequality; depends on public numbers only
            noise = float(joint_noise_quantiles(answers, beta).max()) / n
            return _massart(n, alpha - beta) + noise

        beta = 0.0 if answers.bound_only else float(min(splits_of_band(alpha), key=width))
        sampling = _massart(n, alpha - beta)
    if answers.bound_only:
        return sampling + float(joint_noise_quantiles(answers, beta).max()) / n
    noise = draw_noise(answers, _draws_for(beta), rng) / n
    return sampling + _bound(np.abs(noise).max(axis=1), beta)


def _massart(n: int, error: float) -> float:
    """Bound on the largest deviation of n rows' distribution function, with error `error`."""
    return float(np.sqrt(np.log(2 / error) / (2 * n)))


def _draws_for(error: float) -> int:
    return max(_DRAWS, int(np.ceil(_TAIL / error)))


def _bound(draws: Floats, error: float) -> float:
    """Order statistic that one more draw exceeds with probability at most `error`."""
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[rank - 1])
