"""Intervals and tests of linear combinations of the coefficients of a generalised linear model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import special

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.intervals import Intervals
from dpstats.roots import find_roots

if TYPE_CHECKING:
    from dpstats.analyses.regression.link import Link
    from dpstats.checks import Alternative, Target
    from dpstats.inference.intervals import Ends


class Coefficients(Protocol):
    """Estimated coefficients with the law of their error."""

    @property
    def params(self) -> Floats | None:
        """(p,); None where the noise leaves no estimate."""

    def variances(self, combination: Floats) -> tuple[float, float]:
        """Sampling and privacy variance of one combination (p,)."""

    def covariance(self, combinations: Floats) -> Floats:
        """(k, k) of the errors of combinations (k, p), with these variances."""

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """Its interval; without sampling error, for the private table's own coefficients."""

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that it has this value in the population."""

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F statistic and p-value of combinations (k, p) that equal values (k,) together."""


@dataclass(frozen=True, eq=False)
class NormalIntervals(Intervals):
    """Intervals of k numbers whose errors are about normal, of known variances.

    Their means are only known to be between bounds: each interval is the shortest that covers with
    probability 1 - alpha at any of these (logistic-regression.md, eq. 4).

    Attributes
    ----------
    estimates, sampling, privacy : (k,) float64
    low, high : (k,) float64
        Bounds on the mean errors of the estimates, which need not be zero.
    """

    estimates: Floats
    sampling: Floats
    privacy: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.estimates)

    def certified(self, alpha: float, target: Target) -> Ends:
        """The whole line."""
        return _whole_line(len(self))

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        variance = self.privacy + (self.sampling if target == "population" else 0.0)
        reach = self._quantiles(alpha, np.sqrt(variance)) * np.sqrt(variance)
        middle = np.where(np.isinf(reach), 0.0, self.estimates)  # nan without an estimate
        return middle - self.high - reach, middle - self.low + reach

    def _quantiles(self, alpha: float, sd: Floats) -> Floats:
        """(k,) standard deviations beyond the bounds."""
        width = self._width(sd)
        return find_roots(
            lambda z, which: special.ndtr(-z) + special.ndtr(-z - width[which]) - alpha,
            np.full(len(self), max(-special.ndtri(alpha), 0.0)),
            np.full(len(self), -special.ndtri(alpha / 2)),
        )

    def _width(self, sd: Floats) -> Floats:
        """(k,) distance of the bounds in standard deviations."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num((self.high - self.low) / sd, posinf=np.inf)

    def subset(self, chosen: slice) -> NormalIntervals:
        """The same for some of the numbers."""
        return NormalIntervals(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each number equals `value`."""
        sd = np.sqrt(self.sampling + self.privacy)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = self.estimates - value
            apart -= np.clip(apart, self.low, self.high)
            z, both = apart / sd, np.abs(apart) / sd
            far = special.ndtr(-both) + special.ndtr(-both - self._width(sd))
        sides = {"larger": special.ndtr(-z), "smaller": special.ndtr(z)}
        found = sides.get(alternative, np.where(apart == 0, 1.0, far))
        return np.where(np.isnan(self.estimates), 1.0, found)


@dataclass(frozen=True, eq=False)
class PredictedMeanIntervals(Intervals):
    """Intervals of predicted means: those of the linear predictor, transformed.

    Attributes
    ----------
    predictors : CoefficientIntervals
    link : Link
    """

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
        """Those of some of the predictions."""
        return replace(self, predictors=self.predictors.subset(chosen))

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each mean equals `value`."""
        return self.predictors.pvalues(self.link.predictor(np.asarray(value)), alternative)


@dataclass(frozen=True, eq=False)
class CoefficientIntervals(Intervals, Cached):
    """Intervals of k combinations (k, p) of the coefficients.

    No certified interval is known from these measurements but the whole line; `dps.LossGrid` has
    certified sets.

    Attributes
    ----------
    model : Coefficients
    combinations : (k, p) float64
    """

    model: Coefficients
    combinations: Floats

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return self.model.params is not None

    @cached_property
    def estimates(self) -> Floats:
        """(k,), nan without an estimate."""
        if self.model.params is None:
            return np.full(len(self.combinations), np.nan)
        found = self.combinations @ self.model.params
        return np.where(np.isinf(self.variances[0]), np.nan, found)

    @cached_property
    def variances(self) -> Floats:
        """(2, k) sampling and privacy variances, infinite without an estimate."""
        return np.array([self.model.variances(h) for h in self.combinations]).reshape(-1, 2).T

    @property
    def sampling_variance(self) -> Floats:
        """(k,)."""
        return np.asarray(self.variances[0])

    @property
    def privacy_variance(self) -> Floats:
        """(k,)."""
        return np.asarray(self.variances[1])

    def __len__(self) -> int:
        return len(self.combinations)

    def certified(self, alpha: float, target: Target) -> Ends:
        """The whole line."""
        return _whole_line(len(self))

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        sampled = target == "population"
        ends = [self.model.interval(h, alpha, sampled=sampled) for h in self.combinations]
        low, high = np.array(ends).reshape(-1, 2).T
        return low, high

    def subset(self, chosen: slice) -> CoefficientIntervals:
        """The same for some of the combinations."""
        return replace(self, combinations=self.combinations[chosen])

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each combination equals `value`."""
        values = np.broadcast_to(value, len(self.combinations)).tolist()
        pairs = zip(self.combinations, values, strict=True)
        return np.array([self.model.pvalue(h, v, alternative) for h, v in pairs])


def _whole_line(k: int) -> Ends:
    return np.full(k, -np.inf), np.full(k, np.inf)
