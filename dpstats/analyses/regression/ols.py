"""Ordinary least squares from second moments: the analysis and its result.

The mean products of regressors and response are measured; coefficients, intervals, contrasts and
predictions follow from them alone. `analyses.regression.least_squares` has the law of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from dpstats.analyses.moments.clipping import check_clipping, clipping_notes
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.contrasts import (
    FTestResult,
    LinearResult,
    Prediction,
    RegressionResult,
)
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.least_squares import (
    AnyVariances,
    EqualVariances,
    LeastSquares,
    LinearIntervals,
    OfPersons,
    SamplingCovariance,
)
from dpstats.analyses.regression.left_out import left_out
from dpstats.analyses.regression.score import IDENTITY
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand
from dpstats.arrays import Floats
from dpstats.checks import Target, as_float, check_choice, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.persons import PersonMoments
from dpstats.inference.moment_matrix import MomentMatrix, NoisyMatrix
from dpstats.measured.row_count import RowCount
from dpstats.measured.view import ReleaseView
from dpstats.results.named import Named
from dpstats.results.rendering import fixed, shown_pvalue, significant
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.survey.coefficients import Equations, WeightedRegression
    from dpstats.families.pilot_score import PilotScore

CovType = Literal["nonrobust", "HC1"]

_BIAS = "the bias that this gives the coefficients, usually towards 0,"
_SINGULAR = (
    "the noisy moments do not rule out collinear regressors. If the noise exceeds the signal, use "
    "more rows, more budget, fewer regressors, ridge= or clip_norm=; if columns are collinear or "
    "constant, use another formula"
)
_LISTED = 8  # terms that a preview names
_EMPTY = (
    "left out, since their counts may be only noise: {}; what depends on them has no estimate "
    "(if it is a baseline level, name another one, as in C(h, Treatment('x'))), and the other "
    "intervals allow for the few rows that they may have"
)


@weighted_by_design
@dataclass(frozen=True)
class OLS:
    """Linear regression of a number (or of a column with two levels) on numbers and categories.

    Values outside the bounds of the schema are clamped to the nearer bound, in regressors and
    response alike, and coefficients are for the clamped values.

    Parameters
    ----------
    formula : str
        Such as ``"income ~ age + C(region)"``; ``a:b`` and ``a*b`` for products of two columns,
        ``I(a**2)`` for the square of a number, ``log(a)`` of one with ``scale="log"`` in the
        schema, ``- 1`` for no intercept. The first level of a category is its baseline, or the one
        that ``C(region, Treatment("north"))`` names. ``C(g):C(h) - 1`` has a coefficient for every
        pair of levels.
    ridge : float
        Penalty: minimise the mean squared residual plus `ridge` times the sum of squared
        coefficients, both in unit scale (numbers over [-1, 1], the intercept free). Estimates and
        intervals are then for the penalised coefficients, which are less sensitive to noise.
    cov_type : {"nonrobust", "HC1"}
        Sampling variances of the coefficients: for errors of equal variance; or of any variance,
        as statsmodels' HC1 with ``use_t=True``. HC1 needs the means of products of four columns,
        which the plan must ask for: they have up to 16 times the noise of others, and finer grids
        are rounded to 64 steps on either side of the middle.
    given : str, optional
        Regression in the rows with this condition, such as ``"age >= 65"``. Rows without a value of
        the response, or of a number in the formula, are left out in any case, where the schema has
        ``allow_missing=True``; the level "(missing)" of a regressor is a level like others.
    clip_norm : float, optional
        Shrink every row of regressors and response together to at most this Euclidean norm, after
        centring and scaling: several times less noise where most rows are far shorter than the
        corners of their bounds. Regressors are numbers by themselves. All results are then for the
        shrunk rows, and their coefficients differ from those of the rows themselves by a bias that
        no interval allows for. In simulations it is below 0.5% of a coefficient at twice the root
        mean square of the norms, and below 0.2% at 2.5 times: see "Moments with less noise" in
        the documentation. Public: never chosen by looking at the data.
    center, scale : mapping of column names to numbers, optional
        With `clip_norm`: public guesses of the location and spread of columns, in original units;
        by default the middle and half the width of the declared bounds. The unit of `ridge` is
        then `scale` times `clip_norm`.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.OLS("income ~ age + C(region)")
    OLS(formula='income ~ age + C(region)', ridge=0.0, cov_type='nonrobust', given=None,
        clip_norm=None, center=None, scale=None)
    """

    kind: ClassVar[str] = "ols"
    preview_remark: ClassVar[str] = (
        "Coefficients need columns that vary: one that varies over a tenth of its bounds has "
        "10 (sampling) to 100 (noise) times this width, or an infinite one where noise "
        "exceeds the column's variance."
    )

    formula: str
    ridge: float = 0.0
    cov_type: CovType = "nonrobust"
    given: str | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = None
    scale: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        numeric = isinstance(self.ridge, int | float | np.integer | np.floating)
        ridge = as_float(self.ridge) if numeric else np.nan
        if isinstance(self.ridge, bool) or not 0 <= ridge < np.inf:
            raise RequestError(f"ridge must be a number of at least 0, got {short(self.ridge)}")
        check_choice("cov_type", self.cov_type, get_args(CovType))
        object.__setattr__(self, "ridge", ridge)
        check_clipping(self)
        if self.clip_norm is not None and self.cov_type != "nonrobust":
            raise RequestError(
                "cov_type='HC1' needs fourth moments, which are not measured of shrunk rows: leave "
                "out cov_type= or clip_norm="
            )

    def __hash__(self) -> int:
        return hash((self.formula, self.ridge, self.cov_type, self.given, self.clip_norm))

    def family(self, schema: Schema) -> Family:
        """Mean products of the regressors and the response; of four of them for HC1."""
        moments = self._moments(schema)
        fourth = moments.fourth_blocks() if self.cov_type == "HC1" else []
        return Family(tuple(dict.fromkeys([*moments.blocks, *fourth])))

    def person_totals(self, schema: Schema) -> tuple[PersonMoments, ...]:
        """Functions that give the covariance of scores over persons; none of shrunk rows."""
        return () if self.clip_norm is not None else (self._moments(schema).person_totals(),)

    def _weighted(self, schema: Schema) -> Equations:
        """Equations of weighted coefficients."""
        from dpstats.analyses.survey.coefficients import equations_of

        for option, usual in (("ridge", 0.0), ("cov_type", "nonrobust"), ("clip_norm", None)):
            if getattr(self, option) != usual:
                raise RequestError(
                    f"{option}= is not available with a survey design, by which variances are of "
                    "any errors; leave it out"
                )
        return equations_of(self._moments(schema), IDENTITY)

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted coefficients."""
        equations = self._weighted(schema)
        names = equations.moments.design.names
        return [equations.estimand(names, np.eye(len(names)))]

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The score at the weighted estimate of a release, where contrasts are of a score."""
        equations: Any = self._weighted(release.schema)
        at_pilot: PilotScore = equations.at_pilot(release)
        return at_pilot

    def infer_weighted(self, release: ReleaseView) -> WeightedRegression:
        """Weighted coefficients in original units."""
        from dpstats.analyses.survey.coefficients import weighted_regression

        equations = self._weighted(release.schema)
        return weighted_regression(self, self._title(equations.moments), equations, release)

    def infer(self, release: ReleaseView) -> OLSResult:
        """Coefficients in original units with noise-aware and certified intervals."""
        moments = self._moments(release.schema)
        matrix = moments.matrix(release)
        left = left_out(moments, matrix if self.ridge == 0 else None)
        rows, covariance_of = self._rows_and_covariance(moments, release, matrix)
        model = LeastSquares(
            matrix, moments.rows[[*left.kept, -1]],
            float(self.ridge) * moments.penalised[left.kept], covariance_of,
            left.directions @ moments.rows[:-1], left.touched[np.ix_(left.level_of, left.kept)],
        )  # fmt: skip
        intervals = LinearIntervals(model, moments.to_basis, moments.shift, left)
        return OLSResult(
            title=self._title(moments),
            terms=moments.design.names,
            params=Named(intervals.estimates, moments.design.names),
            sampling_variance=intervals.variances[0],
            privacy_variance=intervals.variances[1],
            intervals=intervals,
            rows=rows,
            budget=str(release.budget),
            notes=[
                *subgroup_notes(moments.given, matrix.answers.rows),
                *self._notes(intervals, moments.design.names),
                *(clipping_notes(matrix, _BIAS) if isinstance(matrix, MomentMatrix) else ()),
                cell_rules(release.schema, self),
            ],
            null=np.zeros(len(moments.shift)),
            moments=moments,
        )

    def _rows_and_covariance(
        self, moments: DesignMoments, release: ReleaseView, matrix: NoisyMatrix
    ) -> tuple[RowCount, Callable[[LeastSquares], SamplingCovariance]]:
        """The rows, as the sampling covariance takes them, and what gives it of a fit."""
        several = matrix.answers.rows.rows_per_person > 1
        scores = moments.person_scores(release, float(matrix.n)) if several else None
        rows = matrix.answers.rows.with_totals(scores is not None)
        k = float(rows.rows_per_person)
        if scores is not None:
            bounded = self.cov_type == "nonrobust"
            return rows, partial(OfPersons, measured=scores, bounded=bounded, clustering=k)
        if self.cov_type == "HC1":
            return rows, partial(AnyVariances, measured=moments.fourth(release), clustering=k)
        return rows, partial(EqualVariances, clustering=k)

    def _title(self, moments: DesignMoments) -> str:
        options = [f"ridge = {self.ridge:.10g}"] if self.ridge else []
        options += ["HC1"] if self.cov_type == "HC1" else []
        options += [] if self.given is None else [f"given {self.given}"]
        formula = moments.design.titled(self.formula, moments.schema)
        return f"OLS: {formula}" + (f" ({', '.join(options)})" if options else "")

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = DesignMoments.of(schema, self.formula, self.given, penalty=self.ridge > 0)
        if self.clip_norm is None:
            return moments
        return moments.in_ball(self.clip_norm, self.center, self.scale)

    def _notes(self, intervals: LinearIntervals, names: list[str]) -> list[str]:
        model = intervals.model
        notes = [model.sampling.about]
        if intervals.left is not None and intervals.left.names:
            notes.append(_EMPTY.format(", ".join(intervals.left.names)))
        if model.df_resid <= 0:
            notes.append("no residual degrees of freedom: there are no more rows than coefficients")
        elif not model.regular:
            notes.append(f"all intervals are unbounded: {_SINGULAR}")
        elif intervals.unbounded(0.05):
            notes.append(f"some intervals are unbounded: {_SINGULAR}")
            notes.append(
                "the values that are not rejected may be two half-lines, so that a p-value rejects "
                "0 although the interval has no end: t_test tests any value"
            )
        if signs := _certain_signs(intervals, names):
            notes.append(f"where an interval has no end, its sign is certified: {', '.join(signs)}")
        if model.regular and model.error_variance <= 0:
            notes.append("the noise exceeds the variance of the errors: it has no estimate")
        if model.regular:
            notes += model.sampling.notes(intervals.combinations)
        if self.ridge:
            notes.append("intervals are for the penalised coefficients")
        return notes


def _certain_signs(intervals: LinearIntervals, names: list[str]) -> list[str]:
    """Coefficients whose certified interval is a half-line on one side of zero, with the side."""
    if not intervals.unbounded(0.05):
        return []
    low, high = intervals.conf_int(0.05, "certified", "population")
    above = [f"{name} is positive" for name, end in zip(names, low, strict=True) if end > 0]
    return above + [f"{n} is negative" for n, end in zip(names, high, strict=True) if end < 0]


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
        return float(self._law.combinations.shape[1] - (self.moments.constant is not None))

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
        """`scale` by statsmodels' other name."""
        return self.scale

    @property
    def ssr(self) -> float:
        """Sum of the squared residuals: `scale` times `df_resid`, from noisy moments."""
        return self.scale * max(self.df_resid, 0.0)

    @property
    def _covariance(self) -> Floats:
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
        return covariance

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
        """`rsquared` adjusted for the number of coefficients; 0 where noise made it negative."""
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
        """P-value of `fvalue`, which allows for the noise."""
        return 1.0 if self._overall is None else self._overall.pvalue

    def get_prediction(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Prediction:
        """Predictions for given values of the columns of the formula.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            Of pandas, polars or Arrow. In original units; numbers within the schema's bounds,
            levels by their labels or as the table stores them. A single value is repeated.
            It must be given: a release keeps no rows.

        Returns
        -------
        Prediction

        Raises
        ------
        RequestError
            For a missing column, or a value that the schema does not declare.
        """
        rows = self.moments.half_range * self.moments.at(exog)
        names = [str(i) for i in range(len(rows))]
        intervals = replace(self._law, rows=rows, offsets=rows @ self.moments.absorbed)
        new, null = replace(intervals, extra=self.moments.half_range**2), np.zeros(len(rows))
        mean, responses = (
            LinearResult(**self._combined(f"{of}, {self.title}", names, law), null=null)
            for of, law in (("Predicted mean", intervals), ("New responses", new))
        )
        return Prediction(mean.title, mean, responses)

    def predict(self, exog: pd.DataFrame | Mapping[str, Any] | None = None) -> Floats:
        """Predicted means alone; `get_prediction` has their intervals.

        Parameters
        ----------
        exog : DataFrame or mapping of column name to values
            As in `get_prediction`, which raises the same errors.

        Returns
        -------
        (m,) float64
        """
        return self.get_prediction(exog).predicted_mean

    def _along(self, matrix: Floats) -> LinearIntervals:
        rows, offsets = matrix @ self.moments.to_basis, matrix @ self.moments.shift
        return replace(self._law, rows=rows, offsets=offsets)

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
            "F test: none, no coefficient but the constant"
            if self._overall is None
            else f"F statistic {significant(self.fvalue)} on {self._overall._shown_df} df, "
            f"p-value {shown_pvalue(self.f_pvalue)} (allows for the noise)"
        )
        return [self.title, fit, test]

    def _fit(self) -> str:
        return (
            f"R-squared {fixed(self.rsquared, 3)} (adjusted {fixed(self.rsquared_adj, 3)}), "
            f"residual sd {significant(np.sqrt(self.scale))}: from noisy moments, without intervals"
        )
