"""Combinations of least-squares coefficients: contrasts, F tests and predictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Method, Target, check_alpha
from dpstats.errors import RequestError
from dpstats.inference.regression.linear_intervals import LinearIntervals
from dpstats.results.base import EstimateResult, HypothesisResult
from dpstats.results.rendering import as_html, html_table, significant, text_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class LinearResult(EstimateResult):
    """Linear combinations of coefficients, each with a test of whether it equals `null`."""

    null: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def interval_of(self) -> str:
        """The first coefficient but for an intercept; each has a unit of its own."""
        return f"{self.terms[self.previewed][0]}, in its own unit"

    @property
    def previewed(self) -> slice:
        """That coefficient."""
        first = int(self.terms[0] == "Intercept" and len(self.terms) > 1)
        return slice(first, first + 1)

    @property
    def _law(self) -> LinearIntervals:
        assert isinstance(self.intervals, LinearIntervals)
        return self.intervals

    @property
    def tvalues(self) -> Floats:
        """(d,) estimate less `null` over the standard error."""
        errors, apart = self.bse, self.params - self.null
        certain = np.where(apart == 0, 0.0, np.copysign(np.inf, apart))
        return np.divide(apart, errors, out=certain, where=errors > 0) + 0.0  # no -0

    @cached_property
    def pvalues(self) -> Floats:
        """(d,) two-sided noise-aware p-values of: it equals `null`."""
        return self._law.pvalues(self.null, "two-sided")

    def to_frame(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """One row per coefficient; tests are of the population. See `EstimateResult.to_frame`."""
        frame = super().to_frame(alpha=alpha, method=method, target=target)
        if target == "table":
            return frame
        return frame.assign(statistic=self.tvalues, p_value=self.pvalues)

    def _first(self, count: int) -> LinearResult:
        null = np.broadcast_to(self.null, self.params.shape)[:count]
        part = super()._first(count)
        assert isinstance(part, LinearResult)
        return replace(part, null=null)


@dataclass(frozen=True, repr=False)
class ContrastResult(LinearResult):
    """Contrasts, with statsmodels' further names; single numbers where there is one contrast."""

    @property
    def effect(self) -> Floats | float:
        """Estimates."""
        return self._single(self.params)

    @property
    def sd(self) -> Floats | float:
        """Standard errors."""
        return self._single(self.bse)

    @property
    def tvalue(self) -> Floats | float:
        """Estimates less the values tested, over the standard errors."""
        return self._single(self.tvalues)

    statistic = tvalue

    @property
    def pvalue(self) -> Floats | float:
        """Two-sided p-values."""
        return self._single(self.pvalues)

    def _single(self, values: Floats) -> Floats | float:
        return values if len(values) > 1 else float(values[0])


@dataclass(frozen=True, repr=False)
class FTestResult(HypothesisResult):
    """An F test of several contrasts together.

    Attributes
    ----------
    df_num, df_denom : float
        Degrees of freedom: independent contrasts, and rows less coefficients.
    """

    df_num: float = field(default=np.nan, kw_only=True)
    df_denom: float = field(default=np.nan, kw_only=True)

    @property
    def fvalue(self) -> float:
        """The statistic, by statsmodels' name."""
        return self.statistic

    def _evidence(self) -> str:
        return f"F = {self.statistic:.4g} on {self.df_num:g} and {self.df_denom:g} df, "


@dataclass(frozen=True, repr=False)
class Prediction:
    """Predicted means, and new responses with their own error.

    Attributes
    ----------
    mean, new : LinearResult
    """

    mean: LinearResult
    new: LinearResult

    @property
    def predicted_mean(self) -> Floats:
        """(m,)."""
        return self.mean.params

    @property
    def se_mean(self) -> Floats:
        """(m,) sampling and privacy together."""
        return self.mean.bse

    def conf_int(
        self,
        *,
        obs: bool = False,
        alpha: float = 0.05,
        method: Method = "noise_aware",
        target: Target = "population",
    ) -> Floats:
        """Intervals (m, 2) of the mean, or of a new response (for normal errors).

        With ``target="table"``: of what the private table's own coefficients predict.
        """
        if obs and target == "table":
            raise RequestError("a new response is not in the private table; leave out target=")
        of = self.new if obs else self.mean
        return of.conf_int(alpha=alpha, method=method, target=target)

    def summary_frame(self, *, alpha: float = 0.05, method: Method = "noise_aware") -> pd.DataFrame:
        """One row per prediction, with the columns of statsmodels."""
        import pandas as pd

        check_alpha(alpha)
        mean, new = (self.conf_int(obs=o, alpha=alpha, method=method) for o in (False, True))
        return pd.DataFrame({
            "mean": self.predicted_mean, "mean_se": self.se_mean,
            "mean_ci_lower": mean[:, 0], "mean_ci_upper": mean[:, 1],
            "obs_ci_lower": new[:, 0], "obs_ci_upper": new[:, 1],
        })  # fmt: skip

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the printed table."""
        frame = self.summary_frame()
        rows = [
            [str(i), *(significant(value, row["mean_se"]) for value in row)]
            for i, row in frame.iterrows()
        ]
        return ["", *frame.columns], rows

    def __repr__(self) -> str:
        return "\n".join([self.mean.title, "", *text_table(*self._cells())])

    def _repr_html_(self) -> str:
        return as_html(self.mean.title, [], html_table(*self._cells()))
