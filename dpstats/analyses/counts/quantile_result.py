"""Quantiles and the distribution function that they come from: intervals, band and result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.analyses.counts.distribution import DistributionIntervals
from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target, check_interval
from dpstats.corrected.means import wasserstein_bound
from dpstats.errors import RequestError
from dpstats.inference.intervals import Ends, Intervals
from dpstats.inference.simulation import make_generator
from dpstats.results.estimates import EstimateResult
from dpstats.schema import Number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class QuantileIntervals(Intervals):
    """Intervals and tests for quantiles by the distribution function F at the edges.

    The quantile at t, inf{x: F(x) >= t}, is in bin j only if F_j <= t <= F_j+1, F_j the mass of
    the first j bins. From the lowest bin upwards, bin j - 1 is excluded as long as the upper limit
    of F_j is below t; from the highest downwards, bin j as long as the lower limit is above t. The
    first false rejection from below can only be at the first j with F_j >= t (a fixed sequence
    of tests), so its error is that of one one-sided limit, alpha/2, and so from above. Within a
    group of rows, F is the prevalence in it, for any number of its rows.
    """

    distribution: DistributionIntervals
    number: Number
    probabilities: tuple[float, ...]

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows."""
        return self.distribution.least_pvalue

    @property
    def discrete(self) -> bool:
        """True if bins are single declared values."""
        return self.number.discrete

    @property
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

    def estimate(self, probability: float) -> tuple[float, float, float]:
        """Quantile, sampling and privacy variance; linear inside a bin, infinite for values.

        Delta method: the variance of F at the estimate, over the squared density of its bin. The
        position of the quantile inside the bin is not measured: add the variance of a uniform law.
        """
        fitted = self.distribution.fitted
        j = int(np.searchsorted(fitted[:-1], probability, side="left")) - 1  # F_j < p <= F_j+1
        below, above = fitted[j], fitted[j + 1]
        if self.discrete:
            return float(self.cuts[j]), np.inf, 0.0
        share = (probability - below) / (above - below)
        low, high = self.cuts[j], self.cuts[j + 1]
        weights = np.zeros(len(fitted))
        weights[j], weights[j + 1] = 1 - share, share
        sampling, privacy = self.distribution.variances(weights, probability)
        slope = ((high - low) / (above - below)) ** 2
        place = (high - low) ** 2 / 12
        estimate = float(low + share * (high - low))
        return estimate, float(sampling * slope + place), float(privacy * slope)

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
        return self._limits(*self.distribution.noise_aware(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (d,), in original units."""
        return self._limits(*self.distribution.certified(alpha, target))

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
            both = alternative == "two-sided"
            return self.distribution.pvalue_at(j, probability, side, of_limit=both)

        larger = smaller = 1.0  # evidence that F at the upper end < p, and at the lower end > p
        if j < self.number.value_bins - 1:
            larger = pvalue(j, "smaller")
        if j > 0:
            smaller = pvalue(j - 1, "larger")
        if alternative == "two-sided":
            return min(1.0, 2 * min(larger, smaller))
        return larger if alternative == "larger" else smaller

    def _bin_of(self, value: float) -> int:
        if self.discrete:
            if value not in self.cuts:
                raise RequestError(f"{value:.10g} is not a declared value of {self.number.name!r}")
            return int(np.searchsorted(self.cuts, value))
        side = "right" if self.number.closed == "left" else "left"
        return int(np.searchsorted(self.cuts[1:-1], value, side=side))  # type: ignore[call-overload]


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
            have that bound and one on the noise. In a group, and with a survey design, the band
            is the intervals at alpha over the number of edges (Bonferroni's inequality).
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
            If an option is not known, or `rng` is no seed.

        References
        ----------
        .. [1] Massart, P. (1990). The tight constant in the Dvoretzky-Kiefer-Wolfowitz
           inequality. Ann. Probab. 18, 1269-1283.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        make_generator(rng)  # refuses what is no seed
        intervals = self.intervals
        assert isinstance(intervals, QuantileIntervals)
        low, high = intervals.distribution.conf_int(alpha, method, target)
        simulated = replace(intervals.distribution, rng=rng)
        band_low, band_high = simulated.simultaneous(alpha, method, target)
        edges = intervals.edges
        if intervals.number.dates:
            edges = edges.astype("datetime64[D]").astype("datetime64[s]")
        return pd.DataFrame(
            {
                "edge": edges,
                "estimate": intervals.distribution.fitted[1:-1],
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
