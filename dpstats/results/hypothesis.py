"""Results of tests of one hypothesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Target, check_alpha, check_number, check_target
from dpstats.error_rates import benjamini_hochberg, holm
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals
from dpstats.results.base import Result
from dpstats.results.rendering import Days, Page, shown_pvalue, significant
from dpstats.schema.dates import check_day

if TYPE_CHECKING:
    import pandas as pd

_ROUNDED = 1e-9  # relative, of the ends of a range
Adjustment = Literal["holm", "fdr_bh", "none"]
ADJUSTED: Mapping[Adjustment, tuple[str, str, Callable[[Floats], Floats]]] = {
    "holm": ("Holm", "adjusted by Holm's method over all", holm),
    "fdr_bh": ("BH", "adjusted by Benjamini and Hochberg's method over all", benjamini_hochberg),
    "none": ("plain", "not adjusted for the number of", np.copy),
}


def adjusted(pvalues: Floats, adjust: Adjustment) -> Floats:
    """P-values (d,) adjusted for the number of those that are not nan."""
    all_pvalues, known = pvalues.copy(), np.isfinite(pvalues)
    all_pvalues[known] = ADJUSTED[adjust][2](pvalues[known])
    return all_pvalues


def tested_value(value: float | date | str, intervals: Intervals, dated: bool) -> float:
    """The value of a null hypothesis on one parameter, which must be able to have it.

    Of a parameter that is dated, a date or its text is a day.
    """
    number = check_day("value", value) if dated else check_number("value", cast("float", value))
    low, high = (float(np.squeeze(end)) for end in intervals.ranges)
    reach = _ROUNDED * (high - low if math.isfinite(high - low) else abs(number))
    if not low - reach <= number <= high + reach:
        show = Days(0) if dated else "{:.10g}".format
        ends = f"at least {show(low)}"
        if math.isfinite(high):
            ends = f"between {show(low)} and {show(high)}"
        raise RequestError(
            f"value={show(number)} is impossible: the parameter is {ends} in any table; test a "
            "value in this range"
        )
    return min(max(number, low), high)


@dataclass(frozen=True, repr=False, eq=False)
class HypothesisResult(Result):
    """A test of one hypothesis about the population.

    Attributes
    ----------
    title : str
    null : str
        The null hypothesis, as text.
    statistic, pvalue : float
        The statistic is nan where the standard error is zero or infinite; the p-value needs none.
        P-values are accurate to about 1e-6 and print as ``< 1e-06`` below that.
    alternative : str
    footer : str
        Method, target, budget and assumptions.
    notes : tuple of str
        Limits and warnings for this result.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> test = dps.release(plan, rows).infer(dps.Proportion("smoker")).test(0.25, "larger")
    >>> test.headline
    'p < 1e-06'
    >>> list(test.to_frame().columns)
    ['null', 'alternative', 'statistic', 'p_value']
    """

    null: str
    statistic: float
    pvalue: float
    alternative: Alternative
    footer: str
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def pvalues(self) -> Floats:
        """The p-value as an array (1,)."""
        return np.array([self.pvalue])

    def test(self, value: float | None = None, alternative: Alternative = "two-sided") -> NoReturn:
        """Refused: this is a test already.

        Raises
        ------
        RequestError
        """
        raise RequestError("this is a test already; its p-value is .pvalue")

    def single_test(self, value: float | None = None) -> HypothesisResult:
        """The test itself, which has its own hypothesis."""
        if value is not None:
            raise RequestError("the test has its own hypothesis; drop null=")
        return self

    @property
    def headline(self) -> str:
        """The p-value."""
        return f"p {shown_pvalue(self.pvalue, digits=2)}"

    def to_frame(self) -> pd.DataFrame:
        """The test as one row.

        Returns
        -------
        DataFrame
            Columns null, alternative, statistic and p_value. F and log-rank tests also have degrees
            of freedom: ``df_num, df_denom``, and ``df`` (in a survey ``df, df_denom``).
        """
        import pandas as pd

        columns = {
            "null": self.null,
            "alternative": self.alternative,
            "statistic": self.statistic,
            "p_value": self.pvalue,
        }
        return pd.DataFrame([columns])

    def summary(self, *, alpha: float = 0.05, target: Target = "population") -> str:  # noqa: D102, inherited
        check_alpha(alpha)
        check_target(target)
        return self._page(target).text()

    def _page(self, target: Target) -> Page:
        if target == "table":
            why = "no test for the private table: the null hypothesis is about the population"
            return Page(self.title, [why])
        return Page(
            self.title,
            [
                f"null hypothesis: {self.null}; alternative: {self.alternative}",
                f"{self._evidence()}p-value {shown_pvalue(self.pvalue)}",
                *self.footer.splitlines(),
                *(f"Note: {note}" for note in self.notes),
            ],
        )

    def _evidence(self) -> str:
        known = np.isfinite(self.statistic)
        return f"statistic = {significant(self.statistic)}, " if known else ""
