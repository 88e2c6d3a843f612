"""Logistic and Poisson regression: from a table of cells, or from moments and two-way tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.calibrated_score import CalibratedScore
from dpstats.analyses.regression.contrasts import LinkedResult, RegressionResult, estimated
from dpstats.analyses.regression.design_moments import DesignMoments
from dpstats.analyses.regression.glm_models import BinnedModel, DensityModel, Scored
from dpstats.analyses.regression.score import LOG, LOGIT, Average, Link, Score
from dpstats.analyses.survey.by_design import weighted_by_design
from dpstats.analyses.survey.estimand import Estimand
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Target, first_few
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.inference.intervals import Intervals
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.roots import find_roots
from dpstats.schema import Number

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.analyses.survey.coefficients import Equations, WeightedRegression
    from dpstats.checks import Alternative
    from dpstats.families.pilot_score import PilotScore
    from dpstats.inference.intervals import Ends
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema

_ROUNDING = 1e-8
_STEP = 1e-3  # in unit scale; regressors are at most quadratic, so differences are exact


@dataclass(frozen=True, eq=False)
class CoefficientIntervals(Intervals, Cached):
    """Intervals of k combinations of the p coefficients; none is certified.

    Without rows in some levels the regressors may be linearly dependent. Then a combination h'b is
    determined if h = QQ'h, and the model is fitted in the coordinates Q'b (logistic-regression.md,
    eq. 1).
    """

    model: Score
    combinations: Floats  # (k, p)
    basis: Floats | None = None  # (p, r) Q, see `span`; None where all combinations are determined

    def __len__(self) -> int:
        return len(self.combinations)

    @property
    def known(self) -> bool:
        """True if there is an estimate."""
        return self.model.params is not None

    @cached_property
    def reduced(self) -> Floats:
        """(k, r) combinations in the coordinates of the model, where they are determined."""
        return self.combinations if self.basis is None else self.combinations @ self.basis

    @cached_property
    def _outside(self) -> Floats:
        """(k, p) part of the combinations that is not in the span."""
        if self.basis is None:
            return np.zeros_like(self.combinations)
        return np.asarray(self.combinations - self.reduced @ self.basis.T)

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """(k,) whether the rows determine each combination."""
        size = np.linalg.norm(self.combinations, axis=1)
        return np.asarray(np.linalg.norm(self._outside, axis=1) <= _ROUNDING * size)

    def determined_part(self) -> Floats:
        """(r, k) independent combinations of the combinations that are determined."""
        if self.basis is None:
            return np.eye(len(self))
        size = np.abs(self.combinations).max(initial=0.0)
        outside = np.where(np.abs(self._outside) <= _ROUNDING * size, 0.0, self._outside)
        return np.asarray(linalg.null_space(outside.T).T)

    @cached_property
    def estimates(self) -> Floats:
        """(k,) nan where there is none."""
        if self.model.params is None:
            return np.full(len(self), np.nan)
        return np.where(np.isinf(self.variances[0]), np.nan, self.reduced @ self.model.params)

    @cached_property
    def _covariances(self) -> Floats:
        """(2, k, k) from sampling and from privacy, infinite where there is no estimate."""
        both = np.full((2, len(self), len(self)), np.inf)
        if self.known:
            known = self.determined
            for part, errors in zip(both, self.model.covariances(self.reduced[known]), strict=True):
                part[np.ix_(known, known)] = errors
        return both

    @property
    def variances(self) -> Floats:
        """(2, k) from sampling and from privacy, infinite without an estimate."""
        return self._covariances.diagonal(axis1=1, axis2=2)

    @property
    def covariance(self) -> Floats:
        """(k, k) of the errors."""
        return np.asarray(self._covariances.sum(axis=0))

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        low, high = self.certified(alpha, target)
        if self.known:
            for i in np.flatnonzero(self.determined):
                ends = self.model.interval(self.reduced[i], alpha, sampled=target == "population")
                low[i], high[i] = ends
        return low, high

    def subset(self, chosen: slice) -> CoefficientIntervals:
        """Intervals of some of the combinations."""
        return replace(self, combinations=self.combinations[chosen])

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each combination equals `value`."""
        pvalues, values = np.ones(len(self)), np.broadcast_to(value, len(self)).tolist()
        if self.known:
            for i in np.flatnonzero(self.determined):
                pvalues[i] = self.model.pvalue(self.reduced[i], values[i], alternative)
        return pvalues

    def wald(self, values: Floats) -> tuple[float, float, float, float]:
        """F test that all combinations, determined ones, equal values (k,); see `joint_test`."""
        if not self.known:
            return 0.0, 1.0, float(len(values)), self.model.df
        return self.model.wald(self.reduced, values)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """See `Score.average`; not known where the function takes more than is determined."""
        model, basis, unknown = self.model, self.basis, Average(np.nan, np.inf, np.inf)
        if model.params is None:
            return unknown
        if basis is None:
            return model.average(values)
        b = basis @ model.params
        used = model.inside if isinstance(model, CalibratedScore) else True
        for direction in linalg.null_space(basis.T).T:
            moved = np.abs(values(b + direction) - values(b))
            if np.any(moved * used > _ROUNDING):
                return unknown
        return model.average(lambda c: values(basis @ c))


@dataclass(frozen=True, eq=False)
class NormalIntervals(Intervals):
    """Intervals of k numbers with normal errors of known variances, and means between bounds.

    The shortest that cover at any of these means (logistic-regression.md, eq. 4).
    """

    estimates: Floats
    sampling: Floats
    privacy: Floats
    low: Floats  # bounds on the mean errors of the estimates, which need not be zero
    high: Floats

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def variances(self) -> Floats:
        """(2, k) from sampling and from privacy."""
        return np.array([self.sampling, self.privacy])

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        sd = np.sqrt(self.privacy + (self.sampling if target == "population" else 0.0))
        width = self._width(sd)
        quantiles = find_roots(
            lambda z, which: special.ndtr(-z) + special.ndtr(-z - width[which]) - alpha,
            np.full(len(self), max(-special.ndtri(alpha), 0.0)),
            np.full(len(self), -special.ndtri(alpha / 2)),
        )
        reach = quantiles * sd
        middle = np.where(np.isinf(reach), 0.0, self.estimates)  # nan without an estimate
        return middle - self.high - reach, middle - self.low + reach

    def _width(self, sd: Floats) -> Floats:
        """(k,) distance of the bounds in standard deviations."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num((self.high - self.low) / sd, posinf=np.inf)

    def subset(self, chosen: slice) -> NormalIntervals:
        """Intervals of some of the numbers."""
        return NormalIntervals(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each number equals `value`."""
        sd = np.sqrt(self.sampling + self.privacy)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = self.estimates - value
            distance -= np.clip(distance, self.low, self.high)
            z, both = distance / sd, np.abs(distance) / sd
            far = special.ndtr(-both) + special.ndtr(-both - self._width(sd))
        sides = {"larger": special.ndtr(-z), "smaller": special.ndtr(z)}
        pvalues = sides.get(alternative, np.where(distance == 0, 1.0, far))
        return np.where(np.isnan(self.estimates), 1.0, pvalues)


Effect = Callable[[Floats], Floats]  # effects (m,) at m points, for coefficients (p,)


def marginal_effects(
    moments: DesignMoments, values: Mapping[str, Floats], link: Link
) -> dict[str, Effect]:
    """Changes of the mean with each column, at points as `DesignMoments.regressors_at` takes."""
    factors = [f for regressor in moments.design.regressors for f in regressor.factors]
    numbers = {name for name, level in factors if level is None}
    references = dict(moments.design.references)

    def at(column: str, value: Floats) -> Floats:
        return moments.regressors_at({**values, column: value})

    def derivative(name: str, half_range: float) -> Effect:
        here = moments.regressors_at(values)
        low, high = (at(name, values[name] + d * _STEP) for d in (-1, 1))
        change = (high - low) / (2 * _STEP) / half_range
        return lambda b: link.slope(here @ b) * (change @ b)

    def difference(first: Floats, second: Floats) -> Effect:
        return lambda b: link.mean(second @ b) - link.mean(first @ b)

    effects = {}
    for column in (column for column in moments.schema if column.name in values):
        if column.name in numbers:
            assert isinstance(column, Number)
            effects[column.measured_name] = derivative(column.name, column.half_range)
            continue
        levels = [np.full_like(values[column.name], level) for level in range(column.bins)]
        labels, means = list(column.bin_labels), [at(column.name, level) for level in levels]
        reference = references[column.name]
        first, own = means.pop(reference), labels.pop(reference)
        for label, other in zip(labels, means, strict=True):
            effects[f"{column.name}: {own} to {label}"] = difference(first, other)
    return effects


R = TypeVar("R", bound="GeneralisedResult")

_NO_ESTIMATE = (
    "there is no estimate within reach: the noise leaves none, or the outcome has one value, or is "
    "separated by a regressor, or a level has no rows; use more rows, more budget, fewer "
    "regressors, or wider bins"
)
_NOT_CERTIFIED = "there is no certified interval for these coefficients; dps.LossGrid has one"
_NO_ENDS = (
    "some intervals have no ends: the noise does not rule out collinear regressors; leave out one "
    "of two related columns, or use more rows or more budget"
)
_SEPARATED = (
    "some intervals have an end at infinity: the noise does not rule out that a regressor predicts "
    "the outcome without error; no finite coefficient would do so. Use more rows, more budget, or "
    "leave out levels with few rows of one outcome"
)
_NOT_CARRIED = (
    "no density that could be fitted carries the measured means, so there is no estimate: plan "
    "fewer columns, or leave out other analyses than tables, moments and regressions"
)
_TWO_STAGES = "the score itself was measured, at a pilot that the first stage gave"
_ONE_OF_TWO = (
    "this release has no second stage for this formula: these are the results of the first; "
    "a plan with start= adds it"
)
_BINNED = (
    "from the noisy counts of all cells of the regressors by the outcome; the error of placing "
    "rows in the middle of a bin is corrected, and a bound on the rest is in the intervals"
)
_FEWER = (
    "this release has no cells of these columns with their offsets: the results are from its "
    "moments and two-way tables, as for more columns"
)
_ROBUST = (
    "standard errors and intervals allow counts to vary more or less than a Poisson law does "
    "(HC0): they are of the coefficients of the mean, whatever the law of the counts"
)
_FIRST_ORDER = "intervals of averages are to first order in the errors of the coefficients"
_LEAST_SHARE = 0.005  # of a variance, that is worth a note
_UNMEASURED = (
    "privacy: share of the variance from the privacy noise and from what was not measured."
)


@dataclass(frozen=True, repr=False, eq=False)
class ScoreResult(RegressionResult):
    """Coefficients that a `Score` gives."""

    @property
    def _coefficients(self) -> CoefficientIntervals:
        assert isinstance(self.intervals, CoefficientIntervals)
        return self.intervals

    @property
    def converged(self) -> bool:
        """True if there is an estimate."""
        return self._coefficients.known

    @property
    def zvalues(self) -> Named:
        """`tvalues` by the name of a normal statistic."""
        return self.tvalues

    @property
    def _covariance(self) -> Floats:
        return self._coefficients.covariance

    @property
    def df_resid(self) -> float:
        """Rows less coefficients."""
        return float(self.nobs - len(self.params))

    def _along(self, matrix: Floats) -> CoefficientIntervals:
        basis = self._in_basis(matrix) / self.moments.half_range
        return replace(self._coefficients, combinations=basis)


@dataclass(frozen=True, repr=False, eq=False)
class GeneralisedResult(ScoreResult, LinkedResult):
    """A generalised linear model, named as in statsmodels: ``params, bse, tvalues, pvalues``.

    Attributes
    ----------
    points : mapping of column name to (m,) float64
        Of the columns of the regressors, where `get_margeff` averages over the rows.
    unmeasured : (d,) float64
        Share of each variance that allows for what no measured function determines, which
        `privacy_share` counts too; zero where all that the score needs was measured.
    """

    points: Mapping[str, Floats] = field(kw_only=True, compare=False)
    unmeasured: Floats = field(kw_only=True, compare=False)

    @property
    def _privacy(self) -> str:
        return _UNMEASURED if np.any(self.unmeasured >= _LEAST_SHARE) else super()._privacy

    def _at(self, exog: pd.DataFrame | Mapping[str, Any] | None) -> CoefficientIntervals:
        """The linear predictor at given values."""
        return replace(self._coefficients, combinations=self.moments.at(exog))

    def get_margeff(self) -> EstimateResult:
        """Average marginal effects over the rows.

        Of a number: the mean derivative of the predicted mean, per original unit; where the formula
        has ``log(wage)``, per unit of that logarithm, in a row of that name. Of a level: the mean
        difference between all rows at this level and all rows at the baseline of the formula.

        Returns
        -------
        EstimateResult
        """
        return self._margeff

    @cached_property
    def _margeff(self) -> EstimateResult:
        effects = marginal_effects(self.moments, self.points, self.link)
        names = list(effects)
        means = np.array([self._coefficients.average(effect) for effect in effects.values()]).T
        intervals = NormalIntervals(*means)
        title = f"Average marginal effects, {self.title}"
        return EstimateResult(**self._combined(title, names, intervals, [_FIRST_ORDER]))


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


@dataclass(frozen=True)
class Generalised:
    """Parameters and measurements of a generalised linear model, for all links."""

    preview_remark: ClassVar[str] = (
        "Widths of logistic and Poisson coefficients are about the least: even rows have numbers "
        "that vary over all of their bounds, and an outcome that is neither rare nor common. A "
        "number with half the standard deviation has twice the width or more; an outcome of share "
        "p has 1 / (2 sqrt(p (1 - p))) times the width, and counts with a quarter of the mean "
        "have twice."
    )
    link: ClassVar[Link]
    robust: ClassVar[bool] = False

    formula: str
    given: str | None = None
    stages: int = 1

    def __post_init__(self) -> None:
        if type(self.stages) is not int or self.stages not in (1, 2):
            raise RequestError(
                "stages must be 1, or 2 for the score at a pilot besides, which reads the rows "
                "twice"
            )

    def _moments(self, schema: Schema) -> DesignMoments:
        return DesignMoments.of(schema, self.formula, self.given)

    def _density(self, schema: Schema) -> DensityModel:
        """The model of several columns."""
        return DensityModel(self._moments(schema), self.link, self.robust)

    def _model(self, schema: Schema) -> BinnedModel | DensityModel:
        return self._density(schema)

    def family(self, schema: Schema) -> Family:
        """The cells by the outcome; or mean products and two-way tables."""
        return Family(tuple(dict.fromkeys(self._model(schema).blocks)))

    def _weighted(self, schema: Schema) -> Equations:
        """Equations of weighted coefficients."""
        from dpstats.analyses.survey.coefficients import equations_of

        return equations_of(self._moments(schema), self.link)

    def estimands(self, schema: Schema) -> list[Estimand]:
        """Weighted coefficients."""
        equations = self._weighted(schema)
        names = equations.moments.design.names
        return [equations.estimand(names, np.eye(len(names)))]

    def infer_weighted(self, release: ReleaseView) -> WeightedRegression:
        """Weighted coefficients in original units."""
        from dpstats.analyses.survey.coefficients import weighted_regression

        equations = self._weighted(release.schema)
        return weighted_regression(self, self._title(equations.moments), equations, release)

    def without_bins(self, schema: Schema) -> tuple[str, ...]:
        """Numbers that are counted in bins and declare no edges: a plan gives them even ones."""
        return tuple(
            column.name
            for column in self._model(schema).counted
            if isinstance(column, Number) and column.value_bins < 2
        )

    def second_stage(self, schema: Schema) -> PilotScore | None:
        """The score at a pilot, which is measured besides with ``stages=2``."""
        return self._density(schema).second_stage if self.stages == 2 else None

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The score at the estimate of a release of the first stage."""
        if release.schema.design is not None:
            equations: Any = self._weighted(release.schema)  # those with contrasts of scores
            at_pilot: PilotScore = equations.at_pilot(release)
            return at_pilot
        return self._density(release.schema).at_pilot(release)

    def combines(self, schema: Schema) -> bool:
        """True: answers may be combined from several measurements."""
        return True

    def _from_density(self, kind: type[R], release: ReleaseView, *notes: str) -> R:
        """The result from the fitted density, calibrated to the answers."""
        model, both = self._density(release.schema), self.stages == 2
        remarks = [*notes]
        try:
            scored = model.score(release, [model.second_stage] if both else [])
        except NotMeasuredError:
            if not both:
                raise
            scored, both = model.score(release, []), False
            remarks.append(_ONE_OF_TWO)
        if both:
            remarks.append(_TWO_STAGES)
        return self._result(kind, release, model.moments, scored, remarks)

    def _result(
        self, kind: type[R], release: ReleaseView, moments: DesignMoments, scored: Scored,
        notes: list[str],
    ) -> R:  # fmt: skip
        names, score = moments.design.names, scored.score
        combinations = moments.to_basis / moments.half_range
        intervals = CoefficientIntervals(score, combinations, scored.basis)
        unmeasured = np.zeros(len(names))
        if isinstance(score, CalibratedScore):
            unmeasured = np.full(len(names), np.nan)
            if intervals.known:
                determined = intervals.determined
                unmeasured[determined] = score.unmeasured(intervals.reduced[determined])
            notes = [*notes, *_calibrated(intervals, unmeasured, names, _TWO_STAGES in notes)]
        return kind(
            title=self._title(moments),
            **estimated(names, intervals),
            rows=scored.rows.of_persons,
            budget=str(release.budget),
            notes=[
                *notes_on_estimates(intervals, names, scored.left_out),
                *subgroup_notes(moments.given, scored.rows),
                *notes,
                _NOT_CERTIFIED,
                cell_rules(release.schema, self),
            ],
            null=np.zeros(len(names)),
            moments=moments,
            link=self.link,
            points=scored.points,
            unmeasured=unmeasured,
        )

    def _title(self, moments: DesignMoments) -> str:
        given = "" if self.given is None else f" (given {self.given})"
        formula = moments.design.titled(self.formula, moments.schema)
        return f"{type(self).__name__} regression: {formula}{given}"


def notes_on_estimates(
    intervals: CoefficientIntervals,
    terms: Sequence[str],
    left_out: Sequence[str],
    no_estimate: str = _NO_ESTIMATE,
) -> list[str]:
    """Notes on what has no estimate: levels `left_out`, and what depends on them."""
    if not intervals.known:
        return [no_estimate]
    notes = []
    if left_out:
        notes.append(
            "left out, since their noisy numbers of rows are within the noise: "
            f"{first_few(left_out)}; the results are of the other rows"
        )
    if not intervals.determined.all():
        undetermined = [terms[i] for i in np.flatnonzero(~intervals.determined).tolist()]
        notes.append(f"the rows do not determine {first_few(undetermined)}: no estimate")
    return notes


def _calibrated(
    intervals: CoefficientIntervals, shares: Floats, names: Sequence[str], second: bool
) -> list[str]:
    """Notes on ends at infinity, and on the shares of the variances that were not measured."""
    score = intervals.model
    assert isinstance(score, CalibratedScore)
    if not intervals.known:
        return [] if score.fits else [_NOT_CARRIED]
    notes, determined = [], intervals.reduced[intervals.determined]
    if score.unbounded(determined, 0.05):
        notes.append(_NO_ENDS)
    elif any(np.isinf(score.interval(h, 0.05, sampled=True)).any() for h in determined):
        notes.append(_SEPARATED)
    if not np.isnan(shares).all() and np.nanmax(shares) >= _LEAST_SHARE:
        largest = int(np.nanargmax(shares))
        remedy = "narrower bins reduce it" if second else "narrower bins or stages=2 reduce it"
        notes.append(
            f"up to {shares[largest]:.0%} of a variance, that of {names[largest]}, comes from what "
            "was not measured: the fitted density supplies it, its error is allowed for by a rule, "
            "not a theorem, and it counts as privacy in the table. More budget does not reduce it; "
            f"{remedy}"
        )
    return notes


@weighted_by_design
@dataclass(frozen=True)
class Logistic(Generalised):
    """Logistic regression of a column with two levels on numbers and categories.

    With one or two columns on the right and no `given`, the counts of their cells by the outcome
    are measured, and for numbers how far rows lie from the middle of their bin; a number without
    `edges=` in the schema gets eight even bins (8 to 16 serve most). Else the functions of
    `dps.OLS` with the same formula are measured, and two-way tables of all columns; see
    `analyses.regression.calibrated_score` for what intervals rest on then. A release
    that has these for more columns answers smaller models too. Levels whose noisy number of rows is
    within the noise are left out. With a survey design splines of the numbers are measured, by the
    other columns, and the score at a pilot between units.

    Parameters
    ----------
    formula : str
        Such as ``"ill ~ age + C(region)"``, as for `dps.OLS`. Of a Boolean the odds of true are
        modelled; of another column with two levels those of the second, as in R. With
        ``"C(vote, Treatment('yes')) ~ age"`` they are those of the level that is not named. A level
        for missing cells does not count as one.
    given : str, optional
        Regression in the rows with this condition. Rows without a value of the response, or of a
        number in the formula, are left out in any case.
    stages : {1, 2}
        With 2, the moments and tables that several columns need are measured with half of the
        budget, and with the other half the score at the estimate that they give: the rows are read
        twice. It serves from about 100,000 rows, or from four columns on.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Logistic("ill ~ age + C(region)")
    Logistic(formula='ill ~ age + C(region)', given=None, stages=1)
    """

    kind: ClassVar[str] = "logistic"
    link: ClassVar[Link] = LOGIT

    def _model(self, schema: Schema) -> BinnedModel | DensityModel:
        moments = self._moments(schema)
        if self.stages == 1 and BinnedModel.applies_to(moments):
            return BinnedModel(moments)
        return self._density(schema)

    def infer(self, release: ReleaseView) -> LogisticResult:
        """Coefficients in original units with noise-aware intervals."""
        model = self._model(release.schema)
        if isinstance(model, DensityModel):
            return self._from_density(LogisticResult, release)
        try:
            scored = model.score(release)
        except NotMeasuredError as error:
            try:
                return self._from_density(LogisticResult, release, _FEWER)
            except NotMeasuredError:
                raise error from None
        result = self._result(LogisticResult, release, model.moments, scored, [_BINNED])
        if model.advice and np.isinf(result.conf_int()).any():
            note = f"some intervals have an end at infinity, for the noise or {model.advice}"
            return replace(result, notes=[note, *result.notes])
        return result

    def advice(self, schema: Schema) -> str:
        """Advice on the schema that a preview with even rows does not show; "" for none."""
        model = self._model(schema)
        return model.advice if isinstance(model, BinnedModel) and model.has_few_bins else ""

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = super()._moments(schema)
        name, level = moments.design.response
        if level is None:
            raise RequestError(
                f"the response of a logistic regression must be a column with two levels, and "
                f"{name!r} is a number; declare it with two levels, such as levels = [0, 1], or as "
                "a Boolean, or use OLS or Poisson"
            )
        return moments


@weighted_by_design
@dataclass(frozen=True)
class Poisson(Generalised):
    """Log-linear regression of a mean that is not negative, such as a count.

    The functions of `dps.OLS` with the same formula are measured, and two-way tables of all
    columns; a number without `edges=` in the schema gets eight even bins. Sampling variances are
    HC0: they do not assume that counts have a Poisson law, and so allow for overdispersion. With a
    survey design see `dps.Logistic`.

    Parameters
    ----------
    formula : str
        Such as ``"visits ~ age + C(region)"``; the response a number with bounds from 0.
    given : str, optional
        Regression in the rows with this condition.
    stages : {1, 2}
        With 2, half of the budget measures the score at a pilot, see `dps.Logistic`. The residual
        is divided by the upper bound of the response, and fitted means above it count as the bound.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Poisson("visits ~ age + C(region)")
    Poisson(formula='visits ~ age + C(region)', given=None, stages=1)
    """

    kind: ClassVar[str] = "poisson"
    link: ClassVar[Link] = LOG
    robust: ClassVar[bool] = True

    def infer(self, release: ReleaseView) -> PoissonResult:
        """Coefficients in original units with noise-aware intervals."""
        return self._from_density(PoissonResult, release, _ROBUST)

    def _moments(self, schema: Schema) -> DesignMoments:
        moments = super()._moments(schema)
        name, level = moments.design.response
        column, least = schema[name], np.nan
        if level is None and isinstance(column, Number):  # log(a) is a count if a is at least 1
            least = column.grid[0] - (column.scale == "log")
        if not least >= 0:
            raise RequestError(
                f"the response of a Poisson regression must be a number of at least 0, or log(a) "
                f"of one with low= at least 1, and {name!r} is not declared as one"
            )
        return moments
