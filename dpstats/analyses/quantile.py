"""Quantiles and the distribution function of a number, at its declared edges or values.

Everything follows from the table of the one column. Between two edges nothing is measured, so
intervals for quantiles end at edges; they need no smoothness and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
from scipy import optimize

from dpstats.analyses.base import Answering
from dpstats.analyses.proportion import ProportionIntervals
from dpstats.answers import Answers
from dpstats.columns import Number
from dpstats.errors import RequestError
from dpstats.families.block import Family, Floats
from dpstats.families.cells import Cells, Indicator
from dpstats.families.conditions import cell_set
from dpstats.inference.binomial import proportion_pvalue
from dpstats.inference.checks import Alternative, check_alpha
from dpstats.inference.simulation import draw_noise
from dpstats.results import EstimateResult, Method, Target
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 3_999  # of a maximal deviation; an order statistic of them is a valid bound
_SPLITS = 24  # ways to share alpha between sampling and noise that a certified band tries


@dataclass(frozen=True)
class Quantile:
    """Quantiles of a number, and its distribution function.

    Parameters
    ----------
    column : str
        A Number with declared edges or values.
    probability : float or sequence of float
        In (0, 1); 0.5 is the median.

    Examples
    --------
    >>> Quantile("age", [0.25, 0.5, 0.75])
    Quantile(column='age', probability=(0.25, 0.5, 0.75))
    """

    kind: ClassVar[str] = "quantile"

    column: str
    probability: float | Sequence[float] = 0.5

    def __post_init__(self) -> None:
        several = isinstance(self.probability, Sequence) and not isinstance(self.probability, str)
        given = tuple(self.probability) if several else (self.probability,)  # type: ignore[arg-type]
        for p in given:
            if isinstance(p, bool) or not isinstance(p, int | float) or not 0 < p < 1:
                raise RequestError(f"a probability must be a number between 0 and 1, got {p!r}")
        if not given or len(set(given)) < len(given):
            raise RequestError(f"give one probability, or a list of different ones; got {given}")
        if several:
            object.__setattr__(self, "probability", given)

    def family(self, schema: Schema) -> Family:
        """The table of the column: it costs 2, however many edges there are."""
        self._number(schema)
        return Family((Cells.table(schema, [self.column]),))

    def infer(self, release: Answering) -> QuantileResult:
        """Estimates with noise-aware and certified intervals."""
        number = self._number(release.schema)
        answers = release.answers([_below(number, j) for j in range(1, number.bins)])
        scalar = not isinstance(self.probability, Sequence)
        probabilities = np.atleast_1d(np.asarray(self.probability, dtype=np.float64))
        intervals = QuantileIntervals(answers, number, tuple(probabilities.tolist()))
        points = [intervals.estimate(p) for p in probabilities.tolist()]
        notes = ["an interval ends at declared edges or values: nothing is measured between them"]
        if not intervals.discrete:
            notes.append("an estimate spreads the rows evenly inside its bin")
        else:
            notes.append("a quantile among declared values has no standard error (inf)")
        return QuantileResult(
            title=f"Quantiles of {self.column}",
            terms=[f"{self.column}: quantile {p:g}" for p in probabilities],
            params=np.array([point[0] for point in points]),
            sampling_variance=np.array([point[1] for point in points]),
            privacy_variance=np.array([point[2] for point in points]),
            intervals=intervals,
            nobs=answers.n,
            budget=str(release.budget),
            scalar=scalar,
            notes=notes,
        )

    def _number(self, schema: Schema) -> Number:
        column = schema[self.column]
        if not isinstance(column, Number):
            raise RequestError(f"{self.column!r} has levels without an order; it has no quantiles")
        if column.bins < 2:
            raise RequestError(
                f"{self.column!r} has a single bin; add edges=[...] to the schema, the points at "
                "which its distribution function is measured"
            )
        return column


def _below(number: Number, j: int) -> Indicator:
    """Rows in the first j bins."""
    mask = np.arange(number.bins) < j
    return Indicator(cell_set((number,), mask), f"{number.name} in the first {j} bins")


@dataclass(frozen=True)
class QuantileIntervals:
    """Intervals and tests for quantiles by the distribution function F at the edges.

    The quantile at t, inf{x: F(x) >= t}, is in bin j only if F_j <= t <= F_j+1, F_j the mass of
    the first j bins. From the lowest bin upwards, bin j - 1 is left out as long as the upper limit
    of F_j is below t; from the highest downwards, bin j as long as the lower limit is above t. The
    first false rejection from below can only be at the first j with F_j >= t (a fixed sequence
    of tests), so its error is that of one one-sided limit, alpha/2, and so from above.
    """

    answers: Answers
    number: Number
    probabilities: tuple[float, ...]

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

    @cached_property
    def fitted(self) -> Floats:
        """(bins + 1,) nearest increasing distribution function, from 0 to 1."""
        increasing = optimize.isotonic_regression(self.answers.means).x
        return np.concatenate([[0.0], np.clip(increasing, 0, 1), [1.0]])

    def estimate(self, probability: float) -> tuple[float, float, float]:
        """Quantile, sampling and privacy variance; linear inside a bin, infinite for values.

        Delta method: the variance of F at the estimate, over the squared density of its bin.
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
        sampling = weights @ covariance @ weights / self.answers.n
        privacy = inner @ self.answers.noise_covariance @ inner / self.answers.n**2
        slope = ((high - low) / (above - below)) ** 2
        return float(low + share * (high - low)), float(sampling * slope), float(privacy * slope)

    def bins(
        self, alpha: float, method: Method = "noise_aware", target: Target = "population"
    ) -> list[tuple[int, int]]:
        """First and last bin that can hold each quantile."""
        low, high = ProportionIntervals(self.answers).conf_int(alpha, method, target)
        found = []
        for probability in self.probabilities:
            rejected = (
                np.append(high < probability, False),
                np.append(low[::-1] > probability, False),
            )
            first, left_out = (int(np.argmin(run)) for run in rejected)
            found.append((first, len(low) - left_out))
        return found

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper ends (d,), in original units: edges, bounds or declared values."""
        ends = np.array(self.bins(alpha, method, target))
        return self.cuts[ends[:, 0]], self.cuts[ends[:, 1] + (0 if self.discrete else 1)]

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Ends that hold for all d quantiles together, by Bonferroni."""
        return self.conf_int(alpha / len(self.probabilities), method, target)

    def first(self, count: int) -> QuantileIntervals:
        """The same for the first few quantiles."""
        return replace(self, probabilities=self.probabilities[:count])

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) of: the quantile equals `value`, by F at the two ends of its bin.

        Exact for a quantile above (below) the bin; with bounds 0 and 1 of F nothing can be said.
        """
        j = self._bin_of(value)
        return np.array([self._pvalue(j, p, alternative) for p in self.probabilities])

    def _pvalue(self, j: int, probability: float, alternative: Alternative) -> float:
        larger = smaller = 1.0  # evidence that F at the upper end < p, and at the lower end > p
        answers = self.answers
        smoothed = answers.sums + answers.uniforms
        if j < self.number.bins - 1:
            law = answers.law(j)
            larger = float(proportion_pvalue(smoothed[j], answers.n, probability, law, "smaller"))
        if j > 0:
            law = answers.law(j - 1)
            smaller = float(
                proportion_pvalue(smoothed[j - 1], answers.n, probability, law, "larger")
            )
        if alternative == "two-sided":
            return min(1.0, 2 * min(larger, smaller))
        return larger if alternative == "larger" else smaller

    def _bin_of(self, value: float) -> int:
        if self.discrete:
            if value not in self.cuts:
                raise RequestError(f"{value:g} is not a declared value of {self.number.name!r}")
            return int(np.searchsorted(self.cuts, value))
        if not self.cuts[0] <= value <= self.cuts[-1]:
            raise RequestError(f"{value:g} is outside of the bounds of {self.number.name!r}")
        side = "right" if self.number.closed == "left" else "left"
        return int(np.searchsorted(self.cuts[1:-1], value, side=side))  # type: ignore[call-overload]

    def deviations(
        self, alpha: float, method: Method, target: Target, rng: np.random.Generator
    ) -> float:
        """Half-width of a band for F at all edges at once, in proportions."""
        n = self.answers.n
        noise = draw_noise(self.answers, _DRAWS, rng) / n
        if target == "table":
            return _bound(np.abs(noise).max(axis=1), alpha)
        if method == "noise_aware":
            cells = np.diff(self.fitted)
            drawn = rng.multinomial(n, cells / cells.sum(), size=_DRAWS).cumsum(axis=1)[:, :-1]
            moved = drawn / n - self.fitted[1:-1] + noise
            return _bound(np.abs(moved).max(axis=1), alpha)
        largest = np.abs(noise).max(axis=1)
        shares = alpha * np.arange(1, _SPLITS) / _SPLITS  # public numbers alone choose the split
        return min(
            float(np.sqrt(np.log(2 / (alpha - beta)) / (2 * n))) + _bound(largest, beta)
            for beta in shares
        )


def _bound(draws: Floats, error: float) -> float:
    """Order statistic that one more draw exceeds with probability at most `error`."""
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[min(rank, len(draws)) - 1])


@dataclass(frozen=True, repr=False)
class QuantileResult(EstimateResult):
    """Quantiles, and the distribution function that they come from."""

    def _remarks(self, shown: pd.DataFrame) -> list[str]:
        # A single declared value is an honest interval here.
        return [text for text in super()._remarks(shown) if "width zero" not in text]

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
        alpha : float
            Error probability of each interval, and of the band as a whole.
        method : {"noise_aware", "certified"}
            Intervals as those of a proportion. Band: noise-aware, the simulated quantile of the
            largest deviation of sampling (at the fitted distribution, so approximate) plus noise;
            certified, the bound of Dvoretzky, Kiefer and Wolfowitz [1]_ plus the simulated
            quantile of the largest noise.
        target : {"population", "table"}
            For the private table itself there is noise alone.
        rng : numpy Generator or int
            For the simulated quantiles; the default gives the same band every time.

        Returns
        -------
        DataFrame
            Columns edge, estimate (increasing), low, high, band_low, band_high. With
            ``closed="left"`` the row of edge e is P(X < e), else P(X <= e).

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

        check_alpha(alpha)
        for what, choice, known in (("method", method, Method), ("target", target, Target)):
            if choice not in get_args(known):
                raise RequestError(f"{what} must be one of {list(get_args(known))}, got {choice!r}")
        intervals = self.intervals
        assert isinstance(intervals, QuantileIntervals)
        low, high = ProportionIntervals(intervals.answers).conf_int(alpha, method, target)
        generator = np.random.default_rng(rng)
        width = intervals.deviations(alpha, method, target, generator)
        # The band is around the noisy answers; F increases, so the running best ends hold too.
        means = intervals.answers.means
        band_low = np.clip(np.maximum.accumulate(means - width), 0, 1)
        band_high = np.clip(np.minimum.accumulate((means + width)[::-1])[::-1], 0, 1)
        edges = intervals.cuts[:-1] if intervals.discrete else intervals.cuts[1:-1]
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
