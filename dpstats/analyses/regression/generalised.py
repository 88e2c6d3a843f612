"""What logistic and Poisson regression share: from a formula to noise-aware coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
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
from dpstats.checks import Method, Target, first_few
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.analyses.regression.glm_empty_levels import Scored
    from dpstats.analyses.regression.glm_models import DensityModel
    from dpstats.analyses.regression.link import Link
    from dpstats.arrays import Floats
    from dpstats.families.pilot_score import PilotScore
    from dpstats.measured.answers import Asking
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Column, Schema

R = TypeVar("R", bound="GeneralisedResult")

NO_ESTIMATE = (
    "there is no estimate within reach: the noise leaves none, or the outcome has one value, or is "
    "separated by a regressor, or a level has no rows; use more rows, more budget, fewer "
    "regressors, or wider bins"
)
NOT_CERTIFIED = "there is no certified interval for these coefficients; dps.LossGrid has one"
NO_ENDS = (
    "some intervals have no ends: the noise does not rule out collinear regressors; leave out one "
    "of two related columns, or use more rows or more budget"
)
SEPARATED = (
    "some intervals have an end at infinity: the noise does not rule out that a regressor predicts "
    "the outcome without error; no finite coefficient would do so. Use more rows, more budget, or "
    "leave out levels with few rows of one outcome"
)
NOT_CARRIED = (
    "no density that could be fitted carries the measured means, so there is no estimate: plan "
    "fewer columns, or leave out other analyses than tables, moments and regressions"
)
TWO_STAGES = "the score itself was measured, at a pilot that the first stage gave"
ONE_OF_TWO = (
    "this release has no second stage for this formula: these are the results of the first; "
    "a plan with start= adds it"
)


@dataclass(frozen=True)
class Generalised:
    """What is the same for all links: the parameters, and what both stages measure."""

    preview_remark: ClassVar[str] = (
        "Widths of logistic and Poisson coefficients are about the least: even rows have numbers "
        "that vary over all of their bounds, and an outcome that is neither rare nor common. A "
        "number with half the standard deviation has twice the width or more; an outcome of share "
        "p has 1 / (2 sqrt(p (1 - p))) times the width, and counts with a quarter of the mean "
        "have twice."
    )

    formula: str
    given: str | None = None
    stages: int = 1

    def __post_init__(self) -> None:
        if type(self.stages) is not int or self.stages not in (1, 2):
            raise RequestError(
                "stages must be 1, or 2 for the score at a pilot besides, which reads the rows "
                "twice"
            )

    def _density(self, schema: Schema) -> DensityModel:
        """The model, of several columns."""
        raise NotImplementedError

    def family(self, schema: Schema) -> Family:
        """Mean products and two-way tables."""
        return Family(tuple(dict.fromkeys(self._density(schema).blocks)))

    def without_bins(self, schema: Schema) -> tuple[str, ...]:
        """Numbers whose rows it counts in bins, and that declare no edges.

        A plan gives them even ones.
        """
        return tuple(
            column.name
            for column in self._counted(schema)
            if isinstance(column, Number) and column.value_bins < 2
        )

    def _counted(self, schema: Schema) -> list[Column]:
        """Columns whose rows are counted."""
        return self._density(schema).counted

    def second_stage(self, schema: Schema) -> PilotScore | None:
        """The score at a pilot, which is measured besides with ``stages=2``."""
        return self._density(schema).second_stage if self.stages == 2 else None

    def at_pilot(self, release: ReleaseView) -> PilotScore:
        """The same at the estimate of a release of the first stage."""
        return self._density(release.schema).at_pilot(release)

    def combines(self, schema: Schema) -> bool:
        """Its answers may be combined from several measurements."""
        return True

    def _title(self, name: str, moments: DesignMoments) -> str:
        given = "" if self.given is None else f" (given {self.given})"
        return f"{name} regression: {moments.design.titled(self.formula, moments.schema)}{given}"


def left_out_notes(levels: Sequence[str], terms: Sequence[str]) -> list[str]:
    """A note on levels without rows, and one on the coefficients that are not determined."""
    notes = []
    if levels:
        notes.append(
            "left out, since their noisy numbers of rows are within the noise: "
            f"{first_few(levels)}; the results are of the other rows"
        )
    if terms:
        notes.append(f"the rows do not determine {first_few(terms)}: no estimate")
    return notes


def _unmeasured(shares: Floats, names: Sequence[str], second: bool) -> list[str]:
    """A note on the shares of the variances that what was not measured has."""
    if np.isnan(shares).all() or np.nanmax(shares) < LEAST_SHARE:
        return []
    largest = int(np.nanargmax(shares))
    remedy = "narrower bins reduce it" if second else "narrower bins or stages=2 reduce it"
    return [
        f"up to {shares[largest]:.0%} of a variance, that of {names[largest]}, comes from what was "
        "not measured: the fitted density supplies it, its error is allowed for by a rule, not a "
        f"theorem, and it counts as privacy in the table. More budget does not reduce it; {remedy}"
    ]


def result_of(
    kind: type[R],
    title: str,
    release: ReleaseView,
    analysis: Asking,
    moments: DesignMoments,
    link: Link,
    scored: Scored[Any],
    notes: list[str],
    unmeasured: Floats | None = None,
) -> R:
    """The result of a model; `unmeasured` as in `GeneralisedResult`, zero if not given."""
    names = moments.design.names
    combinations = moments.to_basis / moments.half_range
    intervals = CoefficientIntervals(scored.model, combinations)
    missing = [] if intervals.known else [NO_ESTIMATE]
    if intervals.known:
        known, _ = scored.determined(combinations)
        open_terms = [name for name, one in zip(names, known, strict=True) if not one]
        missing += left_out_notes(scored.left_out, open_terms)
    subgroup = subgroup_notes(moments.given, scored.rows)
    rules = [NOT_CERTIFIED, cell_rules(release.schema, analysis)]
    zero = np.zeros(len(names))
    return kind(
        title=title,
        terms=names,
        params=Named(intervals.estimates, names),
        sampling_variance=intervals.variances[0],
        privacy_variance=intervals.variances[1],
        intervals=intervals,
        rows=scored.rows.of_persons,
        budget=str(release.budget),
        notes=[*missing, *subgroup, *notes, *rules],
        null=zero,
        moments=moments,
        link=link,
        points=scored.points,
        unmeasured=zero if unmeasured is None else unmeasured,
    )


def density_result(
    kind: type[R],
    title: str,
    release: ReleaseView,
    analysis: Generalised,
    model: DensityModel,
    remarks: Sequence[str] = (),
) -> R:
    """The result from the fitted density, calibrated to the answers."""
    notes, both = [*remarks], analysis.stages == 2
    try:
        scored = model.score(release, [model.second_stage] if both else [])
    except NotMeasuredError:
        if not both:
            raise
        scored = model.score(release, [])
        notes.append(ONE_OF_TWO)
        both = False
    if both:
        notes.append(TWO_STAGES)
    moments, score = model.moments, scored.score
    unmeasured = np.full(len(moments.design.names), np.nan)
    if score.known:
        known, combinations = scored.determined(moments.to_basis / moments.half_range)
        if score.unbounded(combinations, 0.05):
            notes.append(NO_ENDS)
        elif any(np.isinf(score.interval(h, 0.05, sampled=True)).any() for h in combinations):
            notes.append(SEPARATED)
        unmeasured[known] = score.unmeasured(combinations)
        notes += _unmeasured(unmeasured, moments.design.names, both)
    elif not score.carries:
        notes.append(NOT_CARRIED)
    return result_of(kind, title, release, analysis, moments, model.link, scored, notes, unmeasured)


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
