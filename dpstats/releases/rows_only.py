"""Results from published rows and a radius alone: estimates with certified intervals and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.tables.chi_square_result import (
    effect_of,
    effect_of_table,
    no_certified_interval,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import (
    Alternative,
    Method,
    Target,
    check_alpha,
    check_alternative,
    check_method,
    check_target,
)
from dpstats.corrected.verdicts import CertifiedChiSquare
from dpstats.display import as_html
from dpstats.error_rates import for_noise, percent
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals
from dpstats.measured.bounded import ONLY_CERTIFIED
from dpstats.results.base import INTERVAL_COLUMNS, TARGETS, Result, about_persons, notes_for
from dpstats.results.hypothesis import HypothesisResult, tested_value
from dpstats.results.named import Named
from dpstats.results.rendering import MOST, Days, Numerals, Page, brief_list, more_rows, with_dates

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

_STEPS = 30  # of a bisection for a p-value


class _FromRows(Cached, Result):
    """A result with certified intervals alone, which prints at a level that its radius allows."""

    beta: float
    rows: RowCount
    n: tuple[int, int]

    @property
    def _shown_alpha(self) -> float:
        return 0.05 if self.beta < 0.05 else min(2 * self.beta, 0.5)

    def __str__(self) -> str:
        return self.summary(alpha=self._shown_alpha)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        return as_html(title, lines)

    def _foot(self, target: Target) -> str:
        (low, high), rows = self.n, self.rows
        known = f"n = {low} private rows" if low == high else f"n = {low} to {high} private rows"
        if not low <= rows.value <= high:
            known += f"; about {rows.value} of them are used, by the share of the published rows"
        return (
            f"Target: {TARGETS[target]}. {known}. Method: certified, from the rows and a radius "
            f"that holds with probability {percent(self.beta)}, which is counted."
            f"{about_persons(rows, target)}"
        )


@dataclass(frozen=True, repr=False, eq=False)
class RowsResult(_FromRows):
    """Estimates on published rows, with intervals certified by the published radius.

    An interval at level 1 - alpha spends `beta` on the radius and the rest on sampling, so alpha
    must be above beta (for the private table, at least beta).

    Attributes
    ----------
    terms : list of str
    params : (d,) Named
        What the analysis computes on the rows.
    intervals : Intervals
        Certified ones, given that the radius holds.
    beta : float
        Probability that the radius fails.
    rows : RowCount
        Number of private rows that the estimates are about, by the published rows: those with a
        value of every column that the analysis needs.
    n : (int, int)
        Bounds on the number of all private rows, equal where it is public.
    scalar : bool
        One parameter: ``conf_int`` then returns one pair, and ``test`` tests a value.
    notes : sequence of str
        Why intervals say nothing, where they do.
    dates : sequence of str
        The terms that are dates, see `EstimateResult`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> rows = pd.DataFrame({"smoker": [True] * 300 + [False] * 700})
    >>> smoking = dps.Proportion("smoker")
    >>> found = dps.corrected.infer(smoking, rows, radius=0.01, n=5_000, schema=schema)
    >>> print(found.params, found.conf_int().round(2))
    [0.3] [0.28 0.32]
    >>> found.test(0.5).pvalue <= 0.03
    True
    """

    terms: list[str]
    params: Named
    intervals: Intervals = field(compare=False)
    beta: float
    rows: RowCount
    n: tuple[int, int]
    scalar: bool = False
    notes: Sequence[str] = ()
    dates: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The first estimates with their intervals, at 95% unless the radius fails too often."""
        ends = np.asarray(self.conf_int(alpha=self._shown_alpha)).reshape(-1, 2)
        return brief_list(self.terms, self.params, ends, self.dates)

    @property
    def has_intervals(self) -> bool:
        """True."""
        return True

    @property
    def testable(self) -> bool:
        """Whether there is a single parameter."""
        return self.scalar

    def __float__(self) -> float:
        if len(self.terms) != 1:
            raise RequestError(f"float() needs a single parameter; this result has {self.terms}")
        return float(self.params[0])

    def conf_int(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "certified",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> Named:
        """Certified intervals at level 1 - alpha, the error of the radius included.

        Parameters
        ----------
        alpha : float
            Above `beta`; at least `beta` for the table.
        method : {"certified"}
        target : {"population", "table"}
        simultaneous : bool
            Cover all parameters together, instead of each by itself.

        Returns
        -------
        (d, 2) Named, or (2,) for a single parameter

        Raises
        ------
        RequestError
            For ``method="noise_aware"``, or an alpha that the radius alone exceeds.
        """
        _check_certified(method, target)
        left = left_of(alpha, self.beta, target)
        of = self.intervals.simultaneous if simultaneous else self.intervals.conf_int
        ends: Floats = self._once(
            (left, target, simultaneous), lambda: np.stack(of(left, "certified", target), axis=-1)
        )
        return Named(ends[0]) if self.scalar else Named(ends, self.terms)

    def intervals_frame(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "certified",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Columns term, estimate, conf_low, conf_high; options as in `conf_int`."""
        import pandas as pd

        ends = self.conf_int(alpha=alpha, method=method, target=target, simultaneous=simultaneous)
        low, high = np.asarray(ends).reshape(-1, 2).T
        columns = (self.terms, np.asarray(self.params), low, high)
        frame = pd.DataFrame(dict(zip(INTERVAL_COLUMNS, columns, strict=True)))
        return with_dates(frame, self.dates)

    def to_frame(self, *, alpha: float = 0.05, target: Target = "population") -> pd.DataFrame:
        """The frame of `intervals_frame`."""
        return self.intervals_frame(alpha=alpha, target=target)

    def test(
        self, value: float | date | str, alternative: Alternative = "two-sided"
    ) -> HypothesisResult:
        """Certified test of: the parameter equals `value` (single-parameter results only).

        The p-value is the smallest alpha whose interval excludes the value, on the side of the
        alternative. It is at least `beta`, and above 1/2 it counts as 1.

        Parameters
        ----------
        value : float, date or str
            A date, or text such as "2024-05-01", for a parameter that is a date.
        alternative : {"two-sided", "larger", "smaller"}

        Raises
        ------
        RequestError
            If there is more than one parameter.
        """
        if not self.scalar:
            raise RequestError(
                f"test() needs a single parameter, and this result has {len(self.terms)}; read "
                "their intervals with conf_int()"
            )
        check_alternative(alternative)
        dated = self.terms[0] in self.dates
        value = tested_value(value, dated)

        def rejected(alpha: float) -> bool:
            low, high = self.conf_int(alpha=alpha).tolist()
            above, below = low > value, high < value
            return (above and alternative != "smaller") or (below and alternative != "larger")

        pvalue = 1.0
        if rejected(0.5):
            lowest, pvalue = self.beta, 0.5
            for _ in range(_STEPS):
                middle = (lowest + pvalue) / 2
                lowest, pvalue = (lowest, middle) if rejected(middle) else (middle, pvalue)
        return HypothesisResult(
            self.title,
            f"{self.terms[0]} = {Days(0)(value) if dated else f'{value:g}'} in the population",
            np.nan,
            pvalue,
            alternative,
            self._foot("population"),
            notes=(f"no p-value is below {self.beta:g}, the probability that the radius fails",),
        )

    def summary(
        self, *, alpha: float = 0.05, target: Target = "population", most: int = MOST
    ) -> str:
        """Text table of the estimates with their certified intervals.

        Parameters
        ----------
        alpha : float
        target : {"population", "table"}
        most : int
            Largest number of parameters to print; `to_frame` has them all.
        """
        frame = self.intervals_frame(alpha=alpha, target=target)
        rows = []
        shown = frame.head(most)[list(INTERVAL_COLUMNS)]
        for term, estimate, low, high in shown.itertuples(index=False):
            dated = term in self.dates
            show = Days(0) if dated else Numerals.of((estimate, low, high), high - low)
            rows.append([str(term), show(estimate), show.certified(low, high)])
        notes = [f"Note: {note}" for note in notes_for(self.notes, target)]
        after = [self._foot(target), *notes]
        if len(frame) > most:
            after.append(f"Note: {more_rows(len(frame) - most)}")
        if len(frame) > 1:
            after.append("Note: the level is that of each interval, not of all of them jointly")
        header = ["", "on the rows", f"{percent(alpha)} certified"]
        return Page(self.title, (), header, rows, after=after).text()


@dataclass(frozen=True, repr=False, eq=False)
class RowsTest(_FromRows):
    """A certified chi-square test from published rows and a radius.

    Attributes
    ----------
    null : str
        The null hypothesis, as text.
    cells : list of str
    shares : (d,) float64
        Of the rows in each cell.
    beta : float
        Probability that the radius fails.
    rows : RowCount
        Number of private rows that the table is about, by the published rows.
    n : (int, int)
        Bounds on the number of all private rows, equal where it is public.
    effect_name : str
        Cohen's w or Cramer's V.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Boolean("ill")])
    >>> rows = pd.DataFrame({"smoker": [True] * 500 + [False] * 500, "ill": [True] * 300 + [
    ...     False] * 500 + [True] * 200})
    >>> link = dps.Independence("smoker", "ill")
    >>> found = dps.corrected.infer(link, rows, radius=0.005, n=5_000, schema=schema)
    >>> found.certified.verdict
    'reject'
    >>> found.verdict(alpha=0.1).verdict, found.conf_int(target="table").shape
    ('reject', (2,))
    """

    null: str
    cells: list[str]
    shares: Floats
    beta: float
    rows: RowCount
    n: tuple[int, int]
    effect_name: str
    levels: int
    largest_effect: float
    certified_at: Callable[[float], CertifiedChiSquare] = field(compare=False)

    @property
    def certified(self) -> CertifiedChiSquare:
        """The certified verdict at alpha = 0.05."""
        return self.verdict(alpha=0.05)

    def verdict(self, *, alpha: float = 0.05) -> CertifiedChiSquare:
        """The certified verdict at a level, the error of the radius included.

        Parameters
        ----------
        alpha : float
            Above `beta`.
        """
        left = left_of(alpha, self.beta, "population")
        certified = self._once(left, lambda: self.certified_at(left))
        return replace(certified, alpha=alpha, beta=certified.beta + self.beta)

    @property
    def has_intervals(self) -> bool:
        """False: the interval is that of an effect in the private table, see `conf_int`."""
        return False

    def test(self, value: float | None = None, alternative: Alternative = "two-sided") -> Result:
        """Refused: this is a test already.

        Raises
        ------
        RequestError
        """
        raise RequestError("this is a test already; its verdict is .certified, or verdict(alpha=)")

    def conf_int(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "certified",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> Floats:
        """Certified interval (2,) for the effect in the private table: with ``target="table"``.

        Parameters
        ----------
        alpha : float
            Above `beta`.
        method : {"certified"}
        target : {"table"}
        simultaneous : bool
            Ignored: there is one interval.

        Raises
        ------
        RequestError
            For ``method="noise_aware"``, which needs the release, and for the population.
        """
        _check_certified(method, target)
        if target == "population":
            raise RequestError(f"{no_certified_interval(self.effect_name)}; use target='table'")
        return effect_of(self.verdict(alpha=alpha), self.levels, self.largest_effect)

    @property
    def headline(self) -> str:
        """The verdict, at 5% unless the radius fails too often."""
        return str(self.verdict(alpha=self._shown_alpha))

    def to_frame(self) -> pd.DataFrame:
        """One row per cell: its share of the rows."""
        import pandas as pd

        return pd.DataFrame({"cell": self.cells, "share": self.shares})

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:
        """Text of the verdict; for the private table, also of the interval for its effect."""
        check_target(target)
        effect = f"{no_certified_interval(self.effect_name)}; see summary(target='table')"
        if target == "table":
            low, high = self.conf_int(alpha=alpha, target=target).tolist()
            effect = effect_of_table(self.effect_name, low, high, alpha)
        lines = [f"null hypothesis: {self.null}", str(self.verdict(alpha=alpha)), effect]
        return Page(self.title, lines, after=[self._foot(target)]).text()


def left_of(alpha: float, beta: float, target: Target) -> float:
    """Error left for sampling; for the table, where none is needed, alpha itself."""
    alpha = check_alpha(alpha)
    if target == "table" and alpha >= beta:
        return alpha
    if alpha <= beta:
        raise RequestError(
            f"alpha={alpha:g} must be above {beta:g}, the probability that the radius fails: ask "
            f"for the radius at release.radius(name, alpha={for_noise(alpha):g}), or for a "
            "larger alpha"
        )
    return alpha - beta


def _check_certified(method: Method, target: Target) -> None:
    """Refuse noise-aware intervals, which need the release."""
    check_method(method)
    check_target(target)
    if method == "noise_aware":
        raise RequestError(ONLY_CERTIFIED)
