"""Results of logistic and Poisson regressions, named as in statsmodels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.regression.coefficient_intervals import (
    CoefficientIntervals,
    NormalIntervals,
    PredictedMeanIntervals,
)
from dpstats.analyses.regression.contrasts import RegressionResult
from dpstats.analyses.regression.glm_empty_levels import Determined
from dpstats.analyses.regression.marginal_effects import (
    Average,
    Averaging,
    marginal_effects,
)
from dpstats.arrays import Floats
from dpstats.checks import Method, Target
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.link import Link


_FIRST_ORDER = "intervals of averages are to first order in the errors of the coefficients"
LEAST_SHARE = 0.005  # of a variance, that is worth a note
UNMEASURED = "privacy: share of the variance from the privacy noise and from what was not measured."


@dataclass(frozen=True, repr=False, eq=False)
class GeneralisedResult(RegressionResult):
    """A generalised linear model, named as in statsmodels: ``params, bse, tvalues, pvalues``.

    Attributes
    ----------
    link : Link
    points : mapping of column name to (m,) float64
        Of the columns of the regressors, where `get_margeff` averages over the rows.
    unmeasured : (d,) float64
        Share of each variance that allows for what no measured function determines, which
        `privacy_share` counts too; zero where all that the score needs was measured.
    """

    link: Link = field(kw_only=True, compare=False)
    points: Mapping[str, Floats] = field(kw_only=True, compare=False)
    unmeasured: Floats = field(kw_only=True, compare=False)

    ratio: ClassVar[str] = "ratio"

    @property
    def _coefficients(self) -> CoefficientIntervals:
        assert isinstance(self.intervals, CoefficientIntervals)
        return self.intervals

    @property
    def _privacy(self) -> str:
        return UNMEASURED if np.any(self.unmeasured >= LEAST_SHARE) else super()._privacy

    @property
    def _model(self) -> Averaging:
        return self._coefficients.model  # type: ignore[return-value]

    @property
    def converged(self) -> bool:
        """Whether there is an estimate."""
        return self._coefficients.known

    @property
    def zvalues(self) -> Named:
        """`tvalues` by the name of a normal statistic."""
        return self.tvalues

    def _ratios(self, alpha: float, method: Method, target: Target) -> pd.DataFrame:
        import pandas as pd

        low, high = np.asarray(self.conf_int(alpha=alpha, method=method, target=target)).T
        with np.errstate(over="ignore"):
            columns = (np.exp(np.asarray(self.params)), np.exp(low), np.exp(high))
        names = (self.ratio, "conf_low", "conf_high")
        return pd.DataFrame(dict(zip(names, columns, strict=True)), index=self.terms)

    def get_prediction(
        self, exog: pd.DataFrame | Mapping[str, Any] | None = None
    ) -> EstimateResult:
        """Predicted means for given values of the columns of the formula, with intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            Of pandas, polars or Arrow. In original units; numbers within the schema's bounds,
            levels by their labels or as the table stores them. A single value is repeated.

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        intervals = self._at(exog)
        names = [str(i) for i in range(len(intervals.combinations))]
        means = self.link.mean(intervals.estimates)
        slopes = self.link.slope(intervals.estimates) ** 2
        sampling, privacy = intervals.variances * np.where(np.isnan(slopes), np.inf, slopes)
        return EstimateResult(
            title=f"Predicted means, {self.title}", terms=names, params=Named(means, names),
            sampling_variance=sampling, privacy_variance=privacy,
            intervals=PredictedMeanIntervals(intervals, self.link), rows=self.rows,
            budget=self.budget, notes=self.notes,
        )  # fmt: skip

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means (m,) alone; see `get_prediction`, which has their intervals."""
        return np.asarray(self.link.mean(self._at(exog).estimates))

    def _at(self, exog: pd.DataFrame | Mapping[str, Any] | None) -> CoefficientIntervals:
        """The linear predictor at given values."""
        return CoefficientIntervals(self._coefficients.model, self.moments.at(exog))

    def get_margeff(self) -> EstimateResult:
        """Average marginal effects over the rows.

        Of a number: the mean derivative of the predicted mean, per original unit; where the formula
        has ``log(wage)``, per unit of that logarithm, in a row of that name. Of a level: the mean
        difference between all rows at this level and all rows at the baseline.
        """
        return self._margeff

    @cached_property
    def _margeff(self) -> EstimateResult:
        effects = marginal_effects(self.moments, self.points, self.link)
        unknown = Average(np.nan, np.inf, np.inf)
        known = self.converged
        found = np.array([self._model.average(e.of) if known else unknown for e in effects]).T
        names = [effect.name for effect in effects]
        return EstimateResult(
            title=f"Average marginal effects, {self.title}", terms=names,
            params=Named(found[0], names), sampling_variance=found[1], privacy_variance=found[2],
            intervals=NormalIntervals(*found), rows=self.rows, budget=self.budget,
            notes=[_FIRST_ORDER, *self.notes],
        )  # fmt: skip

    def cov_params(self) -> pd.DataFrame:
        """Covariance of the coefficients' errors (d, d), sampling and privacy together.

        Its diagonal holds the squares of `bse`; infinite if those are.
        """
        import pandas as pd

        found = self._model.covariance(self._coefficients.combinations)
        return pd.DataFrame(found, index=self.terms, columns=self.terms)

    @property
    def df_resid(self) -> float:
        """Rows less coefficients."""
        return float(self.nobs - len(self.params))

    def _basis(self, matrix: Floats) -> Floats:
        return np.asarray(matrix @ self.moments.to_basis / self.moments.half_range)

    def _along(self, matrix: Floats) -> CoefficientIntervals:
        return CoefficientIntervals(self._coefficients.model, self._basis(matrix))

    def _determined(self, matrix: Floats, values: Floats) -> tuple[Floats, Floats]:
        model = self._coefficients.model
        if not isinstance(model, Determined):
            return matrix, values
        part = model.determined_part(self._basis(matrix))
        return part @ matrix, part @ values

    def _joint(self, matrix: Floats, values: Floats) -> tuple[float, float]:
        return self._coefficients.model.wald(self._basis(matrix), values)


@dataclass(frozen=True, repr=False, eq=False)
class LogisticResult(GeneralisedResult):
    """A logistic regression, named as in statsmodels, with `odds_ratios`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> age = dps.Number("age", 0, 99, edges=[20, 40, 60, 80], missing=0)
    >>> schema = dps.Schema([age, dps.Boolean("ill")])
    >>> risk = dps.Logistic("ill ~ age")
    >>> plan = dps.plan(schema, {"risk": risk}, budget=dps.PureDP(2))
    >>> numbers = pd.Series(range(20_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "ill": numbers % 100 > numbers * 7 % 101})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(risk)
    >>> print(fitted.params["age"] > 0.02, fitted.odds_ratios().shape, fitted.cov_params().shape)
    True (2, 3) (2, 2)
    >>> print(fitted.predict({"age": [20, 80]}).round(1))
    [0.2 0.8]
    >>> print(fitted.t_test("age = 0").pvalues[0] < 0.001, fitted.get_margeff().terms)
    True ['age']
    """

    ratio: ClassVar[str] = "odds_ratio"

    def odds_ratios(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Exponentials of the coefficients and of their intervals, a row per coefficient."""
        return self._ratios(alpha, method, target)


@dataclass(frozen=True, repr=False, eq=False)
class PoissonResult(GeneralisedResult):
    """A Poisson regression, named as in statsmodels, with `rate_ratios`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> age = dps.Number("age", 0, 99, edges=[20, 40, 60, 80], missing=0)
    >>> visits = dps.Number("visits", 0, 9, points=10, edges=[1, 2, 4], missing=0)
    >>> schema = dps.Schema([age, visits])
    >>> rate = dps.Poisson("visits ~ age")
    >>> plan = dps.plan(schema, {"rate": rate}, budget=dps.ZCDP(0.5))
    >>> numbers = pd.Series(range(20_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "visits": numbers % 100 // 20 + numbers % 3})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(rate)
    >>> print(fitted.params["age"] > 0.01, fitted.rate_ratios().shape)
    True (2, 3)
    """

    ratio: ClassVar[str] = "rate_ratio"

    def rate_ratios(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Exponentials of the coefficients and of their intervals, a row per coefficient."""
        return self._ratios(alpha, method, target)
