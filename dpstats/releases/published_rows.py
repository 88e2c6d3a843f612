"""Inference from published rows, a radius and n alone, without the release.

The rows are a view as analyses get it: answers are means over the rows, each with a bound in place
of a noise law. An analysis computes its estimates on the rows, as BL24 does; results show only
certified intervals and tests, which need bounds and no law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

import numpy as np
import pyarrow as pa

from dpstats.analyses.base import Analysis, answered
from dpstats.analyses.registry import BUILT_IN, checked_result, spelled
from dpstats.analyses.tables.chi_square_result import (
    effect_of,
    effect_of_table,
    no_certified_interval,
)
from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.checks import (
    Alternative,
    Method,
    Target,
    check_alpha,
    check_alternative,
    check_counts,
    check_method,
    check_number,
    check_target,
    columns_named,
    short,
)
from dpstats.corrected.chi_square import CertifiedChiSquare
from dpstats.display import as_html
from dpstats.error_rates import USUAL_BETA, for_noise, percent
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.contrasts import Contrasts
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import ROWS
from dpstats.inference.intervals import Intervals
from dpstats.measured.answers import blocks_of
from dpstats.measured.bounded import ONLY_CERTIFIED, Bounded, BoundedAnswers, Switch
from dpstats.measured.radius import Radius, Rows, SpectralRadius
from dpstats.measured.row_count import RowCount
from dpstats.results.base import INTERVAL_COLUMNS, SILENT, TARGETS, Result, about_persons, notes_for
from dpstats.results.estimates import EstimateResult
from dpstats.results.hypothesis import HypothesisResult, tested_value
from dpstats.results.named import Named
from dpstats.results.rendering import MOST, Days, Numerals, Page, brief_list, more_rows, with_dates
from dpstats.roots import bisect
from dpstats.schema import Category, Column, Schema, arrow

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.privacy.budget import Budget

_STEPS = 30  # of a bisection for a p-value
_READ = 'pandas.read_csv("rows.csv", dtype=str, keep_default_na=False)'
_READ_AS_TEXT = f"read them as text, with {_READ}"


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

    has_intervals: ClassVar[bool] = True

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
    def testable(self) -> bool:
        """True if there is a single parameter."""
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

    def intervals_frame(  # noqa: D102, inherited
        self,
        *,
        alpha: float = 0.05,
        method: Method = "certified",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        import pandas as pd

        ends = self.conf_int(alpha=alpha, method=method, target=target, simultaneous=simultaneous)
        low, high = np.asarray(ends).reshape(-1, 2).T
        columns = (self.terms, np.asarray(self.params), low, high)
        frame = pd.DataFrame(dict(zip(INTERVAL_COLUMNS, columns, strict=True)))
        return with_dates(frame, self.dates)

    def to_frame(self, *, alpha: float = 0.05, target: Target = "population") -> pd.DataFrame:
        """`intervals_frame` of the certified intervals.

        Parameters
        ----------
        alpha, target :
            As in `conf_int`.

        Returns
        -------
        DataFrame
        """
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

        Returns
        -------
        HypothesisResult

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
        value = tested_value(value, self.intervals, dated)

        def rejected(alpha: float) -> bool:
            low, high = self.conf_int(alpha=alpha).tolist()
            above, below = low > value, high < value
            return (above and alternative != "smaller") or (below and alternative != "larger")

        pvalue = bisect(rejected, self.beta, 0.5, _STEPS) if rejected(0.5) else 1.0
        return HypothesisResult(
            self.title,
            f"{self.terms[0]} = {Days(0)(value) if dated else f'{value:.10g}'} in the population",
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

        Returns
        -------
        str
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

        Returns
        -------
        CertifiedChiSquare
        """
        left = left_of(alpha, self.beta, "population")
        certified = self._once(left, lambda: self.certified_at(left))
        return replace(certified, alpha=alpha, beta=certified.beta + self.beta)

    def test(self, value: float | None = None, alternative: Alternative = "two-sided") -> NoReturn:
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
        """Certified interval for the effect in the private table: with ``target="table"``.

        Parameters
        ----------
        alpha : float
            Above `beta`.
        method : {"certified"}
        target : {"table"}
        simultaneous : bool
            Ignored: there is one interval.

        Returns
        -------
        (2,) float64

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
        """One row per cell.

        Returns
        -------
        DataFrame
            Columns cell and share, of the rows.
        """
        import pandas as pd

        return pd.DataFrame({"cell": self.cells, "share": self.shares})

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:  # noqa: D102, inherited
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
    check_method(method)
    check_target(target)
    if method == "noise_aware":
        raise RequestError(ONLY_CERTIFIED)


def infer(
    analysis: Analysis[Result],
    rows: pd.DataFrame,
    *,
    radius: Mapping[str, float] | float,
    n: Rows | None = None,
    schema: Schema,
    beta: float | None = None,
) -> RowsResult | RowsTest:
    """Estimates on published rows with certified intervals and tests, from a radius and n alone.

    Estimates are what the analysis computes on the rows: proportions, least squares, principal
    components. On the event that every mean over the rows is within the radius of that over the
    private rows, certified intervals given the bounds err with probability alpha - beta at most;
    the event fails with probability beta at most; so they err with probability alpha at most.

    Parameters
    ----------
    analysis : Analysis
        Of dpstats, or your own if its intervals are those of dpstats, or have an attribute
        ``from_bounds = True``: then its certified intervals use the noise only through
        ``law(f).quantile`` and ``rows.bounds``.
    rows : DataFrame
        The synthetic rows, in original units: ``release.to_frame()``, or ``rows.csv`` read as text,
        ``pandas.read_csv("rows.csv", dtype=str, keep_default_na=False)``. Cells that a reader has
        made numbers of are accepted where they tell the levels apart.
    radius : mapping of function name to float, or float
        ``release.radius("name")``, which also knows the error of a covariance matrix as a whole. Or
        one number that bounds every function of the analysis in unit scale, such as
        ``release.radius("name").max``; then intervals are never shorter. The headline of a
        certificate bounds measured functions, and an analysis may use sums of them: take the radius
        of the analysis.
    n : int, or (int, int)
        Number of private rows, or bounds on it where it is not public, as ``release.radius("name")
        .n``, which hold jointly with the radius. Not needed with ``release.radius("name")``.
    schema : Schema
    beta : float, optional
        Probability that a number or a plain mapping fails, 0.025 if not given: half the error of a
        95% interval. ``release.radius("name")`` has its own.

    Returns
    -------
    RowsResult, or RowsTest for a chi-square test

    References
    ----------
    Bojkovic, N. and Loh, P.-L. (2024). Differentially private synthetic data with private density
    estimation. IEEE ISIT.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> smoking = dps.Proportion("smoker")
    >>> plan = dps.plan(schema, {"smoking": smoking}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> published, radius = release.to_frame(), release.radius("smoking")
    >>> found = dps.corrected.infer(smoking, published, radius=radius, schema=schema)
    >>> print(found.conf_int().round(2), found.beta)
    [0.29 0.31] 0.025
    """
    if isinstance(analysis, type | str) or not hasattr(analysis, "infer"):
        raise RequestError(
            "infer takes an analysis with its parameters, such as "
            "dps.Proportion(\"smoker == 'yes'\"): rows have no names of analyses; got "
            f"{short(analysis)}"
        )
    if not isinstance(schema, Schema):
        raise RequestError(
            f"schema must be the dps.Schema of the rows, got {type(schema).__name__}"
        )
    if schema.design is not None:
        raise RequestError(
            "intervals from synthetic rows alone take the private rows as independent draws, and "
            "the schema declares a survey design: use infer of the release itself"
        )
    family = answered(analysis, schema)
    known = _Known.of(analysis, family, radius, n, beta)
    view = PublishedRows(
        schema, _coded(analysis, schema, rows), known, family, Switch(refused=False)
    )
    result = checked_result(analysis, view)
    if not _reads_bounds(analysis, result):
        raise RequestError(
            f"{ONLY_CERTIFIED}. Intervals of your own declare from_bounds = True if bounds are all "
            "that they use"
        )
    view.draws.refused = True
    found: Any = result
    shared: dict[str, Any] = {"title": result.title, "beta": known.beta, "n": known.n}
    if hasattr(result, "rows"):
        k = radius.rows_per_person if isinstance(radius, Radius) else 1
        shared["rows"] = replace(found.rows, rows_per_person=k)
    if hasattr(result, "certified_at"):  # a chi-square test
        return RowsTest(
            null=found.null,
            cells=found.cells,
            shares=np.asarray(found.observed) / known.size,
            effect_name=found.effect_name,
            levels=found.levels,
            largest_effect=found.largest_effect,
            certified_at=found.certified_at,
            **shared,
        )
    if not isinstance(result, EstimateResult):
        raise RequestError(
            f"{spelled(analysis)} gives a {type(result).__name__}, which has no certified "
            "intervals from a radius; infer it from the release"
        )
    return RowsResult(
        terms=result.terms,
        params=Named(np.asarray(result.params), result.terms),
        intervals=result.intervals,
        scalar=result.scalar,
        notes=[note for note in result.notes if note.startswith(SILENT)],
        dates=result.dates,
        **shared,
    )


def _reads_bounds(analysis: Analysis[Result], result: Result) -> bool:
    """True if certified intervals are known to use bounds on the noise, not its law."""
    if type(analysis).__module__.startswith("dpstats.") and analysis.kind in BUILT_IN:
        return True
    intervals = getattr(result, "intervals", None)
    ours = type(intervals).__module__.startswith("dpstats.")
    return isinstance(result, EstimateResult) and (ours or getattr(intervals, "from_bounds", False))


@dataclass(frozen=True)
class _Known:
    """The radius and the number of rows that were published beside the rows."""

    radii: Mapping[str, float]  # bounds by the name of the function, unit scale
    sums: Mapping[str, float]  # the same for sums over `size`, where known to be sharper
    n: tuple[int, int]  # bounds on the number of private rows
    size: int  # that number, or an estimate between the bounds
    beta: float
    spectral: SpectralRadius | None

    @classmethod
    def of(
        cls,
        analysis: Analysis[Result],
        family: Family,
        radius: Mapping[str, float] | float,
        n: Rows | None,
        beta: float | None,
    ) -> _Known:
        """Checked arguments of `infer`."""
        if isinstance(radius, Radius):
            if n is not None and check_counts(n) != check_counts(radius.n):
                raise RequestError(f"n differs from that of the radius, {radius.n}; leave n out")
            if beta is not None:
                raise RequestError(
                    f"the radius has its own beta, {radius.alpha:g}; leave beta out, or ask for "
                    f"release.radius(name, alpha={beta:g})"
                )
            n, beta = radius.n, radius.alpha
        elif n is None:
            raise RequestError(
                "n is needed with a radius that is not release.radius(name): the number of private "
                "rows, or a pair (low, high) of bounds on it"
            )
        ends = check_counts(n)
        beta = USUAL_BETA if beta is None else check_number("beta", beta)
        if not 0 <= beta < 0.5:
            raise RequestError(
                f"beta={beta:g} must be at least 0 and below 1/2: it is the probability that the "
                "radius fails"
            )
        if isinstance(radius, Mapping):
            radii = {name: _checked(f"radius of {name!r}", value) for name, value in radius.items()}
        else:
            radii = dict.fromkeys(family.names, _checked("radius", radius))
        size, sharper, spectral = sum(ends) // 2, dict[str, float](), None
        if isinstance(radius, Radius):
            if radius.names == tuple(family.names) and hasattr(analysis, "spectral_radius"):
                spectral = radius.spectral
            if radius.of_sums is not None and radius.estimate is not None:
                size = int(np.clip(radius.estimate, *ends))
                by_name = dict(zip(radius.names, radius.of_sums.tolist(), strict=True))
                if size == radius.estimate and len(by_name) == len(radius.names):
                    sharper = by_name  # else two functions have one name
        return cls(radii, sharper, ends, size, beta, spectral)

    @property
    def public(self) -> bool:
        """True if the number of rows is known."""
        return self.n[0] == self.n[1]

    @property
    def off(self) -> float:
        """Bound on the distance of the number of rows from `size`."""
        return float(max(self.n[1] - self.size, self.size - self.n[0]))

    def of_sum(self, name: str, mean: float, radius: float) -> float:
        """Bound on the distance of mean_Y f from S_f / (size B_f), from that of the means.

        S / size = (n / size) mean_X, and mean_X is within the radius of mean_Y.
        """
        if self.public:
            return radius
        from_mean = self.n[1] / self.size * radius + abs(mean) * self.off / self.size
        return min(from_mean, self.sums.get(name, np.inf))


@dataclass(frozen=True, eq=False)
class PublishedRows(Cached):
    """Published rows as a view for analyses; see `dps.ReleaseView`."""

    schema: Schema
    codes: Mapping[str, Codes]
    known: _Known
    family: Family  # the functions that the radius is about
    draws: Switch

    @property
    def n(self) -> int:
        """Number of private rows, or an estimate of it."""
        return self.known.size

    @property
    def budget(self) -> Budget:
        """Not known here; it prints as a remark."""
        return cast("Budget", "the budget is that of the release")

    @cached_property
    def _distinct(self) -> tuple[dict[str, Codes], Floats]:
        names = list(self.codes)
        stacked = np.stack([self.codes[name] for name in names], axis=1)
        distinct, counts = np.unique(stacked, axis=0, return_counts=True)
        codes = {name: np.ascontiguousarray(distinct[:, i]) for i, name in enumerate(names)}
        return codes, counts / counts.sum()

    @property
    def candidates(self) -> Mapping[str, Codes]:
        """The distinct rows."""
        return self._distinct[0]

    @property
    def weights(self) -> Floats:
        """Their shares."""
        return self._distinct[1]

    @property
    def contrasts(self) -> Sequence[Contrasts]:
        """None: synthetic rows have no units."""
        return ()

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> BoundedAnswers:
        """Means over the rows as sums over `n`, each with a bound; see `Release.answers`."""
        known, blocks = self.known, list(blocks_of(wanted, self.schema))
        if any(isinstance(block, PilotScore) for block in blocks):
            raise NotMeasuredError("the rows do not follow the second stage of a regression")
        names = [name for block in blocks for name in block.names]
        means = [block.evaluate(self.candidates).average(self.weights) for block in blocks]
        units = np.concatenate([block.bounds for block in blocks])
        sums = known.size * np.concatenate(means)
        radii = np.concatenate([self._radii(block) for block in blocks])
        unit_means = sums / (known.size * units)
        every = zip(names, unit_means.tolist(), radii.tolist(), strict=True)
        bounds = known.size * units * np.array([known.of_sum(*parts) for parts in every])
        count = None if known.public else Bounded(known.off)
        if with_count and count is not None:
            names += ROWS.names
            sums, units = np.append(sums, known.size), np.append(units, ROWS.bounds)
            bounds = np.append(bounds, known.off)
        distinct, law_of = np.unique(bounds, return_inverse=True)
        return BoundedAnswers(
            names=names,
            sums=sums,
            bounds=units,
            rows=RowCount(float(known.size), count),
            uniforms=np.zeros(len(sums)),
            law_table=list(map(Bounded, distinct.tolist())),
            law_of=law_of,
            _rows=cast("Any", None),
            _measured=([], np.zeros(0, dtype=np.intp)),
            spectral=known.spectral,
            _asked=tuple(blocks),
            _draws=self.draws,
        )

    def _radii(self, block: Block) -> Floats:
        """(d,) bounds on the errors of the means of a block, unit scale.

        A function without one follows from others, whose bounds add up. Coarse moments have none.
        """
        radii = np.array([self.known.radii.get(name, np.inf) for name in block.names])
        if block.calibrates:
            low, high = block.ranges
            return np.asarray((high - low) / block.bounds)  # fine functions have the same names
        for source in self.family.blocks if np.isinf(radii).any() else ():
            derivation = source.derive(block)
            if derivation is None:
                continue
            source_radii = np.array([self.known.radii.get(name, np.inf) for name in source.names])
            total, used = np.zeros(block.size), derivation.member >= 0
            np.add.at(total, derivation.member[used], (source_radii * source.bounds)[used])
            radii = np.where(derivation.terms > 0, np.minimum(radii, total / block.bounds), radii)
        if lacking := [n for n, r in zip(block.names, radii, strict=True) if np.isinf(r)]:
            raise RequestError(
                f"the radius has no entry for {lacking[0]!r}"
                + (f" and {len(lacking) - 1} more functions" if lacking[1:] else "")
                + "; give release.radius(name) of this analysis, or one number that bounds all its "
                "functions"
            )
        return radii


def _checked(name: str, value: float) -> float:
    value = check_number(name, value)
    if value < 0:
        raise RequestError(f"{name} must not be negative, got {value:g}")
    return value


def _coded(analysis: Analysis[Result], schema: Schema, rows: pd.DataFrame) -> dict[str, Codes]:
    """Codes of the published rows, which are public, in the columns that the analysis needs."""
    import pandas as pd

    if not isinstance(rows, pd.DataFrame) or not len(rows):
        got = "one without rows" if isinstance(rows, pd.DataFrame) else type(rows).__name__
        raise RequestError(
            "rows must be a DataFrame with at least one row, such as release.to_frame() or "
            f"{_READ}; got {got}"
        )
    needed = analysis.family(schema).column_names
    if lacking := [name for name in schema.names if name in needed and name not in rows.columns]:
        raise RequestError(
            f"the rows have no {columns_named(lacking)}, which {spelled(analysis)} needs"
        )
    return {name: _codes_of(schema[name], rows[name]) for name in schema.names if name in needed}


def _codes_of(column: Column, cells: pd.Series[Any]) -> Codes:
    """Codes of one column of labels or numbers, of which a reader may have made the other."""
    import pandas as pd

    which, distinct = pd.factorize(cells, use_na_sentinel=False)
    every = distinct.to_numpy()
    lacking = pd.isna(every)
    texts = [None if no else str(cell) for cell, no in zip(every, lacking, strict=True)]
    values = pa.array(texts, pa.large_string())
    if isinstance(column, Category):
        spelled = arrow.floats(pa.array(column.bin_labels, pa.large_string()))
        spelled = spelled[~np.isnan(spelled)]
        whole = all(no or isinstance(cell, str) for cell, no in zip(every, lacking, strict=True))
        if lacking.any() or (not whole and len(np.unique(spelled)) < len(spelled)):
            raise RequestError(
                f"the rows hold numbers or missing cells in place of levels of {column.name!r}, as "
                f"readers make of texts such as '01' and 'NA'; {_READ_AS_TEXT}"
            )
        codes = arrow.level_codes(values, column.bin_labels, missing=-1, other=-1)
        if (codes < 0).any():  # its value may be a private one, if the rows are
            raise RequestError(
                f"the rows hold a value of {column.name!r} that the schema does not declare; give "
                f"published rows and their schema, and {_READ_AS_TEXT}"
            )
        return np.asarray(codes[which], dtype=np.int64)
    numbers = arrow.days(values) if column.dates else arrow.floats(values)
    unread = np.isnan(numbers)
    if np.any(unread & ~arrow.absent(values, numbers=not column.dates)):
        raise RequestError(
            f"the rows hold a value of {column.name!r} that is no "
            f"{'date' if column.dates else 'number'}; give the schema of these rows"
        )
    if unread.any() and not column.allow_missing:
        raise RequestError(
            f"the rows hold {column.name!r} without a value, and the schema declares no "
            "allow_missing; give the schema of these rows"
        )
    lowest, highest = float(column.grid[0]), float(column.grid[-1])
    if np.any((numbers < lowest) | (numbers > highest)):  # of NaN neither is true
        raise RequestError(
            f"the rows hold a value of {column.name!r} outside {column.text(lowest)} to "
            f"{column.text(highest)}, which the schema declares; give published rows and their "
            "schema"
        )
    return column.encode_numbers(numbers)[which]  # no row holds a code for a missing cell
