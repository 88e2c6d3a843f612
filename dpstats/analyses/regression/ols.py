"""Ordinary least squares from second moments.

The mean products of regressors and response are measured; coefficients, intervals, contrasts and
predictions follow from them alone. `analyses.regression.least_squares` has the law of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, get_args

import numpy as np

from dpstats.analyses.moments.clipping import check_clipping, clipping_notes
from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.empty_levels import left_out
from dpstats.analyses.regression.least_squares import LeastSquares, SamplingCovariance
from dpstats.analyses.regression.least_squares_result import EMPTY, OLSResult
from dpstats.analyses.regression.linear_intervals import LinearIntervals
from dpstats.analyses.regression.sampling_covariance import (
    AnyVariances,
    EqualVariances,
    OfPersons,
)
from dpstats.checks import as_float, check_choice, short
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.persons.moments import PersonMoments
from dpstats.inference.moment_matrix import MomentMatrix, NoisyMatrix
from dpstats.measured.row_count import RowCount
from dpstats.measured.view import ReleaseView
from dpstats.results.named import Named
from dpstats.schema import Schema

CovType = Literal["nonrobust", "HC1"]

_BIAS = "the bias that this gives the coefficients, usually towards 0,"
_SINGULAR = (
    "the noisy moments do not rule out collinear regressors. If the noise exceeds the signal, use "
    "more rows, more budget, fewer regressors, ridge= or clip_norm=; if columns are collinear or "
    "constant, use another formula"
)


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
        if not numeric or isinstance(self.ridge, bool) or not 0 <= self.ridge < np.inf:
            raise RequestError(f"ridge must be a number of at least 0, got {short(self.ridge)}")
        check_choice("cov_type", self.cov_type, get_args(CovType))
        object.__setattr__(self, "ridge", as_float(self.ridge))
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
        """What the covariance of scores over persons follows from; none of shrunk rows."""
        return () if self.clip_norm is not None else (self._moments(schema).person_totals(),)

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
        intervals = LinearIntervals.of(model, moments.to_basis, moments.shift, left)
        return OLSResult(
            title=self._title(moments),
            terms=moments.design.names,
            params=Named(intervals.estimates, moments.design.names),
            sampling_variance=intervals.sampling_variance,
            privacy_variance=intervals.privacy_variance,
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
        options = [f"ridge = {self.ridge:g}"] if self.ridge else []
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
            notes.append(EMPTY.format(", ".join(intervals.left.names)))
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
