"""Weighted survival curves, and what follows from them, by linearisation.

Equations are those of docs/explanation/inference/survey.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.group_means import PairwiseResult, WeightedPairs
from dpstats.analyses.survey.estimand import Estimand, Sums, squares_of_cells
from dpstats.analyses.survey.rao_scott import Covariances, first_order
from dpstats.analyses.survey.weighted import (
    ByDesign,
    DesignIntervals,
    Estimates,
    Totals,
    design_notes,
)
from dpstats.analyses.survival.curves import CurveLimits, GroupCurve
from dpstats.analyses.survival.follow_up import RiskSets
from dpstats.analyses.survival.log_rank import scores_of
from dpstats.analyses.survival.survival_result import R, SurvivalResult
from dpstats.arrays import Floats
from dpstats.checks import Alternative, Target
from dpstats.error_rates import bonferroni
from dpstats.errors import RequestError
from dpstats.measured.view import ReleaseView
from dpstats.results.estimates import estimated
from dpstats.results.rendering import shown_df

if TYPE_CHECKING:
    from dpstats.inference.intervals import Ends


@dataclass(frozen=True)
class CurveIntervals(DesignIntervals, CurveLimits):
    """Limits of survival curves, as of shares.

    Beyond the end of a curve there is no estimate: the lower limit is 0, and the upper one that of
    its last point.
    """

    curves: tuple[GroupCurve, ...] = field(kw_only=True, compare=False)

    @cached_property
    def reached(self) -> NDArray[np.bool_]:
        """(q,) whether each point of all curves is before its end."""
        edges = len(self.parts[0].params) // len(self.curves)
        return np.concatenate([np.arange(edges) < curve.bins for curve in self.curves])

    def _masked(self, values: Floats, beyond: float) -> Floats:
        return self._joined([np.where(self.reached, values, beyond)])

    @cached_property
    def estimate(self) -> Floats:
        """Estimates (q,), nan beyond the end."""
        return self._masked(self.parts[0].params, np.nan)

    @cached_property
    def sampling_variance(self) -> Floats:
        """Variances (q,) of the sampling error, infinite beyond the end."""
        return self._masked(np.diag(self.parts[0].sampling_covariance), np.inf)

    @cached_property
    def privacy_variance(self) -> Floats:
        """Variances (q,) of the noise, infinite beyond the end."""
        return self._masked(np.diag(self.parts[0].noise_covariance), np.inf)

    def _extended(self, low: Floats, high: Floats) -> Ends:
        """Limits of some points of all curves, from those (q,) of all."""
        ends = []
        for curve, own in zip(self.curves, np.split(high, len(self.curves)), strict=True):
            last = own[curve.bins - 1] if curve.bins else 1.0
            ends.append(np.append(own[: curve.bins], np.full(len(own) - curve.bins, last)))
        return self._masked(low, 0.0), self._joined([np.concatenate(ends)])

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (q,) of the population; of the table, from the distribution of the noise."""
        every = DesignIntervals(self.parts)
        return self._extended(*every.noise_aware(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (q,) of the table's own weighted curves, those of a group jointly."""
        if target == "population":
            return self.ranges
        low, high = np.zeros((2, len(self.curves), len(self.reached) // len(self.curves)))
        for g, curve in enumerate(self.curves):
            assert curve.box is not None
            low[g, : curve.bins], high[g, : curve.bins] = curve.box(alpha)
        return self._extended(low.ravel(), high.ravel())

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Certified limits of all curves together."""
        return self.certified(bonferroni(alpha, len(self.curves)), target)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (q,) that each parameter equals `value`; 1 beyond the end of a curve."""
        return np.where(np.isnan(self.estimate), 1.0, super().pvalues(value, alternative))

    def combined(
        self, weights: Floats, constant: float = 0.0, ends: tuple[float, float] = (-1.0, 1.0)
    ) -> CombinedCurves:
        """A constant plus combinations (p, q) of the points of all curves."""
        whole, (part,) = replace(self, chosen=None), self.parts
        sums, terms = Sums(weights, constant), [f"combination {i + 1}" for i in range(len(weights))]
        made = part.estimand.combined(terms, sums.value, sums.jacobian, ends)
        return CombinedCurves((Estimates(made, part.totals),), whole=whole, sums=sums)

    def differences(self, first: Sequence[int], second: Sequence[int]) -> CombinedCurves:
        """First parameters less second ones."""
        every = np.arange(len(self.reached))
        own = self._joined([np.eye(len(every))])
        return self.combined(own[list(first)] - own[list(second)])


@dataclass(frozen=True)
class CombinedCurves(DesignIntervals, CurveLimits):
    """Limits of a constant plus combinations (p, q) of the points of curves."""

    whole: CurveIntervals = field(kw_only=True, compare=False)
    sums: Sums = field(kw_only=True, compare=False)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (p,) of the table's own, from joint ones of all curves."""
        if target == "population":
            return self.ranges
        least, most = self.sums.limits(*self.whole.joint_certified(alpha, target))
        return self._joined([least]), self._joined([most])

    def differences(self, first: Sequence[int], second: Sequence[int]) -> CombinedCurves:
        """First parameters less second ones."""
        own, width = (
            self._joined([self.sums.weights]),
            float(np.max(self.ranges[1] - self.ranges[0])),
        )
        return self.whole.combined(own[list(first)] - own[list(second)], ends=(-width, width))


@dataclass(frozen=True, repr=False, eq=False)
class WeightedSurvivalResult(ByDesign, SurvivalResult):
    """Weighted survival curves, with what follows from them.

    Numbers at risk and of events are sums of the weights.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="clinic", units=list(range(40)))
    >>> days = dps.Number("days", 0, 500, edges=range(100, 500, 100), missing=0)
    >>> schema = dps.Schema([days, dps.Boolean("died")], design=design)
    >>> curve = dps.Survival("days", "died")
    >>> plan = dps.plan(schema, {"curve": curve}, budget=dps.PureDP(2), n=4_000)
    >>> rows = pd.DataFrame({"days": [7 * x % 500 for x in range(4_000)], "weight": 2})
    >>> rows["died"], rows["clinic"] = rows.index % 3 > 0, rows.index // 100
    >>> result = dps.release(plan, rows).infer(curve)
    >>> print(f"{result.params['S(100)']:.1f}")
    0.9
    >>> print(result.restricted_mean(400).terms)
    ['mean to 400']
    """

    _name_of_statistic: ClassVar[str] = "F"
    counted: ClassVar[str] = "weighted rows"

    @property
    def _unit(self) -> float:  # type: ignore[override]
        return self.design.unit_weight

    @property
    def _all_limits(self) -> CurveLimits:
        return self._own

    @property
    def _own(self) -> CurveIntervals:
        assert isinstance(self.intervals, CurveIntervals)
        return self.intervals

    def _means(
        self, groups: list[int], weights: Floats, constant: float, ends: tuple[float, float]
    ) -> CurveLimits:
        edges = len(self.cuts) - 2
        every = np.zeros((len(groups), edges * len(self.curves)))
        for i, g in enumerate(groups):
            every[i, g * edges : g * edges + len(weights)] = weights
        return self._own.combined(every, constant, ends)

    def cumulative_hazard(self) -> NoReturn:
        """Refused: ask for the curves.

        Raises
        ------
        RequestError
        """
        raise RequestError(
            "cumulative hazards are not available with a survey design; -np.log(params) of the "
            "curves is near to them"
        )

    def _test_of(
        self, groups: list[list[int]], purpose: int
    ) -> tuple[float, float, Floats, Floats, Any]:
        totals, risk = self._own.parts[0].totals, self.curves[0].risk
        scores, slopes, observed, expected = scores_of(risk, groups)
        block, free = self._own.parts[0].estimand.block, len(groups[0]) - 1
        sums, names = Sums(slopes[:free]), [f"score {i + 1}" for i in range(free)]
        linear = Estimand(block, names, sums.value, sums.jacobian, squares_of_cells)
        estimates = Estimates(linear, totals)
        weighted = slopes[:free] * np.maximum(totals.values, 0)
        independent = self.design.coded_mean * weighted @ slopes[:free].T
        parts = Covariances.of(estimates, np.eye(free), independent)
        test = first_order(scores[:free], independent + estimates.noise_covariance, parts)
        events = observed * self._unit, expected * self._unit
        return test.statistic, test.pvalue, *events, test.df

    def _law_of_test(self, df: Any) -> str:
        return f"of Rao and Scott, by an F distribution with {shown_df(df)} df"

    def _made(self, kind: type[R], **fields: Any) -> R:
        own: type[Any] = WeightedPairs if kind is PairwiseResult else ByDesign
        made: R = own(**fields, design=self.design)
        return made


def weighted_survival(analysis: Any, release: ReleaseView) -> WeightedSurvivalResult:
    """Weighted curves of an analysis."""
    schema, (estimand,) = release.schema, analysis.estimands(release.schema)
    totals, design = Totals.of(release, estimand.block).uncalibrated, release.schema.design
    assert design is not None
    answers = totals.answers
    if answers.blocks != (estimand.block,):  # the cells follow from a table
        answers = release.answers(analysis.answered(schema), disjoint=True)
    follow_up = analysis.follow_up
    shape = len(follow_up.groups(schema)), follow_up.clock(schema).value_bins, 1
    risk = RiskSets(
        answers,
        shape,
        follow_up.not_yet(schema),
        follow_up.halves_censored(schema),
        covers_all_rows=False,
    )
    curves = analysis.curves(schema, risk)
    fields = analysis.fields(schema, curves)
    part = Estimates(estimand, totals)
    intervals = CurveIntervals((part,), curves=curves)
    shown = np.flatnonzero(intervals.reached)
    terms = [estimand.terms[i] for i in shown]
    notes = design_notes(design, [part.along(terms, np.eye(len(part.params))[shown])])
    return WeightedSurvivalResult(
        **{
            **fields,
            **estimated(fields["terms"], intervals),
            "notes": [*fields["notes"], *notes],
        },
        rows=answers.rows,
        budget=str(release.budget),
        design=design,
    )
