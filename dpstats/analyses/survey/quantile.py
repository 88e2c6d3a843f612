"""Weighted quantiles: limits of the distribution function at the edges, inverted (Woodruff).

Equations are those of docs/explanation/inference/survey.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.analyses.counts.distribution import DistributionIntervals
from dpstats.analyses.counts.quantile_result import QuantileIntervals, QuantileResult
from dpstats.analyses.survey.estimand import Estimand, shares_below
from dpstats.analyses.survey.weighted import (
    ByDesign,
    DesignIntervals,
    Estimates,
    Totals,
    design_notes,
)
from dpstats.arrays import Codes, Floats
from dpstats.measured.view import ReleaseView

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.inference.intervals import Ends

_LEAST_VARIANCE = 0.1  # of the largest F (1 - F) of coarse edges, to have a design effect


@dataclass(frozen=True)
class NearestEffects(Estimates):
    """Shares below edges, with the design effects of coarse ones (eq. woodruff).

    Attributes
    ----------
    coarse : Estimates
        Shares below some of the edges, of which contrasts were measured.
    nearest : (q,) int64
        Number of the coarse edge that is nearest to each, of those not near the ends of F.
    """

    coarse: Estimates
    nearest: Codes

    @property
    def contrasts(self) -> int:
        """Number of contrasts of the coarse shares."""
        return self.coarse.contrasts

    @cached_property
    def _ratios(self) -> Floats:
        """(q,) variances of independent rows over those at the nearest coarse edges."""
        return self.independent / np.maximum(self.coarse.independent[self.nearest], 1e-300)

    @cached_property
    def sampling_covariance(self) -> Floats:
        """Covariance (q, q): that of independent rows, times the design effects."""
        sd = np.sqrt(np.diag(self.coarse.sampling_covariance)[self.nearest] * self._ratios)
        return np.asarray(self.independent_correlations * np.outer(sd, sd))

    @property
    def most_contrasts(self) -> float:
        """Effective number of contrasts."""
        return self.coarse.most_contrasts

    @cached_property
    def number_of_contrasts(self) -> Floats:
        """Effective numbers (q,) of contrasts."""
        return self.coarse.number_of_contrasts[self.nearest]

    @property
    def _squares(self) -> tuple[Floats, Floats]:
        products, noise = (np.diag(matrix) for matrix in self.coarse.contrast_moments)
        return products[self.nearest] * self._ratios, noise[self.nearest] * self._ratios


def shares_of(below: Estimand, release: ReleaseView) -> Estimates:
    """Shares below edges, by contrasts of their bins or of sets of these."""
    totals = Totals.of(release, below.block, needed=below.contrasted is None)
    if below.contrasted is None or len(totals.factors):
        return Estimates(below, totals)
    sets = Totals.of(release, below.contrasted)
    if not len(sets.factors):
        return Estimates(below, totals)
    of_sets = shares_below(below.contrasted, below.contrasted.names[:-1])
    coarse = Estimates(of_sets, sets.uncalibrated)  # known shares have no design effect
    derivation = below.block.derive(below.contrasted)
    assert derivation is not None
    ends = np.flatnonzero(np.diff(derivation.member))  # last bins of sets
    distance = np.abs(np.subtract.outer(np.arange(len(below.terms)), ends)).astype(np.float64)
    distance[:, coarse.independent < _LEAST_VARIANCE * coarse.independent.max()] = np.inf
    return NearestEffects(below, totals, coarse, distance.argmin(axis=1))


@dataclass(frozen=True)
class WeightedDistribution(DistributionIntervals):
    """The weighted distribution function, whose limits are Student's."""

    shares: DesignIntervals

    @property
    def _part(self) -> Estimates:
        return self.shares.parts[0]

    @property
    def estimate(self) -> Floats:
        """(d,) noisy F at the edges."""
        return self.shares.estimate

    def variances(self, weights: Floats, probability: float) -> tuple[float, float]:
        """Sampling and privacy variance of a combination (d + 2,) of F, whose value is given."""
        inner, part = weights[1:-1], self._part
        sampling = float(inner @ part.sampling_covariance @ inner)
        return max(sampling, 0.0), float(inner @ part.noise_covariance @ inner)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (d,); of the table's F, each from the noise on the rows below and above."""
        if target == "population":
            return super().certified(alpha, target)
        totals = self._part.totals.uncalibrated
        low, high = np.empty((2, len(self)))
        for j in range(len(low)):
            ends = []
            for rows in (np.arange(len(totals.values)) <= j, np.arange(len(totals.values)) > j):
                law = totals.noise_law(rows.astype(np.float64))
                width = 0.0 if law is None else law.quantile(alpha / 2)
                about = float(totals.values[rows].sum())
                ends.append((max(about - width, 0.0), max(about + width, 0.0)))
            (least, most), (fewest, largest) = ends
            low[j] = least / max(least + largest, 1e-300)
            high[j] = most / (most + fewest) if most + fewest > 0 else 1.0
        return low, high


@dataclass(frozen=True, repr=False, eq=False)
class WeightedQuantileResult(ByDesign, QuantileResult):
    """Weighted quantiles, and the distribution function that they come from.

    Intervals are those of Woodruff [1]_: limits of the distribution function at the edges, by
    Student's t, inverted.

    References
    ----------
    .. [1] Woodruff, R. S. (1952). Confidence intervals for medians and other position measures.
       J. Amer. Statist. Assoc. 47, 635-646.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> design = dps.Design("weight", mean=2, cap=3, unit="school", units=list(range(40)))
    >>> age = dps.Number("age", 0, 100, edges=range(20, 100, 20), missing=50)
    >>> median = dps.Quantile("age")
    >>> schema = dps.Schema([age], design=design)
    >>> plan = dps.plan(schema, {"median": median}, budget=dps.PureDP(1), n=4_000)
    >>> rows = pd.DataFrame({"age": [x % 100 for x in range(4_000)], "weight": [3, 1] * 2_000})
    >>> rows["school"] = rows.index // 100
    >>> result = dps.release(plan, rows).infer(median)
    >>> print(result.conf_int())
    [40. 60.]
    """


def weighted_quantiles(analysis: Any, release: ReleaseView) -> WeightedQuantileResult:
    """Weighted quantiles of an analysis."""
    (below,) = analysis.estimands(release.schema)
    part = shares_of(below, release)
    answers, design = part.totals.answers, part.totals.design
    distribution = WeightedDistribution(answers, DesignIntervals((part,)))
    intervals = QuantileIntervals(
        distribution, analysis.number(release.schema), analysis.probabilities
    )
    notes = design_notes(design, [part])
    if isinstance(part, NearestEffects):
        notes[0] += ", of shares below the edges between sets of bins: others have their effects"
    fields = analysis.fields(intervals, notes, release)
    return WeightedQuantileResult(
        **fields, rows=answers.rows, budget=str(release.budget), design=design
    )
