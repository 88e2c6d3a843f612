"""Results of a least-squares fit, named as in statsmodels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.regression.contrasts import FTestResult, Prediction, RegressionResult
from dpstats.analyses.regression.linear_intervals import LinearIntervals
from dpstats.arrays import Floats
from dpstats.checks import Target
from dpstats.results.rendering import fixed, shown_pvalue, significant

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.regression.empty_levels import LeftOut

_LISTED = 8  # terms that a preview names
EMPTY = (
    "left out, since noise alone may make their counts: {}; what depends on them has no estimate "
    "(if it is a baseline level, name another one, as in C(h, Treatment('x'))), and the other "
    "intervals allow for the few rows that they may have"
)


@dataclass(frozen=True, repr=False, eq=False)
class OLSResult(RegressionResult):
    """A least-squares fit, named as in statsmodels: ``params, bse, tvalues, pvalues, rsquared``.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("age", "score")])
    >>> line = dps.OLS("score ~ age")
    >>> plan = dps.plan(schema, {"line": line}, budget=dps.PureDP(10))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"age": numbers % 100, "score": numbers % 100 // 2 + numbers % 7})
    >>> fitted = dps.release(plan, rows, m=2_000).infer(line)
    >>> print(fitted.params["age"] == fitted.params[1], fitted.nobs)
    True 10000
    >>> round(float(fitted.params["age"]), 1)
    0.5
    >>> fitted.predict({"age": [20, 60]}).round().tolist(), fitted.cov_params().shape
    ([13.0, 33.0], (2, 2))
    >>> print(fitted.t_test("age = 0.5").pvalues.shape, fitted.f_test("age = 0").pvalue < 0.001)
    (1,) True
    >>> print(fitted.wald_test("age = 0").pvalue < 0.001)
    True
    """

    @property
    def preview_condition(self) -> str:
        """How much regressors must vary for intervals with ends."""
        least = self._law.least_spread(0.05) * self.moments.half_range
        rows = zip(self.terms, least.tolist(), strict=True)
        known = [f"{term} {sd:.2g}" for term, sd in rows if sd > 0 and term != "Intercept"]
        if not known:
            return ""
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        return (
            "unbounded intervals are likely where the sd of a regressor, given the others, is "
            f"below {', '.join(known[:_LISTED])}{more}"
        )

    @property
    def df_model(self) -> float:
        """Number of determined coefficients, not counting the constant."""
        return float(len(self._left.kept) - (self.moments.constant is not None))

    @property
    def df_resid(self) -> float:
        """Rows less determined coefficients."""
        return self._law.model.df_resid

    @property
    def scale(self) -> float:
        """Variance of the errors, in the response's unit squared; 0 where noise made it negative.

        From noisy moments, with no interval; nan if `bse` is infinite.
        """
        if not self._law.known:
            return np.nan
        return max(0.0, self._law.model.error_variance) * self.moments.half_range**2

    @property
    def mse_resid(self) -> float:
        """The same, by statsmodels' other name."""
        return self.scale

    @property
    def ssr(self) -> float:
        """Sum of the squared residuals: `scale` times `df_resid`, from noisy moments."""
        return self.scale * max(self.df_resid, 0.0)

    def cov_params(self) -> pd.DataFrame:
        """Covariance of the coefficients' errors (d, d), sampling and privacy together.

        Its diagonal holds the squares of `bse`; infinite if those are.
        """
        import pandas as pd

        covariance = np.full((len(self.terms), len(self.terms)), np.inf)
        if self._law.known:
            model, known = self._law.model, np.isfinite(np.asarray(self.bse))
            rows = self._law.combinations[known]
            errors = model.sampling.matrix + model.noise_covariance + model.left_covariance
            errors = rows @ errors @ rows.T
            root = np.sqrt(np.diag(errors))
            scale = np.divide(np.asarray(self.bse)[known], root, out=np.ones_like(root),
                              where=root > 0)  # fmt: skip
            covariance[np.ix_(known, known)] = errors * np.outer(scale, scale)
        return pd.DataFrame(covariance, index=self.terms, columns=self.terms)

    @cached_property
    def _explained(self) -> float:
        """R-squared of the noisy moments, not clipped to [0, 1]; nan if unknown or undefined."""
        model, one = self._law.model, self.moments.constant
        if not self._law.known:
            return np.nan
        response = model.rows[-1]
        if one is None:
            response = response + self.moments.absorbed @ self.moments.rows[:-1]
        total = float(response @ model.matrix.matrix @ response)
        if one is not None:  # known, so the mean square of the constant is positive
            with_one = model.matrix.matrix @ one
            total -= float(model.rows[-1] @ with_one) ** 2 / float(one @ with_one)
        if abs(total) <= model.rounding:
            return np.nan
        left = model.error_variance * max(model.df_resid, 1.0) / model.matrix.n
        return 1 - left / total if total > 0 else -np.inf

    @property
    def rsquared(self) -> float:
        """Share of the response's variance that is explained, in [0, 1].

        nan if `bse` is infinite, or if the response does not vary.
        Around its mean, or around 0 if no constant is among the regressors, as in statsmodels.
        From noisy moments, with no interval.
        """
        return float(np.clip(self._explained, 0, 1))

    @property
    def rsquared_adj(self) -> float:
        """The same, adjusted for the number of coefficients; 0 where noise made it negative."""
        if self._explained < 0:
            return 0.0
        rows = self.nobs - (self.moments.constant is not None)
        return 1 - rows / max(self.df_resid, 1.0) * (1 - self.rsquared)

    @cached_property
    def _overall(self) -> FTestResult | None:
        matrix = np.eye(len(self.params))
        constant = self.moments.design.constant
        if constant is not None:  # if all levels make the constant, test that they are equal
            matrix[constant] -= matrix[constant.start]
            matrix = np.delete(matrix, constant.start, axis=0)
        return self.f_test(matrix) if len(matrix) else None

    @property
    def fvalue(self) -> float:
        """F statistic of the hypothesis that all coefficients but the constant are zero."""
        return 0.0 if self._overall is None else self._overall.statistic

    @property
    def f_pvalue(self) -> float:
        """Its p-value, which allows for the noise."""
        return 1.0 if self._overall is None else self._overall.pvalue

    def _determined(self, matrix: Floats, values: Floats) -> tuple[Floats, Floats]:
        part = self._left.determined_part(matrix @ self.moments.to_basis)
        return part @ matrix, part @ values

    def _joint(self, matrix: Floats, values: Floats) -> tuple[float, float]:
        rows = (matrix @ self.moments.to_basis)[:, self._left.kept]
        return self._law.model.wald(rows, values - matrix @ self.moments.shift)

    @property
    def _left(self) -> LeftOut:
        assert self._law.left is not None
        return self._law.left

    def get_prediction(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Prediction:
        """Predictions for given values of the columns of the formula.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            Of pandas, polars or Arrow. In original units; numbers within the schema's bounds,
            levels by their labels or as the table stores them. A single value is repeated.
            It must be given: a release keeps no rows.

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        rows = self.moments.half_range * self.moments.at(exog)
        names = [str(i) for i in range(len(rows))]
        offsets = rows @ self.moments.absorbed
        intervals = LinearIntervals.of(self._law.model, rows, offsets, self._left)
        new = replace(intervals, extra=self.moments.half_range**2)
        mean = self._combined(f"Predicted mean, {self.title}", names, intervals)
        responses = self._combined(f"New responses, {self.title}", names, new)
        return Prediction(mean.title, mean, responses)

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means (m,) alone; see `get_prediction`, which has their intervals."""
        return self.get_prediction(exog).predicted_mean

    def _along(self, matrix: Floats) -> LinearIntervals:
        rows, offsets = matrix @ self.moments.to_basis, matrix @ self.moments.shift
        return LinearIntervals.of(self._law.model, rows, offsets, self._left)

    def _head(self, alpha: float, target: Target) -> list[str]:
        if not self._law.known:
            return [self.title, "R-squared, residual sd and F test: not available, see the notes"]
        if np.isnan(self._explained):
            fit = "R-squared and residual sd: none, the response does not vary"
        elif self._law.model.error_variance <= 0:
            fit = "R-squared and residual sd: no estimate, the noise exceeds the errors' variance"
        else:
            fit = self._fit()
        if target == "table":
            return [self.title, fit]
        test = (
            f"F statistic {significant(self.fvalue)} on {self.df_model:g} and {self.df_resid:g} "
            f"df, p-value {shown_pvalue(self.f_pvalue)} (allows for the noise)"
        )
        return [self.title, fit, test]

    def _fit(self) -> str:
        return (
            f"R-squared {fixed(self.rsquared, 3)} (adjusted {fixed(self.rsquared_adj, 3)}), "
            f"residual sd {significant(np.sqrt(self.scale))}: from noisy moments, without intervals"
        )
