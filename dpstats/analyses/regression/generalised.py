"""What logistic and Poisson regression share: from a formula to noise-aware coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.inference.regression.coefficient_intervals import CoefficientIntervals
from dpstats.inference.regression.glm_models import DensityModel
from dpstats.inference.regression.marginal_effects import marginal_effects
from dpstats.results.generalised import Averaging, GeneralisedResult
from dpstats.results.named import Named

if TYPE_CHECKING:
    from dpstats.arrays import Floats
    from dpstats.inference.regression.design_moments import DesignMoments
    from dpstats.inference.regression.link import Link
    from dpstats.measured.answers import Asking
    from dpstats.measured.row_count import RowCount
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Column

R = TypeVar("R", bound=GeneralisedResult)

NO_ESTIMATE = (
    "the noise leaves no estimate within reach: use more rows, more budget, fewer regressors, or "
    "wider bins"
)
NOT_CERTIFIED = "there is no certified interval for these coefficients; dps.LossGrid has one"


def result_of(
    kind: type[R],
    title: str,
    release: ReleaseView,
    analysis: Asking,
    model: tuple[Averaging, DesignMoments, Link],
    points: tuple[tuple[Column, ...], dict[str, Floats]],
    unmeasured: Floats,
    rows: RowCount,
    notes: list[str],
) -> R:
    """The result from a model and its design; `points` are columns and values to average over."""
    score, moments, link = model
    names = moments.design.names
    combinations = np.eye(len(names)) @ moments.to_basis / moments.half_range
    intervals = CoefficientIntervals(score, combinations)
    missing = [] if intervals.known else [NO_ESTIMATE]
    options: dict[str, Any] = {
        "moments": moments,
        "link": link,
        "effects": marginal_effects(moments, *points, link),
        "unmeasured": unmeasured,
    }
    return kind(
        title=title,
        terms=names,
        params=Named(intervals.estimates, names),
        sampling_variance=intervals.variances[0],
        privacy_variance=intervals.variances[1],
        intervals=intervals,
        rows=rows,
        budget=str(release.budget),
        notes=[*missing, *notes, NOT_CERTIFIED, cell_rules(release.schema, analysis)],
        null=np.zeros(len(names)),
        **options,
    )


def density_result(
    kind: type[R],
    title: str,
    release: ReleaseView,
    analysis: Asking,
    moments: DesignMoments,
    link: Link,
    *,
    robust: bool,
) -> R:
    """The result from the fitted density, calibrated to the answers."""
    model = DensityModel(moments)
    score, values = model.score(release, link, robust=robust)
    unmeasured = np.full(len(moments.design.names), np.nan)
    notes = subgroup_notes(moments.given, score.answers.rows)
    if score.known:
        unmeasured = score.unmeasured(moments.to_basis / moments.half_range)
        notes.append(
            f"of the standard errors without privacy, up to {unmeasured.max():.0%} is not "
            "determined by what was measured; the fitted density supplies it, and the intervals "
            "allow for its error by a rule, not a theorem"
        )
    return result_of(
        kind,
        title,
        release,
        analysis,
        (score, moments, link),
        (model.columns, values),
        unmeasured,
        score.answers.rows,
        notes,
    )
