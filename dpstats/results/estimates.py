"""Results of estimates; one frame is the source of every printed number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np

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
    first_few,
    short,
)
from dpstats.error_rates import LEAST_COMPUTED
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals, Several, wider
from dpstats.results.base import INTERVAL_COLUMNS, Result, Widths, footer, notes_for
from dpstats.results.hypothesis import HypothesisResult, tested_value
from dpstats.results.named import Named, place_of
from dpstats.results.rendering import (
    MOST,
    UNCERTIFIED,
    Days,
    Page,
    brief_list,
    more_rows,
    table_of,
    with_dates,
)

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

FRAME_COLUMNS = (
    "term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high",
    "privacy_share",
)  # fmt: skip
METHODS = {
    "noise_aware": "noise-aware (sampling and the known law of the privacy noise)",
    "certified": "certified (finite sample, any data, worst case)",
}
ENDS: dict[Method, tuple[str, str]] = {  # columns of the limits of printed intervals
    "noise_aware": ("conf_low", "conf_high"), "certified": ("certified_low", "certified_high"),
}  # fmt: skip
PRIVACY = "privacy: share of the variance that comes from the privacy noise."
ALLOWING = (
    "privacy: share of the variance that is noise on the estimate itself; sampling variances come "
    "from noisy moments, and what they allow for that noise is not in the share."
)
SHRUNKEN = (
    "shrunken: the share under the fitted density, nearer to the table but biased; for display, "
    "without an interval or test."
)
_EACH = "each interval, not of all of them jointly"
_PREVIEWED = 500  # intervals whose widths a preview looks at, about


class Estimated(Intervals):
    """Intervals that also have the estimates of their parameters, and both terms of the errors."""

    @property
    @abstractmethod
    def estimate(self) -> Floats | float:
        """Estimates (d,), or the only one."""

    @property
    @abstractmethod
    def sampling_variance(self) -> Floats | float:
        """Variances (d,) of the sampling errors."""

    @property
    @abstractmethod
    def privacy_variance(self) -> Floats | float:
        """Variances (d,) of the noise in the estimates."""


class OneParameter(Estimated):
    """Intervals of one parameter."""

    def __len__(self) -> int:
        return 1

    def subset(self, chosen: slice) -> Self:
        """These intervals: there is one parameter."""
        return self


def estimated(terms: list[str], intervals: Estimated | Sequence[Estimated]) -> dict[str, Any]:
    """Fields of a result that follow from intervals of all parameters, or from those of each."""
    parts = [intervals] if isinstance(intervals, Estimated) else intervals
    return {
        "terms": terms,
        "params": Named(np.hstack([part.estimate for part in parts]), terms),
        "sampling_variance": np.hstack([part.sampling_variance for part in parts]),
        "privacy_variance": np.hstack([part.privacy_variance for part in parts]),
        "intervals": intervals if isinstance(intervals, Estimated) else Several(tuple(parts)),
    }


@dataclass(frozen=True, repr=False, eq=False)
class EstimateResult(Cached, Result):
    """Estimates with intervals that account for sampling and for privacy noise.

    Attributes
    ----------
    terms : list of str
        Names of the d parameters.
    params : (d,) Named
        Estimates, by number or by name: ``params[0]`` or ``params["age"]``. Shares are unbiased:
        those of the cells of a table add up to 1, and small ones may be below 0.
    sampling_variance, privacy_variance : (d,) float64
        The two terms of each squared standard error.
    intervals : Intervals
        The law of the estimates, from which intervals and p-values follow.
    scalar : bool
        One parameter: ``conf_int`` then returns one pair.
    rows : RowCount
        Number of private rows.
    budget : str
        The budget of the release, for the footer.
    notes : sequence of str
        Limits and warnings for this result.
    fitted : (d,) float64, optional
        Of cells of tables: their shares under the fitted density, the nearest table to all answers
        that rows can have: none is negative, margins of overlapping tables agree. Shrunken towards
        the reference: nearer to the private table where noise is large, biased where it is not.
        For display, in headlines, figures and cross tables; no interval or test uses them.
    dates : sequence of str
        The terms that are dates. In `params`, `conf_int`, standard errors and frames their numbers
        are days since 1970-01-01; text and the columns ``date, date_low, date_high`` of a frame
        have dates, an interval in whole days that contain it.

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
    >>> print(smoking.params["smoker"] == float(smoking))
    True
    >>> print(smoking.conf_int(alpha=0.1, method="certified").round(2))
    [0.29 0.31]
    >>> smoking.test(0.25, alternative="larger").pvalue < 1e-6
    True
    """

    has_intervals: ClassVar[bool] = True

    terms: list[str]
    params: Named
    sampling_variance: Floats
    privacy_variance: Floats
    intervals: Intervals = field(compare=False)
    rows: RowCount
    budget: str
    scalar: bool = False
    notes: Sequence[str] = ()
    fitted: Floats | None = None
    dates: Sequence[str] = ()

    methods: ClassVar[tuple[str, ...]] = get_args(Method)  # that `conf_int` takes
    figures: ClassVar[tuple[str, ...]] = ("forest",)
    uncertified: ClassVar[str] = UNCERTIFIED
    null_value: ClassVar[float | None] = None  # that the parameter is usually tested for

    def __post_init__(self) -> None:
        d = len(self.terms)
        for name in ("params", "sampling_variance", "privacy_variance"):
            if np.shape(getattr(self, name)) != (d,):
                raise RequestError(
                    f"a result with {d} terms needs {name} of shape ({d},), got "
                    f"{np.shape(getattr(self, name))}"
                )

    @property
    def headline(self) -> str:
        """The first estimates with their 95% intervals."""
        ends = np.asarray(self.conf_int()).reshape(-1, 2)
        return brief_list(self.terms, self.displayed, ends, self.dates)

    @property
    def displayed(self) -> Floats:
        """Estimates (d,) of figures and headlines: `fitted` where there are such, else `params`."""
        return np.asarray(self.params) if self.fitted is None else self.fitted

    @property
    def terms_by_unit(self) -> list[list[str]]:
        """All terms, in one unit, unless a subclass differs."""
        return [list(self.terms)]

    @property
    def interval_of(self) -> str:
        """Proportions, unless a subclass says otherwise."""
        return "proportion" if self.scalar else "proportions"

    def preview_widths(self, method: Method, alpha: float = 0.05) -> Widths:
        """Widths of the intervals; of many in one unit, every so many only."""
        target = "population" if method == "noise_aware" else self.certified_target
        many = len(self.main_terms) == len(self.terms)
        some = slice(0, None, -(-len(self.terms) // _PREVIEWED) if many else 1)
        if some.step > 1:
            low, high = self.intervals.subset(some).conf_int(alpha, method, target)
        else:
            ends = self.conf_int(alpha=alpha, method=method, target=target)
            low, high = np.asarray(ends).reshape(-1, 2).T
        ranges = np.broadcast_to(self.intervals.range_widths, len(self.terms))
        return Widths(self.terms[some], high - low, ranges[some])

    def intervals_frame(  # noqa: D102, inherited
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        import pandas as pd

        ends = self.conf_int(alpha=alpha, method=method, target=target, simultaneous=simultaneous)
        low, high = np.asarray(ends).reshape(-1, 2).T
        columns = (self.terms, np.asarray(self.params), low, high)
        frame = pd.DataFrame(dict(zip(INTERVAL_COLUMNS, columns, strict=True)))
        return with_dates(frame, self.dates)

    def __float__(self) -> float:
        if len(self.terms) != 1:
            raise RequestError(
                f"float() needs a result with a single parameter; this one has {len(self.terms)}: "
                "use params"
            )
        return float(self.params[0])

    @property
    def nobs(self) -> int:
        """Number of private rows, or its estimate."""
        return self.rows.in_rows

    @property
    def bse(self) -> Named:
        """Standard errors (d,), sampling and privacy together."""
        return Named(np.sqrt(self.sampling_variance + self.privacy_variance), self.terms)

    @property
    def privacy_share(self) -> Named:
        """Privacy variance over total variance, (d,); nan where both are infinite.

        What a sampling variance allows for its own noise, as robust ones of `OLS` and those of a
        `Correlation` or `Covariance` do, counts as sampling.
        """
        sampling, privacy = self.sampling_variance, self.privacy_variance
        shares = np.where(np.isinf(privacy), np.where(np.isinf(sampling), np.nan, 1.0), 0.0)
        total = sampling + privacy
        known = (total > 0) & np.isfinite(total)
        return Named(np.divide(privacy, total, out=shares, where=known), self.terms)

    def conf_int(
        self,
        *,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
        simultaneous: bool = False,
    ) -> Named:
        """Confidence intervals at level 1 - alpha.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        method : {"noise_aware", "certified"}
            From the distribution of the sampling error and the noise together (exact for a
            proportion; else see the page of the analysis), or the finite-sample worst case.
        target : {"population", "table"}
            What is covered: the population's value, or the private table's own.
        simultaneous : bool
            Cover all parameters together with probability 1 - alpha, instead of each by itself.

        Returns
        -------
        (d, 2) Named, or (2,) for a single parameter

        Raises
        ------
        RequestError
            For an option out of its range, such as ``alpha=0.95``.

        Notes
        -----
        Below an alpha of 1e-9 (of each parameter), where probabilities are not computed accurately,
        noise-aware limits are those at 1e-9, widened to the certified ones at alpha. They contain a
        valid interval, and all those at larger alphas.
        """
        check_alpha(alpha)
        check_method(method, self.methods)
        check_target(target)
        of = self.intervals.simultaneous if simultaneous else self.intervals.conf_int
        least = LEAST_COMPUTED * (len(self.terms) if simultaneous else 1)

        def limits() -> Floats:
            if method == "certified" or alpha >= least:
                ends = of(alpha, method, target)
            else:
                ends = wider(of(least, method, target), of(alpha, "certified", target))
            return np.stack(ends, axis=-1) + 0.0  # no zero is negative

        ends: Floats = self._once((alpha, method, target, simultaneous), limits)
        return Named(ends[0]) if self.scalar else Named(ends, self.terms)

    @property
    def testable(self) -> bool:
        """True if there is a single parameter, whose value `test` accepts."""
        return self.scalar

    def test(
        self,
        value: float | date | str | None = None,
        alternative: Alternative = "two-sided",
        *,
        term: str | None = None,
    ) -> HypothesisResult:
        """Test whether a parameter equals `value`.

        Parameters
        ----------
        value : float, date or str, optional
            A date, or text such as "2024-05-01", for a term that is a date. By default 0 for
            coefficients, differences of means and correlations; needed for all others.
        alternative : {"two-sided", "larger", "smaller"}
        term : str, optional
            One of `terms`; needed where there are several.

        Returns
        -------
        HypothesisResult

        Raises
        ------
        RequestError
            Without a value or term that is needed, and for one that is not possible.
        """
        i, value = self._place(term), self.null_value if value is None else value
        check_alternative(alternative)
        if value is None:
            raise RequestError(
                "test() needs value=, the value of the parameter under the null hypothesis; where "
                "you ask for a power, the test needs null="
            )
        value = tested_value(value, self._intervals_of(i), self.terms[i] in self.dates)
        return self._tested(i, value, self._pvalue(i, value, alternative), alternative)

    def _intervals_of(self, i: int) -> Intervals:
        return self.intervals.subset(slice(i, i + 1)) if len(self.terms) > 1 else self.intervals

    def _pvalue(self, i: int, value: float, alternative: Alternative) -> float:
        """P-value that parameter number i equals a value."""
        return float(self._intervals_of(i).pvalues(value, alternative)[0])

    def single_test(self, value: float | None = None) -> Result:
        """The test of the only parameter; see `Result.single_test`."""
        return self.test(value) if self.testable else super().single_test(value)

    def _place(self, term: str | None) -> int:
        """Number of a named term, or of the only one."""
        if term is None and len(self.terms) != 1:
            known = [name for name in ("t_test", "f_test") if hasattr(self, name)]
            raise RequestError(
                f"test() needs a single parameter, and this result has {len(self.terms)}: name one "
                f"with term=, such as term={self.terms[0]!r}"
                + (f"; combinations: {' and '.join(known)}" if known else "")
            )
        if term is not None and term not in self.terms:
            raise RequestError(f"there is no term {short(term)}; terms: {first_few(self.terms)}")
        return 0 if term is None else place_of(term, self.terms)

    def _tested(
        self, i: int, value: float, pvalue: float, alternative: Alternative
    ) -> HypothesisResult:
        """The result of a test of parameter number i."""
        error = float(self.bse[i])
        score = (float(self.params[i]) - value) / error if 0 < error < np.inf else np.nan
        least = self.intervals.least_pvalue
        floor = (
            f"no p-value is below {least:g}, the error probability spent on the unknown number of "
            "rows"
        )
        shown = Days(0)(value) if self.terms[i] in self.dates else f"{value:.10g}"
        return HypothesisResult(
            self.title,
            f"{self.terms[i]} = {shown} in the population",
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

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`. For the private table the only error is the noise: standard errors and
            intervals account for it alone, the privacy share is 1, and there is no test.

        Returns
        -------
        DataFrame
            Columns term, estimate, std_error, statistic, p_value (both nan except for coefficients,
            contrasts and pairs), conf_low, conf_high and privacy_share. Some results have more: the
            levels of a cell and its share ``fitted``; ``date, date_low, date_high`` (NaT for terms
            that are no dates); the noisy ``size`` of a group; ``p_unadjusted`` of a pair, whose
            p_value is adjusted; ``df`` in a survey.
        """
        import pandas as pd

        table = target == "table"
        ends = np.asarray(self.conf_int(alpha=alpha, method=method, target=target)).reshape(-1, 2)
        shares = np.asarray(self.privacy_share)
        errors = np.sqrt(self.privacy_variance) if table else np.asarray(self.bse)
        shares = np.where(np.isnan(shares), np.nan, 1.0) if table else shares
        columns = (self.terms, np.asarray(self.params), errors, np.nan, np.nan, *ends.T, shares)
        frame = with_dates(pd.DataFrame(dict(zip(FRAME_COLUMNS, columns, strict=True))), self.dates)
        return frame if self.fitted is None else frame.assign(fitted=self.fitted)

    def summary(
        self,
        *,
        alpha: float = 0.05,
        target: Target = "population",
        most: int = MOST,
        simultaneous: bool = False,
    ) -> str:
        """Text table with the noise-aware and the certified intervals side by side.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.
        target : {"population", "table"}
        most : int
            Largest number of parameters to print; `to_frame` has them all.
        simultaneous : bool
            Intervals that hold jointly, see `conf_int`.

        Returns
        -------
        str
        """
        return self._page(alpha, target, most, simultaneous).text()

    def _page(self, alpha: float, target: Target, most: int, simultaneous: bool = False) -> Page:
        shown = self._shown(alpha, target, most)
        for method, names in ENDS.items() if simultaneous else ():
            ends = self.conf_int(alpha=alpha, method=method, target=target, simultaneous=True)
            limits = np.asarray(ends).reshape(-1, 2)[shown.index].T
            shown = shown.assign(**dict(zip(names, limits, strict=True)))
        title, *head = self._head(alpha, target)
        after = [self._footer(None, target), self._privacy]
        after += [] if self.fitted is None else [SHRUNKEN]
        after += self._remarks(shown, alpha, target, simultaneous)
        return Page(title, head, *table_of(shown, alpha, self.dates), after=after)

    @property
    def _privacy(self) -> str:
        """Meaning of the last column."""
        return PRIVACY

    def _head(self, alpha: float, target: Target) -> list[str]:
        """The title, and lines on the parameters jointly."""
        return [self.title]

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        """The printed rows of `to_frame` by their numbers, and certified intervals beside them."""
        printed = self if len(self.terms) <= most else self._first(most)
        frame = printed.to_frame(alpha=alpha, target=target)
        ends = printed.conf_int(alpha=alpha, method="certified", target=target)
        limits = np.asarray(ends).reshape(-1, 2).T
        return frame.assign(**dict(zip(ENDS["certified"], limits, strict=True)))

    def _first(self, count: int) -> Self:
        return replace(
            self,
            terms=self.terms[:count],
            params=Named(self.params[:count], self.terms[:count]),
            sampling_variance=self.sampling_variance[:count],
            privacy_variance=self.privacy_variance[:count],
            intervals=self.intervals.subset(slice(0, count)),
            fitted=None if self.fitted is None else self.fitted[:count],
        )

    def _remarks(
        self, shown: pd.DataFrame, alpha: float, target: Target, simultaneous: bool
    ) -> list[str]:
        """Notes below the table, one per line."""
        remarks = notes_for(self.notes, target)
        if len(shown) < len(self.terms):
            remarks.append(more_rows(len(self.terms) - len(shown)))
        if len(self.terms) > 1:
            whose = "all intervals jointly" if simultaneous else _EACH
            remarks.append(f"the level is that of {whose}")
        if np.isinf(shown[["certified_low", "certified_high"]]).all(axis=1).any():
            remarks.append(self.uncertified)
        return [f"Note: {remark}" for remark in remarks]

    def _footer(self, method: Method | None, target: Target) -> str:
        how = "" if method is None else METHODS[method]
        return footer(self.rows, self.budget, how, target)
