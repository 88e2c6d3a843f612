"""Coefficients of generalised linear models: intervals, tests and marginal effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpstats.analyses.regression.score import Average, Link, Score
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.intervals import Intervals
from dpstats.roots import find_roots
from dpstats.schema import Number

if TYPE_CHECKING:
    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.checks import Alternative, Target
    from dpstats.inference.intervals import Ends

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
        """Whether there is an estimate."""
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

    def certified(self, alpha: float, target: Target) -> Ends:
        """The whole line."""
        return np.full(len(self), -np.inf), np.full(len(self), np.inf)

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

    def wald(self, values: Floats) -> tuple[float, float]:
        """F statistic and p-value that all combinations, determined ones, equal values (k,)."""
        return self.model.wald(self.reduced, values) if self.known else (0.0, 1.0)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """See `Score.average`; not known where the function takes more than is determined."""
        model, basis, unknown = self.model, self.basis, Average(np.nan, np.inf, np.inf)
        if model.params is None:
            return unknown
        if basis is None:
            return model.average(values)
        b = basis @ model.params
        used = np.any(model.x != 0, axis=1)
        for direction in linalg.null_space(basis.T).T:
            moved = np.abs(values(b + direction) - values(b))
            if np.any(moved[np.resize(used, len(moved))] > _ROUNDING):
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

    def certified(self, alpha: float, target: Target) -> Ends:
        """The whole line."""
        return np.full(len(self), -np.inf), np.full(len(self), np.inf)

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


@dataclass(frozen=True, eq=False)
class PredictedMeanIntervals(Intervals):
    """Intervals of predicted means: those of the linear predictor, transformed."""

    predictors: CoefficientIntervals
    link: Link

    def __len__(self) -> int:
        return len(self.predictors)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        low, high = self.predictors.noise_aware(alpha, target)
        return self.link.mean(low), self.link.mean(high)

    def certified(self, alpha: float, target: Target) -> Ends:
        """All means."""
        low, high = self.predictors.certified(alpha, target)
        return self.link.mean(low), self.link.mean(high)

    def subset(self, chosen: slice) -> PredictedMeanIntervals:
        """Intervals of some of the predictions."""
        return replace(self, predictors=self.predictors.subset(chosen))

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each mean equals `value`."""
        return self.predictors.pvalues(self.link.predictor(np.asarray(value)), alternative)


Effect = Callable[[Floats], Floats]  # effects (m,) at m points, for coefficients (p,)


def marginal_effects(
    moments: DesignMoments, values: Mapping[str, Floats], link: Link
) -> dict[str, Effect]:
    """Changes of the mean with each column, at points as `DesignMoments.regressors_at` takes."""
    factors = [f for regressor in moments.design.regressors for f in regressor.factors]
    numbers = {name for name, level in factors if level is None}

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
        first, *others = (at(column.name, level) for level in levels)
        labels = column.bin_labels
        for label, other in zip(labels[1:], others, strict=True):
            effects[f"{column.name}: {labels[0]} to {label}"] = difference(first, other)
    return effects
