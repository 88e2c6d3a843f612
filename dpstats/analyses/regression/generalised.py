"""What logistic and Poisson regression share: from a formula to noise-aware coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpstats.analyses.notes import cell_rules, subgroup_notes
from dpstats.analyses.regression.coefficient_intervals import CoefficientIntervals
from dpstats.analyses.regression.generalised_result import LEAST_SHARE, GeneralisedResult
from dpstats.checks import first_few
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.results.named import Named
from dpstats.schema import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.analyses.regression.glm_empty_levels import Scored
    from dpstats.analyses.regression.glm_models import DensityModel
    from dpstats.analyses.regression.link import Link
    from dpstats.arrays import Floats
    from dpstats.families.pilot_score import PilotScore
    from dpstats.measured.answers import Asking
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Column, Schema

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
