"""What logistic and Poisson regression share: from a formula to noise-aware coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.inference.regression.coefficient_intervals import CoefficientIntervals
from dpstats.results.generalised import LEAST_SHARE, Averaging, GeneralisedResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.arrays import Floats
    from dpstats.inference.regression.design_moments import DesignMoments
    from dpstats.inference.regression.glm_models import DensityModel
    from dpstats.inference.regression.link import Link
    from dpstats.measured.answers import Asking
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView

R = TypeVar("R", bound=GeneralisedResult)

NO_ESTIMATE = (
    "there is no estimate within reach: the noise leaves none, or the outcome has one value, or is "
    "separated by a regressor, or a level has no rows; use more rows, more budget, fewer "
    "regressors, or wider bins"
)
NOT_CERTIFIED = "there is no certified interval for these coefficients; dps.LossGrid has one"
TWO_STAGES = "the score itself was measured, at a pilot that the first stage gave"
ONE_OF_TWO = (
    "this release has no second stage for this formula: these are the results of the first; "
    "dps.plan(..., start=release) adds it"
)


def check_stages(stages: object) -> None:
    """Refuse anything but one or two stages.

    Raises
    ------
    RequestError
    """
    if type(stages) is not int or stages not in (1, 2):
        raise RequestError(
            "stages must be 1, or 2 for the score at a pilot besides, which reads the rows twice"
        )


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
        rows=fitted.rows,
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
    analysis: Asking,
    model: DensityModel,
    stages: int,
) -> R:
    """The result from the fitted density, calibrated to the answers."""
    notes = []
    try:
        score, points = model.score(release, [model.second_stage] if stages == 2 else [])
        notes += [TWO_STAGES] if stages == 2 else []
    except NotMeasuredError:
        if stages == 1:
            raise
        score, points = model.score(release, [])
        notes.append(ONE_OF_TWO)
    moments = model.moments
    unmeasured = np.full(len(moments.design.names), np.nan)
    if score.known:
        unmeasured = score.unmeasured(moments.to_basis / moments.half_range)
        notes += _unmeasured(unmeasured, moments.design.names, TWO_STAGES in notes)
    rows = score.answers.rows if moments.given is None else moments.matrix(release).answers.rows
    fitted = Fitted(score, moments, model.link, points, rows, unmeasured)
    return result_of(kind, title, release, analysis, fitted, notes)
