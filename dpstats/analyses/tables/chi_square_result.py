"""Results of chi-square tests: calibrated p-value, classical statistic, certified verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np

from dpstats.analyses.tables.cells import TableOfCells, crosstab, with_levels
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Method, Target, check_alpha, check_choice, check_interval, check_target
from dpstats.corrected.chi_square import CertifiedChiSquare
from dpstats.error_rates import percent
from dpstats.errors import RequestError
from dpstats.results.base import Widths, footer
from dpstats.results.hypothesis import HypothesisResult
from dpstats.results.rendering import (
    MOST,
    Numerals,
    Page,
    brief,
    fixed,
    more_rows,
    shown_pvalue,
    significant,
)

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount


@dataclass(frozen=True, repr=False, eq=False)
class ChiSquareResult(Cached, HypothesisResult):
    """A chi-square test on noisy counts.

    `statistic` and `pvalue` are those of the calibrated test. All tables have one row per cell.

    Attributes
    ----------
    df : int
        Degrees of freedom of the classical statistic.
    cells : list of str
    observed, expected, residuals : (d,) float64
        Noisy counts, expected counts under the null, and residuals divided by their standard
        deviation (sampling and privacy noise).
    classical : str
        Name of the classical statistic: Pearson's, or Cochran-Mantel-Haenszel's with strata.
    pearson : float
        Value of the classical statistic on the noisy counts, not calibrated; for comparison.
    effect_name : str
        Cohen's w, sqrt(sum (p - p0)^2 / p0), or Cramer's V.
    effect : float
        Its estimate, corrected for the bias of the noise, from 0 to `largest_effect`.
    levels : int
        The squared effect is the statistic over n times this: min(R, C) - 1 for Cramer's V, else 1.
    largest_effect : float
    rows, budget :
        As of `EstimateResult`.
    certified_at, effect_at : functions of alpha
        The certified verdict at a level, and the noise-aware interval (2,) for the effect.
    tables : tuple of TableOfCells
        The table of the cells, if they are those of one.
    used : mapping of str to tuple of str
        Levels of each column that the tests and the effect use, where some declared ones may have
        no rows; empty for given probabilities. Other cells have no expected count.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> fit = dps.GoodnessOfFit("smoker", [0.5, 0.5])
    >>> plan = dps.plan(schema, {"fit": fit}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> result = dps.release(plan, rows).infer(fit)
    >>> result.certified.verdict, result.nobs
    ('reject', 10000)
    >>> print(result.conf_int().round(1))
    [0.4 0.4]
    >>> print(result.conf_int(method="certified", target="table").round(1))
    [0.4 0.4]
    >>> print(result.crosstab("smoker").round(-2))
    smoker   False    True
    0       7000.0  3000.0
    """

    methods: ClassVar[tuple[str, ...]] = get_args(Method)
    certified_target: ClassVar[Target] = "table"

    df: int
    cells: list[str]
    observed: Floats
    expected: Floats
    residuals: Floats
    classical: str
    pearson: float
    effect_name: str
    effect: float
    levels: int
    largest_effect: float
    rows: RowCount
    budget: str
    certified_at: Callable[[float], CertifiedChiSquare] = field(compare=False)
    effect_at: Callable[[float], Floats] = field(compare=False)
    tables: tuple[TableOfCells, ...] = field(default=(), kw_only=True)
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)

    def _certified(self, alpha: float) -> CertifiedChiSquare:
        alpha = check_alpha(alpha)
        return self._once(("certified", alpha), lambda: self.certified_at(alpha))

    def _effect(self, alpha: float) -> Floats:
        alpha = check_alpha(alpha)
        return self._once(("effect", alpha), lambda: self.effect_at(alpha)).copy()

    @property
    def nobs(self) -> int:
        """Number of private rows, or its estimate."""
        return self.rows.value

    @property
    def pearson_pvalue(self) -> float:
        """Tail probability of `pearson` under the chi-square distribution."""
        from scipy import special

        return float(special.chdtrc(self.df, self.pearson))

    @property
    def headline(self) -> str:
        """The p-value, and the effect with its 95% interval if there is one."""
        if self._has_no_effect:
            return "no test" if np.isnan(self.statistic) else super().headline
        effect = brief(self.effect_name, self.effect, *self.effect_interval.tolist())
        return f"{super().headline}; {effect}"

    @property
    def _has_no_effect(self) -> bool:
        """True if the effect is undefined, not merely unknown."""
        return bool(np.isnan(self.effect) and np.isinf(self.certified.critical))

    @property
    def interval_of(self) -> str:
        """The effect; the certified interval is that of the private table's effect."""
        return self.effect_name

    @property
    def main_terms(self) -> list[str]:
        """The effect."""
        return [self.effect_name]

    def preview_widths(self, method: Method, alpha: float = 0.05) -> Widths:
        """Width of the interval that the method has, see `conf_int`; the least effect is 0."""
        target = "population" if method == "noise_aware" else self.certified_target
        width = np.diff(self.conf_int(alpha=alpha, method=method, target=target))
        return Widths(self.main_terms, width, np.array([self.largest_effect]))

    @property
    def certified(self) -> CertifiedChiSquare:
        """The certified verdict at alpha = 0.05."""
        return self._certified(0.05)

    @property
    def effect_interval(self) -> Floats:
        """Noise-aware 95% interval (2,) for the effect size."""
        return self._effect(0.05)

    def conf_int(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> Floats:
        """Interval for the effect size at level 1 - alpha.

        There are two: the noise-aware interval for the population's effect, and the certified
        interval for the private table's own effect, which is that of the statistic on the scale of
        the effect.

        Parameters
        ----------
        alpha, method, target, simultaneous :
            As in `EstimateResult.conf_int`; the last is ignored, as there is one interval.

        Returns
        -------
        (2,) float64

        Raises
        ------
        RequestError
            For any other combination of method and target.
        """
        check_interval(alpha, method, target)
        if (method, target) == ("noise_aware", "population"):
            return self._effect(alpha)
        if why := self.lacking(method, target):
            raise RequestError(why)
        return effect_of(self._certified(alpha), self.levels, self.largest_effect)

    def lacking(self, method: str, target: Target = "population") -> str:
        """Why there is no such interval for the effect."""
        if (method, target) == ("noise_aware", "table"):
            return (
                f"there is no noise-aware interval for {self.effect_name} of the private table; "
                "the certified one holds for any data: use method='certified'"
            )
        if (method, target) == ("certified", "population"):
            return (
                f"{no_certified_interval(self.effect_name)}; use target='table', or "
                "method='noise_aware'"
            )
        return super().lacking(method, target)

    def to_frame(self) -> pd.DataFrame:
        """One row per cell.

        Returns
        -------
        DataFrame
            Columns cell, one of levels for each column of the table, observed, expected and
            residual.
        """
        return with_levels(self._counts(), self.tables, "cell")

    def _counts(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(
            {
                "cell": self.cells,
                "observed": self.observed,
                "expected": self.expected,
                "residual": self.residuals,
            }
        )

    def crosstab(self, *columns: str, values: str = "observed") -> pd.DataFrame:
        """The table as rows and columns, as ``pandas.crosstab`` has them.

        Parameters
        ----------
        *columns : str
            All columns of the table, strata included: the last one across, the others down.
        values : {"observed", "expected", "residual"}
            Noisy counts, those expected under the null hypothesis, or standardised residuals.

        Returns
        -------
        DataFrame
            The levels of the last column across, those of the others as index.

        Raises
        ------
        RequestError
            If these are not the columns of the table, or the values are not known.
        """
        frame = self._counts()
        check_choice("values", values, list(frame.columns[1:]))
        return crosstab(self.tables, columns, frame[values])

    def summary(
        self, *, alpha: float = 0.05, target: Target = "population", most: int = MOST
    ) -> str:
        """Text of the result.

        Parameters
        ----------
        alpha : float
            Error probability of the certified verdict and of the interval for the effect.
        target : {"population", "table"}
            For the private table: the certified verdict, and the certified interval for its effect.
        most : int
            Largest number of cells to print; `to_frame` has them all.

        Returns
        -------
        str
        """
        check_target(target)
        return self._page(target, alpha, most).text()

    def _page(self, target: Target, alpha: float = 0.05, most: int = MOST) -> Page:
        rows = [
            [cell, fixed(observed, 1), fixed(expected, 1), fixed(residual, 2)]
            for cell, observed, expected, residual in zip(
                self.cells, self.observed, self.expected, self.residuals, strict=True
            )
        ][:most]
        left = len(self.cells) - len(rows)
        more = [more_rows(left)] if left else []
        notes = self.notes if target == "population" else ()
        remarks = [f"Note: {note}" for note in (*more, *notes)]
        lines, foot = self._of_population(alpha), self.footer
        if target == "table":
            lines = self._of_table(alpha)
            foot = footer(self.rows, self.budget, "certified (any data, worst case)", target)
        return Page(
            self.title,
            [f"null hypothesis: {self.null}", "", *lines],
            ["cell", "observed", "expected", "residual"],
            rows,
            after=[*foot.splitlines(), *remarks],
        )

    def _of_population(self, alpha: float) -> list[str]:
        certified, (low, high) = self._certified(alpha), self._effect(alpha)
        show = Numerals.of((self.effect, low, high), high - low)
        k = self.rows.rows_per_person
        over = f", divided by the {k} rows that a person may have" if k > 1 else ""
        effect = f"{self.effect_name} = {show(self.effect)} {show.interval(low, high)}"
        effects = [] if self._has_no_effect else [f"{effect} ({percent(alpha)} interval)"]
        if np.isnan(self.statistic):
            return [str(certified), *effects]
        return [
            f"p-value {shown_pvalue(self.pvalue)} (statistic {significant(self.statistic)}, "
            "calibrated for noise)",
            f"{self.classical} statistic of the noisy counts{over}: {fixed(self.pearson, 2)} on "
            f"{self.df} df (p-value {shown_pvalue(self.pearson_pvalue)} if there were no noise; "
            "not valid here)",
            str(certified),
            *effects,
        ]

    def _of_table(self, alpha: float) -> list[str]:
        low, high = self.conf_int(alpha=alpha, method="certified", target="table")
        return [str(self._certified(alpha)), effect_of_table(self.effect_name, low, high, alpha)]


def no_certified_interval(effect: str) -> str:
    """Why a chi-square test has no certified interval for the population's effect."""
    return f"there is no certified interval for {effect} of the population"


def effect_of_table(effect: str, low: float, high: float, alpha: float) -> str:
    """The line with the certified interval for the private table's own effect."""
    ends = Numerals.of((low, high), high - low).interval(low, high)
    return f"{effect} of the private table: {ends} ({percent(alpha)} certified interval)"


def effect_of(certified: CertifiedChiSquare, levels: int, largest: float) -> Floats:
    """Interval (2,) for the effect in the private table, from that of its statistic."""
    squares = np.array([certified.low, certified.high]) / certified.sizes[::-1] / levels
    return np.asarray(np.minimum(np.sqrt(squares), largest))


def noise_notes(excess: float, df: int, expected: Floats, *, with_effect: bool = True) -> list[str]:
    """Warnings about noise and small cells.

    Under the null the mean of Pearson's statistic is `df` plus `excess`, the part of the noise.
    """
    share = excess / (excess + df)
    notes = []
    if share > 0.5:
        notes.append(
            f"privacy noise makes up {share:.0%} of the null mean of Pearson's statistic: a large "
            "p-value is no evidence for the null hypothesis"
            + ("; use the interval for the effect" if with_effect else "")
        )
    if expected.min() < 5:
        notes.append(
            f"{int(np.sum(expected < 5))} cells expect fewer than 5 rows; the calibrated p-value "
            "allows for that, the classical chi-square approximation does not"
        )
    return notes


def standardised(departures: Floats, sampling: Floats, noise_variance: Floats) -> Floats:
    """Observed less expected counts over their standard deviation under the null, (d,)."""
    return np.asarray(departures / np.sqrt(np.maximum(sampling + noise_variance, 1e-300)))
