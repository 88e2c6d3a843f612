"""Base class of all results: text, a frame, a headline, and equality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target
from dpstats.display import as_html
from dpstats.errors import RequestError
from dpstats.results.rendering import Page, Summary, significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount
    from dpstats.privacy.budget import Budget

TARGETS = {
    "population": "the population (rows assumed independent draws; no weights, no clusters)",
    "table": "the private table itself",
}
SILENT = "no certified statement"  # how a note on certified limits that say nothing begins
OF_POPULATION = f"{SILENT} on the population"  # the same, where the table has one
OF_INDEPENDENT_ROWS = (
    " Certified limits and verdicts for the population take all rows as independent, also those of "
    "one person: they can be narrower than the noise-aware ones, and too narrow. Those for the "
    "private table hold for any rows."
)
INTERVAL_COLUMNS = ("term", "estimate", "conf_low", "conf_high")


class Widths(NamedTuple):
    """Widths of intervals."""

    terms: list[str]  # (d,)
    widths: Floats  # (d,)
    # (d,) of all values that the parameters could have; infinite where these have no ends
    ranges: Floats

    def median(self, terms: Sequence[str]) -> tuple[float, float]:
        """Median width and range of some of them; nan and infinite without any."""
        chosen = [i for i, term in enumerate(self.terms) if term in terms]
        if not chosen:
            return np.nan, np.inf
        return float(np.median(self.widths[chosen])), float(np.median(self.ranges[chosen]))


@dataclass(frozen=True, repr=False, eq=False)
class FieldsCompared:
    """A dataclass whose objects are equal if their fields are, arrays entry by entry."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
            if field.compare
        )

    def __hash__(self) -> int:
        return hash(type(self))


@dataclass(frozen=True, repr=False, eq=False)
class Result(FieldsCompared, ABC):
    r"""Base class of the results of all analyses.

    Two results are equal if they are of one class and have equal fields, arrays compared entry by
    entry. Inferring twice from one release gives equal results.

    To write your own, derive a dataclass with ``eq=False`` and define `headline`, `summary` and
    `to_frame`; the rest has defaults for a result without intervals.

    Attributes
    ----------
    title : str
        What was estimated or tested.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> for name in release.analyses:
    ...     result = release.infer(name)
    ...     print(isinstance(result, dps.Result), result.headline)
    True smoker: 0.300 [0.29..., 0.3...]
    >>> result == release.infer(name)
    True
    >>> list(result.to_frame())[:3], "95% noise-aware" in result.summary()
    (['term', 'estimate', 'std_error'], True)
    >>> print(result.intervals_frame(alpha=0.1, target="table").round(2).to_string(index=False))
      term  estimate  conf_low  conf_high
    smoker       0.3       0.3        0.3
    >>> result.test(0.25, alternative="larger").pvalue < 0.001
    True
    >>> print(result.to_latex().splitlines()[2])
    \caption{Proportion: smoker}
    """

    title: str

    methods: ClassVar[tuple[str, ...]] = ()  # of its intervals, the one that a preview shows first
    certified_target: ClassVar[Target] = "population"  # of the certified widths in a preview
    figures: ClassVar[tuple[str, ...]] = ()  # the plots of `dpstats.plots` that show it
    of_population: ClassVar[bool] = True  # whether it has intervals or tests for the population

    @property
    @abstractmethod
    def headline(self) -> str:
        """One short line: the estimate with its interval, or the p-value."""

    @abstractmethod
    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:
        """Text of the result.

        Parameters
        ----------
        alpha : float
            Error probability of its intervals and certified verdicts; no p-value depends on it.
        target : {"population", "table"}
            What these are about. There is no p-value for the private table.

        Returns
        -------
        str
            A `Summary` where the text is a single table.
        """

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The numbers of the result.

        Returns
        -------
        DataFrame
        """

    def to_latex(
        self, *, alpha: float = 0.05, target: Target = "population", **options: Any
    ) -> str:
        """The summary as a LaTeX table, labels escaped; needs the package booktabs.

        Parameters
        ----------
        alpha, target, **options :
            Those of `summary`; ``summary().as_latex()`` is the same.

        Returns
        -------
        str

        Raises
        ------
        RequestError
            If these options print something that is no single table.
        """
        text = self.summary(alpha=alpha, target=target, **options)
        if isinstance(text, Summary):
            return text.as_latex()
        if options:
            raise RequestError(
                f"to_latex has no single table for {sorted(options)}; ask for the parts by "
                "themselves"
            )
        frame = self.to_frame()
        rows = [
            [significant(cell) if isinstance(cell, float) else str(cell) for cell in row]
            for row in frame.itertuples(index=False)
        ]
        return Page(self.title, (), [str(name) for name in frame.columns], rows).latex()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows of `to_frame` for Arrow, polars, DuckDB and others."""
        import pyarrow as pa

        table = pa.Table.from_pandas(self.to_frame(), preserve_index=False)
        return table.__arrow_c_stream__(requested_schema)

    @property
    def pvalues(self) -> Floats:
        """P-values that the result prints; none by default."""
        return np.empty(0)

    @property
    def has_intervals(self) -> bool:
        """True if `intervals_frame` has rows."""
        return False

    def intervals_frame(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Intervals of all parameters.

        Parameters
        ----------
        alpha, method, target, simultaneous :
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns term, estimate, conf_low and conf_high, and date, date_low and date_high if a
            parameter is a date. Without rows for a test.
        """
        import pandas as pd

        return pd.DataFrame(columns=list(INTERVAL_COLUMNS))

    @property
    def testable(self) -> bool:
        """True if `test` accepts a value, which it does for a single parameter."""
        return False

    def test(self, value: float, alternative: Alternative = "two-sided") -> Result:
        """Test that the parameter equals a value.

        Parameters
        ----------
        value : float
        alternative : {"two-sided", "larger", "smaller"}

        Returns
        -------
        Result
            With `statistic` and `pvalue`.

        Raises
        ------
        RequestError
            Unless the result has a single parameter.
        """
        raise RequestError("test() needs a single parameter; ask for one analysis per question")

    @property
    def preview_condition(self) -> str:
        """Condition on real rows for intervals of the previewed kind; "" for none."""
        return ""

    @property
    def interval_of(self) -> str:
        """Parameter of the previewed intervals, whose unit the widths have; "" without them."""
        return ""

    @property
    def terms_by_unit(self) -> list[list[str]]:
        """The estimated parameters of each unit, which share an axis; none without estimates."""
        return []

    @property
    def main_terms(self) -> list[str]:
        """The parameters of the first unit, whose median width a preview shows."""
        return next(iter(self.terms_by_unit), [])

    def lacking(self, method: str, target: Target = "population") -> str:
        """Why there are no intervals of this method and target; "" where there are."""
        if not self.methods:
            return "it has no intervals"
        if method in self.methods:
            return ""
        return f"its intervals are {' or '.join(self.methods)}"

    def single_test(self, value: float | None = None) -> Result:
        """The one test whose power can be asked for, of `value` or of its own hypothesis.

        Raises
        ------
        RequestError
            If there is none, or several; if `value` is missing, or has no place.
        """
        raise RequestError(
            "there is no single test; ask for an analysis of one parameter, or for width= or delta="
        )

    def preview_widths(self, method: Method, alpha: float = 0.05) -> Widths:
        """Widths of the intervals that a preview shows; none without intervals."""
        return Widths([], np.empty(0), np.empty(0))

    def __hash__(self) -> int:
        return hash((type(self), self.title))

    def __dir__(self) -> list[str]:
        """Public names: what tab completion shows."""
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        text = self.summary()
        if isinstance(text, Summary):
            return text.as_html()
        title, *lines = text.splitlines()
        return as_html(title, lines)


def _equal(one: Any, other: Any) -> bool:
    """Equality of two fields; arrays entry by entry, nan equal to nan."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other or (one != one and other != other))


def notes_for(notes: Sequence[str], target: Target) -> list[str]:
    """Notes that concern this target."""
    return [note for note in notes if target == "population" or OF_POPULATION not in note]


def footer(rows: RowCount, budget: Budget | str, method: str, target: Target = "population") -> str:
    """Target, number of rows, budget, and the method if one is given."""
    how = f" Method: {method}." if method else ""
    what = TARGETS[target]
    if rows.allowed_for and target == "population":
        what = "the population (persons assumed independent draws; no weights)"
    return f"Target: {what}. {rows}; {budget}.{how}{about_persons(rows, target)}"


def about_persons(rows: RowCount, target: Target) -> str:
    """Assumption of population intervals where a person may have several rows."""
    k = rows.rows_per_person
    if target == "table" or k == 1:
        return ""
    if rows.allowed_for and rows.from_totals:
        return (
            f" A person may have up to {k} rows: the sampling variance is that of sums over "
            "persons, from their measured squares and products."
            f"{OF_INDEPENDENT_ROWS}"
        )
    if rows.allowed_for:
        return (
            f" A person may have up to {k} rows: the sampling variance is taken as {k} times that "
            f"of independent rows, the most it can be.{OF_INDEPENDENT_ROWS}"
        )
    return f" {_not_allowed_for(k, 'here')}."


def _not_allowed_for(k: int, of: str) -> str:
    return (
        f"A person may have up to {k} rows, which are not independent: intervals and tests {of} do "
        "not allow for that, and may be too short or reject too often"
    )


def preview_of_persons(results: Mapping[str, Result], k: int) -> list[str]:
    """A line on those of some results whose intervals do not allow for k rows of a person."""
    names = [name for name, result in results.items() if _ignores_persons(result)]
    return [f"{_not_allowed_for(k, 'of ' + ', '.join(names))}."] if k > 1 and names else []


def _ignores_persons(result: Result) -> bool:
    rows: RowCount | None = getattr(result, "rows", None)  # an own class may have none
    if getattr(result, "design", None) is not None:  # of a survey: by units, which hold persons
        return False
    return result.of_population and (rows is None or not rows.allowed_for)
