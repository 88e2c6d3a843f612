"""What logistic and Poisson regression share: from a formula to noise-aware coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.inference.regression.coefficient_intervals import CoefficientIntervals
from dpstats.results.generalised import LEAST_SHARE, Averaging, GeneralisedResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.arrays import Floats
    from dpstats.families.pilot_score import PilotScore
    from dpstats.inference.regression.design_moments import DesignMoments
    from dpstats.inference.regression.generalised.glm_models import DensityModel
    from dpstats.inference.regression.generalised.link import Link
    from dpstats.measured.answers import Asking
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema

R = TypeVar("R", bound=GeneralisedResult)

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
TWO_STAGES = "the score itself was measured, at a pilot that the first stage gave"
ONE_OF_TWO = (
    "this release has no second stage for this formula: these are the results of the first; "
    "a plan with start= adds it"
)


@dataclass(frozen=True)
class Generalised:
    """What is the same for all links: the parameters, and what both stages measure."""

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


def _unmeasured(shares: Floats, names: Sequence[str], second: bool) -> list[str]:
    """A note on the shares of the variances that what was not measured has."""
    largest = int(np.argmax(shares))
    if shares[largest] < LEAST_SHARE:
        return []
    remedy = "narrower bins reduce it" if second else "narrower bins or stages=2 reduce it"
    return [
        f"up to {shares[largest]:.0%} of a variance, that of {names[largest]}, comes from what was "
        "not measured: the fitted density supplies it, its error is allowed for by a rule, not a "
        f"theorem, and it counts as privacy in the table. More budget does not reduce it; {remedy}"
    ]


@dataclass(frozen=True)
class Fitted:
    """A model and its design.

    Attributes
    ----------
    score : Averaging
    moments : DesignMoments
    link : Link
    points : mapping of column name to values
        Of the regressors' columns at the points to average over, as
        `DesignMoments.regressors_at` takes them.
    rows : RowCount
    unmeasured : (p,) float64, optional
        See `GeneralisedResult`; zero if not given.
    """

    score: Averaging
    moments: DesignMoments
    link: Link
    points: Mapping[str, Floats]
    rows: RowCount
    unmeasured: Floats | None = None


def result_of(
    kind: type[R],
    title: str,
    release: ReleaseView,
    analysis: Asking,
    fitted: Fitted,
    notes: list[str],
) -> R:
    """The result of a model."""
    moments = fitted.moments
    names = moments.design.names
    intervals = CoefficientIntervals(fitted.score, moments.to_basis / moments.half_range)
    missing = [] if intervals.known else [NO_ESTIMATE]
    subgroup = subgroup_notes(moments.given, fitted.rows)
    rules = [NOT_CERTIFIED, cell_rules(release.schema, analysis)]
    zero = np.zeros(len(names))
    return kind(
        title=title,
        terms=names,
        params=Named(intervals.estimates, names),
        sampling_variance=intervals.variances[0],
        privacy_variance=intervals.variances[1],
        intervals=intervals,
        rows=fitted.rows.of_persons,
        budget=str(release.budget),
        notes=[*missing, *subgroup, *notes, *rules],
        null=zero,
        moments=moments,
        link=fitted.link,
        points=fitted.points,
        unmeasured=zero if fitted.unmeasured is None else fitted.unmeasured,
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
        score, points = model.score(release, [model.second_stage] if both else [])
    except NotMeasuredError:
        if not both:
            raise
        score, points = model.score(release, [])
        notes.append(ONE_OF_TWO)
        both = False
    if both:
        notes.append(TWO_STAGES)
    moments = model.moments
    unmeasured = np.full(len(moments.design.names), np.nan)
    if score.known:
        combinations = moments.to_basis / moments.half_range
        if score.unbounded(combinations, 0.05):
            notes.append(NO_ENDS)
        elif any(np.isinf(score.interval(h, 0.05, sampled=True)).any() for h in combinations):
            notes.append(SEPARATED)
        unmeasured = score.unmeasured(combinations)
        notes += _unmeasured(unmeasured, moments.design.names, both)
    rows = score.answers.rows if moments.given is None else moments.matrix(release).answers.rows
    fitted = Fitted(score, moments, model.link, points, rows, unmeasured)
    return result_of(kind, title, release, analysis, fitted, notes)
