"""Quantiles and the distribution function of a number, at its declared edges or values.

Everything follows from the table of the one column. Between two edges nothing is measured, so
intervals for quantiles end at edges; they need no smoothness and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpstats.analyses.counts.quantile_intervals import (
    GroupQuantileIntervals,
    QuantileIntervals,
    distribution_band,
)
from dpstats.analyses.notes import WIDTHS_OF_GROUPS, cell_rules, subgroup_notes
from dpstats.checks import (
    Method,
    Target,
    as_float,
    check_alpha,
    check_method,
    check_target,
    listed,
    short,
)
from dpstats.corrected.means import wasserstein_bound
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells, Indicator
from dpstats.inference.simulation import calibration_generator
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Number, Schema
from dpstats.schema.conditions import cell_set

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Quantile:
    """Quantiles of a number, and its distribution function.

    Parameters
    ----------
    column : str
        A Number with declared edges or values.
    probability : float or sequence of float
        In (0, 1); 0.5 is the median. Arrays and pandas Series are sequences too.
    given : str, optional
        Quantiles in the rows with this condition, such as ``"region == 'north'"``; it may not
        involve the column itself. Rows without a value of the column are left out in any case,
        where the schema has ``allow_missing=True``.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Quantile("age", [0.25, 0.5, 0.75])
    Quantile(column='age', probability=(0.25, 0.5, 0.75), given=None)
    """

    kind: ClassVar[str] = "quantile"
    ends_at_edges: ClassVar[bool] = True  # intervals end at declared edges, so finer ones help
    preview_remark: ClassVar[str] = WIDTHS_OF_GROUPS

    column: str
    probability: float | Sequence[float] = 0.5
    given: str | None = None

    def __post_init__(self) -> None:
        asked: Any = listed(self.probability)
        several = isinstance(asked, Sequence)
        given = tuple(asked) if several and not isinstance(asked, str) else (asked,)
        for i, p in enumerate(given, 1):
            number = isinstance(p, int | float | np.floating) and not isinstance(p, bool)
            if not number or not 0 < p < 1:
                which = f"number {i} of them is not" if several else f"got {short(p)}"
                raise RequestError(f"a probability must be a number between 0 and 1; {which}")
        given = tuple(as_float(p) for p in given)
        if not given or len(set(given)) < len(given):
            raise RequestError(
                f"give one probability, or a list of different ones; got {short(asked)}"
            )
        object.__setattr__(self, "probability", given if several else given[0])

    def family(self, schema: Schema) -> Family:
        """The table of the column: it costs 2, however many edges there are.

        Given a condition, the table of the column and those of the condition.
        """
        number = self._number(schema)
        group = self._group(schema)
        columns = () if group is None else group.cells.columns
        return Family((Cells.table(schema, [number.name, *(column.name for column in columns)]),))

    def _group(self, schema: Schema) -> Subgroup | None:
        group = Subgroup.of(schema, self.given, [self.column])
        if group is not None and schema[self.column] in group.cells.columns:
            raise RequestError(
                f"given={self.given!r} involves {self.column!r} itself; take a condition on other "
                "columns"
            )
        return group

    def answered(self, schema: Schema) -> Family:
        """The rows below every edge, which follow from the table.

        In a subgroup, also those not below every edge, and all of them, last.
        """
        number, group = self._number(schema), self._group(schema)
        edges = range(1, number.value_bins)
        if group is None:
            return Family(tuple(_below(number, j) for j in edges))
        columns = tuple(c for c in schema if c == number or c in group.columns)
        axis = [c.bins if c == number else 1 for c in columns]
        bins, inside = np.arange(number.bins).reshape(axis), group.over(columns)
        marked = [(bins < j, f"in the first {j} bins") for j in edges]
        marked += [(bins >= j, f"not in the first {j} bins") for j in edges]
        marked += [(bins >= 0, "in any bin")]
        return Family(tuple(
            Indicator(cell_set(columns, inside & held), f"{number.name} {where}, {group.name}")
            for held, where in marked
        ))  # fmt: skip

    def _intervals(
        self, release: ReleaseView, number: Number, probabilities: tuple[float, ...]
    ) -> QuantileIntervals:
        blocks = self.answered(release.schema).blocks
        if self._group(release.schema) is None:
            return QuantileIntervals(release.answers(blocks), number, probabilities)
        edges = len(blocks) // 2
        below, above, every = blocks[:edges], blocks[edges:-1], blocks[-1]
        both = [block for pair in zip(below, above, strict=True) for block in pair]
        pairs = release.answers(both, disjoint=True)
        whole = release.answers([*below, every], disjoint=True).of_counted_rows()
        return GroupQuantileIntervals(
            whole.subset(slice(edges)), number, probabilities, whole, pairs
        )

    def infer(self, release: ReleaseView) -> QuantileResult:
        """Estimates with noise-aware and certified intervals."""
        number = self._number(release.schema)
        scalar = not isinstance(self.probability, Sequence)
        probabilities = np.atleast_1d(np.asarray(self.probability, dtype=np.float64))
        intervals = self._intervals(release, number, tuple(probabilities.tolist()))
        answers = intervals.answers
        points = [intervals.estimate(p) for p in probabilities.tolist()]
        notes = [
            *subgroup_notes(self._group(release.schema), answers.rows),
            "an interval ends at declared edges or values: nothing is measured between them",
        ]
        if not intervals.discrete:
            notes.append(
                "an estimate spreads the rows evenly inside its bin; its standard error allows for "
                "their unknown positions"
            )
        else:
            notes.append(
                "a quantile of declared values has an infinite standard error: use its interval"
            )
        terms = [f"{self.column}: quantile {p:g}" for p in probabilities]
        return QuantileResult(
            title=f"Quantiles of {self.column}"
            + ("" if self.given is None else f", given {self.given}"),
            terms=terms,
            params=Named([point[0] for point in points], terms),
            sampling_variance=np.array([point[1] for point in points]),
            privacy_variance=np.array([point[2] for point in points]),
            intervals=intervals,
            rows=answers.rows.of_persons,
            budget=str(release.budget),
            scalar=scalar,
            notes=[*notes, cell_rules(release.schema, self)],
            dates=terms if number.dates else (),
        )

    def _number(self, schema: Schema) -> Number:
        column = schema[self.column]
        if not isinstance(column, Number):
            raise RequestError(
                f"{self.column!r} is not a number: it has no quantiles; for the shares of its "
                f"levels use dps.Marginals([{self.column!r}], 1)"
            )
        if column.value_bins < 2:
            raise RequestError(
                f"{self.column!r} has a single bin; add edges=[...] to the schema, the points at "
                "which its distribution function is measured"
            )
        return column


def _below(number: Number, j: int) -> Indicator:
    """Rows in the first j bins."""
    mask = np.arange(number.bins) < j
    return Indicator(cell_set((number,), mask), f"{number.name} in the first {j} bins")


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
        alpha : float
            Error probability of each interval, and of the band as a whole.
        method : {"noise_aware", "certified"}
            Intervals as those of a proportion. Band: noise-aware, the simulated quantile of the
            largest deviation of sampling (at the fitted distribution, so approximate) plus noise;
            certified, the bound of Dvoretzky, Kiefer and Wolfowitz [1]_ plus the simulated
            quantile of the largest noise.
        target : {"population", "table"}
            For the private table itself noise is the only error.
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

        check_alpha(alpha)
        check_method(method)
        check_target(target)
        intervals = self.intervals
        assert isinstance(intervals, QuantileIntervals)
        low, high = intervals.of_edges(alpha, method, target)
        if not isinstance(rng, np.random.Generator):
            rng = calibration_generator(intervals.answers, rng)
        counts = intervals.counts(method, target)
        band_low, band_high = distribution_band(
            counts, intervals.fitted, alpha, method, target, rng
        )
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

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=range(5, 100, 5), missing=50)])
        >>> plan = dps.plan(schema, {"age": dps.Quantile("age")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"age": [x % 100 for x in range(10_000)]})
        >>> release = dps.release(plan, rows, m=1_000)
        >>> bound = release.infer("age").wasserstein(release.to_frame()["age"])
        >>> 1 < bound < 10
        True
        """
        import pandas as pd

        assert isinstance(self.intervals, QuantileIntervals)
        number, cuts = self.intervals.number, self.intervals.cuts
        given: Any = pd.Series(np.asarray(values).ravel())
        if number.dates:
            given = (pd.to_datetime(given) - pd.Timestamp(0)) / pd.Timedelta(days=1)
        seen = pd.to_numeric(given, errors="coerce").dropna().to_numpy(dtype=np.float64)
        if not len(seen):
            raise RequestError("a distance needs values, such as a column of release.to_frame()")
        band = self.distribution(alpha=alpha, method="certified", target=target, rng=rng)
        low, high = band["band_low"].to_numpy(), band["band_high"].to_numpy()
        if not self.intervals.discrete:  # between edges the distribution function increases
            low, high = np.concatenate([[0.0], low]), np.concatenate([high, [1.0]])
        return wasserstein_bound(np.clip(seen, cuts[0], cuts[-1]), cuts, low, high)
