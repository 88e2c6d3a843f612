"""Results of analyses and how they print; one frame is the source of every printed number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import (
    Alternative,
    Method,
    Target,
    check_alpha,
    check_alternative,
    check_choice,
    check_number,
)
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals
from dpstats.results.rendering import as_html, html_table, shown_pvalue, table_of, text_table

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount
    from dpstats.privacy.budget import Budget


FRAME_COLUMNS = (
    "term",
    "estimate",
    "std_error",
    "statistic",
    "p_value",
    "conf_low",
    "conf_high",
    "privacy_share",
)
_TARGETS = {
    "population": "the population (rows assumed independent draws; no weights, no clusters)",
    "table": "the private table itself",
}
_METHODS = {
    "noise_aware": "noise-aware (sampling and the known law of the privacy noise)",
    "certified": "certified (finite sample, any data, worst case)",
}


@dataclass(frozen=True, repr=False)
class HypothesisResult:
    """A test of one hypothesis.

    Attributes
    ----------
    title : str
    null : str
        The hypothesis in words.
    statistic, pvalue : float
        The statistic is nan where the standard error is zero or infinite; the p-value needs none.
        P-values are accurate to about 1e-6; below that they print as such.
    alternative : str
    footer : str
        Method, target, budget and assumptions.
    notes : tuple of str
        What else a reader must know.
    """

    title: str
    null: str
    statistic: float
    pvalue: float
    alternative: Alternative
    footer: str
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def summary(self) -> str:
        """Text of the result."""
        return "\n".join([self.title, *self._lines()])

    def _lines(self) -> list[str]:
        return [
            f"null hypothesis: {self.null}; alternative: {self.alternative}",
            f"{self._evidence()}p-value {shown_pvalue(self.pvalue)}",
            *self.footer.splitlines(),
            *(f"Note: {note}" for note in self.notes),
        ]

    def _evidence(self) -> str:
        return f"statistic = {self.statistic:.4g}, " if np.isfinite(self.statistic) else ""

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return as_html(self.title, self._lines())


@dataclass(frozen=True, repr=False)
class EstimateResult(Cached):
    """Estimates with intervals that account for sampling and for privacy noise.

    Attributes
    ----------
    title : str
    terms : list of str
        Names of the d parameters.
    params : (d,) float64
        Estimates.
    sampling_variance, privacy_variance : (d,) float64
        The two parts of each squared standard error.
    intervals : Intervals
        The exact law behind the numbers.
    scalar : bool
        One parameter: ``conf_int`` then returns one pair.
    rows : RowCount
        Number of private rows.
    budget : str
        The budget of the release, for the footer.
    notes : sequence of str
        What else a reader must know.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> smoking = release.infer("smoking")
    >>> print(smoking.params.round(2), smoking.bse.round(4))
    [0.3] [0.0046]
    >>> print(smoking.conf_int(alpha=0.1, method="certified").round(2))
    [0.29 0.31]
    >>> smoking.test(0.25, alternative="larger").pvalue < 1e-6
    True
    """

    title: str
    terms: list[str]
    params: Floats
    sampling_variance: Floats
    privacy_variance: Floats
    intervals: Intervals
    rows: RowCount
    budget: str
    scalar: bool = False
    notes: Sequence[str] = ()

    @property
    def interval_of(self) -> str:
        """What the intervals are of, in whose unit a preview tells their widths."""
        return "proportion" if self.scalar else "proportions"

    @property
    def alike(self) -> int:
        """How many of the first parameters are of that kind."""
        return len(self.terms)

    @property
    def previewed(self) -> slice:
        """Which parameters those are."""
        return slice(self.alike)

    @property
    def nobs(self) -> int:
        """Number of private rows, or its estimate."""
        return self.rows.value

    @property
    def bse(self) -> Floats:
        """Standard errors (d,), sampling and privacy together."""
        return np.sqrt(self.sampling_variance + self.privacy_variance)

    @property
    def privacy_share(self) -> Floats:
        """Privacy variance over total variance, (d,); nan where both are infinite."""
        sampling, privacy = self.sampling_variance, self.privacy_variance
        part = np.where(np.isinf(privacy), np.where(np.isinf(sampling), np.nan, 1.0), 0.0)
        total = sampling + privacy
        known = (total > 0) & np.isfinite(total)
        return np.divide(privacy, total, out=part, where=known)

    def conf_int(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> Floats:
        """Confidence intervals at level 1 - alpha.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        method : {"noise_aware", "certified"}
            Exact inversion of the known law of sampling plus noise, or the finite-sample worst
            case.
        target : {"population", "table"}
            What is covered: the population's value, or the private table's own.
        simultaneous : bool
            Cover all parameters together with probability 1 - alpha, instead of each by itself.

        Returns
        -------
        (d, 2) float64, or (2,) for a single parameter
        """
        check_alpha(alpha)
        check_choice("method", method, get_args(Method))
        check_choice("target", target, get_args(Target))
        of = self.intervals.simultaneous if simultaneous else self.intervals.conf_int
        ends: Floats = self._once(
            (alpha, method, target, simultaneous),
            lambda: np.stack(of(alpha, method, target), axis=-1),
        )
        return ends[0].copy() if self.scalar else ends.copy()

    def test(self, value: float, alternative: Alternative = "two-sided") -> HypothesisResult:
        """Test whether the parameter equals `value` (single-parameter results only).

        Parameters
        ----------
        value : float
        alternative : {"two-sided", "larger", "smaller"}
        """
        if not self.scalar:
            raise RequestError("test() needs a single parameter; ask for one analysis per question")
        check_alternative(alternative)
        value = check_number("value", value)
        pvalue = float(self.intervals.pvalues(value, alternative)[0])
        return self._tested(0, value, pvalue, alternative)

    def _tested(
        self, i: int, value: float, pvalue: float, alternative: Alternative
    ) -> HypothesisResult:
        """The result of a test of parameter number i."""
        error = float(self.bse[i])
        score = (float(self.params[i]) - value) / error if 0 < error < np.inf else np.nan
        least = getattr(self.intervals, "least_pvalue", 0.0)
        floor = f"a p-value is never below {least:g} here, the error allowed for unknown sizes"
        return HypothesisResult(
            self.title,
            f"{self.terms[i]} = {value:g} in the population",
            score,
            pvalue,
            alternative,
            self._footer("noise_aware", "population"),
            notes=(floor,) if least else (),
        )

    def to_frame(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """One row per parameter; every printed number comes from this frame.

        Of the private table (``target="table"``) the only error is the noise: its standard error
        and intervals allow for nothing else, its share is 1, and there is no test.
        """
        import pandas as pd

        table = target == "table"
        ends = np.atleast_2d(self.conf_int(alpha=alpha, method=method, target=target))
        unknown = np.full(len(self.terms), np.nan)
        columns = (
            self.terms,
            self.params,
            np.sqrt(self.privacy_variance) if table else self.bse,
            unknown,
            unknown,
            ends[:, 0],
            ends[:, 1],
            np.where(np.isnan(self.privacy_share), np.nan, 1.0) if table else self.privacy_share,
        )
        return pd.DataFrame(dict(zip(FRAME_COLUMNS, columns, strict=True)))

    def summary(self, *, alpha: float = 0.05, target: Target = "population", most: int = 60) -> str:
        """Text table with the noise-aware and the certified intervals side by side.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        target : {"population", "table"}
        most : int
            Largest number of parameters to print; `to_frame` has them all.
        """
        shown = self._shown(alpha, target, most)
        table = text_table(*table_of(shown, alpha))
        return "\n".join(
            [*self._head(target), "", *table, "", self._footer(None, target), *self._remarks(shown)]
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        shown = self._shown(0.05, "population", 60)
        table = html_table(*table_of(shown, 0.05))
        title, *head = self._head("population")
        remarks = [*self._footer(None, "population").splitlines(), *self._remarks(shown)]
        return as_html(title, head, table, remarks)

    def _head(self, target: Target) -> list[str]:
        """The title, and what is known of all parameters together."""
        return [self.title]

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        """The printed part of `to_frame`, with the certified intervals beside it."""
        part = self if len(self.terms) <= most else self._first(most)
        frame = part.to_frame(alpha=alpha, target=target)
        certified = part.conf_int(alpha=alpha, method="certified", target=target)
        low, high = np.atleast_2d(certified).T
        return frame.assign(certified_low=low, certified_high=high)

    def _first(self, count: int) -> EstimateResult:
        return replace(
            self,
            terms=self.terms[:count],
            params=self.params[:count],
            sampling_variance=self.sampling_variance[:count],
            privacy_variance=self.privacy_variance[:count],
            intervals=self.intervals.first(count),
        )

    def _remarks(self, shown: pd.DataFrame) -> list[str]:
        """What a reader of the table must know, one sentence a line."""
        remarks = list(self.notes)
        if len(shown) < len(self.terms):
            remarks.append(f"{len(self.terms) - len(shown)} more rows are in to_frame()")
        if len(self.terms) > 1:
            remarks.append("each interval holds by itself at its level, not all of them at once")
        if (shown["conf_low"] == shown["conf_high"]).any():
            remarks.append(
                "an interval of width zero means that the noisy answer lies outside of what any "
                "value would make likely; trust the certified interval there"
            )
        return [f"Note: {remark}" for remark in remarks]

    def _footer(self, method: Method | None, target: Target) -> str:
        how = "" if method is None else _METHODS[method]
        return (
            f"{footer(self.rows, self.budget, how, target)}\n"
            "privacy: share of the variance that is privacy noise."
        )


def footer(rows: RowCount, budget: Budget | str, method: str, target: Target = "population") -> str:
    """Target, what it rests on, and the method if one is given."""
    how = f" Method: {method}." if method else ""
    return f"Target: {_TARGETS[target]}. {rows}; {budget}.{how}"
