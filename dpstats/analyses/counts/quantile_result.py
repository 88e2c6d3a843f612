"""Quantiles and the distribution function that they come from: intervals, band and result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.analyses.counts.binomial import within_counts
from dpstats.analyses.counts.group_shares import GroupIntervals
from dpstats.analyses.counts.proportion_intervals import ProportionIntervals
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Method, Target, check_interval
from dpstats.corrected.means import wasserstein_bound
from dpstats.error_rates import splits_of_band
from dpstats.errors import RequestError
from dpstats.inference.intervals import Ends, Intervals
from dpstats.inference.simulation import LEAST_SIMULATED, calibration_generator, draw_noise
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.results.estimates import EstimateResult
from dpstats.schema import Number

if TYPE_CHECKING:
    import pandas as pd


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
        """The answers, for certified statements without totals; of persons where these vary."""
        if method == "certified":
            return self.answers.without_totals
        return self.answers.of_persons if _sampled(method, target) else self.answers

    @property
    def discrete(self) -> bool:
        """True if bins are single declared values."""
        return self.number.discrete

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
    def ranges(self) -> tuple[float, float]:
        """The bounds."""
        return float(self.cuts[0]), float(self.cuts[-1])

    @cached_property
    def fitted(self) -> Floats:
        """(bins + 1,) nearest increasing distribution function, from 0 to 1."""
        return self.increasing(self.answers.means)

    @staticmethod
    def increasing(means: Floats) -> Floats:
        """(d + 2,) nearest increasing function to (d,) values of one, from 0 to 1."""
        from scipy import optimize

        increasing = optimize.isotonic_regression(means).x
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
        sampling, privacy = self._variances(weights, probability)
        slope = ((high - low) / (above - below)) ** 2
        place = (high - low) ** 2 / 12
        estimate = float(low + share * (high - low))
        return estimate, float(sampling * slope + place), float(privacy * slope)

    def _variances(self, weights: Floats, probability: float) -> tuple[float, float]:
        """Sampling and privacy variance of a combination (bins + 1,) of F, whose value is given."""
        mass = self.fitted
        covariance = np.minimum.outer(mass, mass) - np.outer(mass, mass)
        sampling = float(weights @ covariance @ weights / self.answers.of_persons.n)
        return sampling, self._noise_of(weights[1:-1], probability) / self.answers.n**2

    def _noise_of(self, weights: Floats, probability: float) -> float:
        """Variance of the noise on a combination of the counts, less a share of the rows."""
        return self.answers.noise_less_rows(weights, probability)

    def of_edges(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends (edges,) of the distribution function at every edge, computed once."""
        whole = ProportionIntervals(self.counts(method, target))
        return self._once((alpha, method, target), lambda: whole.conf_int(alpha, method, target))

    def band(
        self, alpha: float, method: Method, target: Target, rng: np.random.Generator | int
    ) -> Ends:
        """Limits (edges,) of F at all edges together, around the noisy answers.

        See `QuantileResult.distribution`.
        """
        if not isinstance(rng, np.random.Generator):
            rng = calibration_generator(self.answers, rng)
        answers = self.counts(method, target)
        of_rows = answers.rows.spent(alpha)
        fewest, most = answers.rows.bounds(of_rows)
        width = self._half_width(alpha - of_rows, method, target, fewest, rng)
        sums = within_counts(answers.sums, answers.n)
        # F increases, so running maxima and minima of the limits are valid too.
        low = np.maximum.accumulate(sums / most - width)
        high = np.minimum.accumulate((sums / fewest + width)[::-1])[::-1]
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def _half_width(
        self, alpha: float, method: Method, target: Target, n: int, rng: np.random.Generator
    ) -> float:
        """Half the width of the band for n rows; an error below `LEAST_SIMULATED` by bounds."""
        answers, cells = self.counts(method, target), np.diff(self.fitted)

        def of_noise(size: int) -> Floats:
            return np.asarray(np.abs(draw_noise(answers, size, rng) / n).max(axis=1))

        def of_both(size: int) -> Floats:
            noise = draw_noise(answers, size, rng) / n
            drawn = rng.multinomial(n, cells / cells.sum(), size=size).cumsum(axis=1)[:, :-1]
            return np.asarray(np.abs(drawn / n - self.fitted[1:-1] + noise).max(axis=1))

        if _sampled(method, target) and alpha >= LEAST_SIMULATED:
            return _simulated(of_both, alpha)
        beta, sampling = alpha, 0.0
        if target == "population":

            def width(beta: float) -> float:  # by Bonferroni's inequality; of public numbers only
                noise = float(joint_noise_quantiles(answers, beta).max()) / n
                return _massart(n, alpha - beta) + noise

            beta = 0.0 if answers.bound_only else float(min(splits_of_band(alpha), key=width))
            sampling = _massart(n, alpha - beta)
        if answers.bound_only or beta < LEAST_SIMULATED:
            return sampling + float(joint_noise_quantiles(answers, beta).max()) / n
        return sampling + _simulated(of_noise, beta)

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
            return self._of_limit(j, probability, side, both=alternative == "two-sided")

        larger = smaller = 1.0  # evidence that F at the upper end < p, and at the lower end > p
        if j < self.number.value_bins - 1:
            larger = pvalue(j, "smaller")
        if j > 0:
            smaller = pvalue(j - 1, "larger")
        if alternative == "two-sided":
            return min(1.0, 2 * min(larger, smaller))
        return larger if alternative == "larger" else smaller

    def _of_limit(self, j: int, probability: float, side: Alternative, *, both: bool) -> float:
        """P-value that F at the end of bin j is a probability; that of a limit of `both`."""
        edge = self._of_edge(j)
        return float((edge.pvalues_of_limit if both else edge.pvalues)(probability, side)[0])

    def _of_edge(self, j: int) -> ProportionIntervals | GroupIntervals:
        """The distribution function at the end of bin j, of the population."""
        return ProportionIntervals(self.answers.of_persons.subset(slice(j, j + 1)))

    def _bin_of(self, value: float) -> int:
        if self.discrete:
            if value not in self.cuts:
                raise RequestError(f"{value:.10g} is not a declared value of {self.number.name!r}")
            return int(np.searchsorted(self.cuts, value))
        side = "right" if self.number.closed == "left" else "left"
        return int(np.searchsorted(self.cuts[1:-1], value, side=side))  # type: ignore[call-overload]


@dataclass(frozen=True)
class GroupQuantileIntervals(QuantileIntervals):
    """Intervals of quantiles within a group of rows whose number is not public.

    At every edge the group's rows below it and above it are counted: F there is the prevalence in
    the group, for any number of its rows; see `analyses.counts.group_shares`. Each of the two
    sequences of tests has error alpha/2 as before.
    """

    least_pvalue: ClassVar[float] = 0.0

    whole: Answers  # the same, then the group
    pairs: Answers  # below and above the first edge, below and above the second, and so on

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
    """True if intervals include the sampling of persons."""
    return method == "noise_aware" and target == "population"


def _massart(n: int, error: float) -> float:
    """Bound on the largest deviation of n rows' distribution function, with error `error`."""
    return float(np.sqrt(np.log(2 / error) / (2 * n)))


def _simulated(draw: Callable[[int], Floats], error: float) -> float:
    """Order statistic of draws that one more exceeds with probability at most `error`."""
    size = max(_DRAWS, int(np.ceil(_TAIL / error)))
    # Some at a time, as each has an entry per edge; a smaller error has the same ones, and more.
    draws = np.concatenate([draw(_DRAWS) for _ in range(0, size, _DRAWS)])[:size]
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[rank - 1])


@dataclass(frozen=True, repr=False, eq=False)
class QuantileResult(EstimateResult):
    """Quantiles, and the distribution function that they come from.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=range(10, 100, 10), missing=50)])
    >>> median = dps.Quantile("age")
    >>> plan = dps.plan(schema, {"median": median}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"age": [x % 100 for x in range(10_000)]})
    >>> result = dps.release(plan, rows).infer(median)
    >>> print(result.conf_int())
    [40. 60.]
    >>> result.distribution()["edge"].tolist()[:2]
    [10.0, 20.0]
    >>> 1 < result.wasserstein(range(100)) < 15
    True
    """

    figures = ("distribution",)

    @property
    def interval_of(self) -> str:
        """The column, whose unit the widths have."""
        assert isinstance(self.intervals, QuantileIntervals)
        number = self.intervals.number
        return f"{number.name}, in {'days' if number.dates else 'its own unit'}"

    def distribution(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        rng: np.random.Generator | int = 0,
    ) -> pd.DataFrame:
        """Distribution function at the declared edges (or values but the last).

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; alpha is also that of the band as a whole. Intervals are as those of
            a proportion. The band is noise-aware by the simulated quantile of the largest
            deviation of sampling (at the fitted distribution, so approximate) plus noise, and
            certified by the bound of Dvoretzky, Kiefer and Wolfowitz [1]_ plus the simulated
            quantile of the largest noise. Errors below 0.0001 are not simulated: both bands then
            have that bound and one on the noise.
        rng : numpy Generator or int
            For the simulated quantiles; with an int, a release always gives the same band.

        Returns
        -------
        DataFrame
            Columns edge, estimate (increasing), low, high, band_low, band_high. With
            ``closed="left"`` the row of edge e is P(X < e), else P(X <= e). Edges of dates are
            dates.

        Raises
        ------
        RequestError
            If an option is not known.

        References
        ----------
        .. [1] Massart, P. (1990). The tight constant in the Dvoretzky-Kiefer-Wolfowitz
           inequality. Ann. Probab. 18, 1269-1283.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        intervals = self.intervals
        assert isinstance(intervals, QuantileIntervals)
        low, high = intervals.of_edges(alpha, method, target)
        band_low, band_high = intervals.band(alpha, method, target, rng)
        edges = intervals.edges
        if intervals.number.dates:
            edges = edges.astype("datetime64[D]").astype("datetime64[s]")
        return pd.DataFrame(
            {
                "edge": edges,
                "estimate": intervals.fitted[1:-1],
                "low": low,
                "high": high,
                "band_low": band_low,
                "band_high": band_high,
            }
        )

    def wasserstein(
        self,
        values: ArrayLike,
        *,
        alpha: float = 0.05,
        target: Target = "table",
        rng: np.random.Generator | int = 0,
    ) -> float:
        """Certified bound on the Wasserstein-1 distance of some values to the private ones.

        The means of every function with slope at most L over these values and over the private
        column differ by at most L times this: a bound for an infinite class of functions, from the
        distribution function at the edges and the gaps between them.

        Parameters
        ----------
        values : (m,) array_like
            Such as ``release.to_frame()["age"]``; in original units, missing ones left out. They
            are clamped to the bounds, as the private ones are.
        alpha : float
            Probability that the bound fails.
        target : {"table", "population"}
            The private values, or the population's.
        rng : numpy Generator or int
            For the band of the distribution function, see `distribution`.

        Returns
        -------
        float
            In the unit of the column; days for dates.

        Raises
        ------
        RequestError
            Without values, or if an option is not known.
        """
        import pandas as pd
        import pyarrow as pa

        from dpstats.schema import arrow

        assert isinstance(self.intervals, QuantileIntervals)
        number, cuts = self.intervals.number, self.intervals.cuts
        given: Any = pd.Series(np.asarray(values).ravel())
        if number.dates:
            given = pd.Series(arrow.days(pa.array(given.astype(str), from_pandas=True)))
        seen = pd.to_numeric(given, errors="coerce").dropna().to_numpy(dtype=np.float64)
        if not len(seen):
            raise RequestError("a distance needs values, such as a column of release.to_frame()")
        band = self.distribution(alpha=alpha, method="certified", target=target, rng=rng)
        low, high = band["band_low"].to_numpy(), band["band_high"].to_numpy()
        if not self.intervals.discrete:  # between edges the distribution function increases
            low, high = np.concatenate([[0.0], low]), np.concatenate([high, [1.0]])
        return wasserstein_bound(np.clip(seen, cuts[0], cuts[-1]), cuts, low, high)
