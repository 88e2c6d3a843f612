"""Intervals for the entries of a covariance matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.error_rates import of_simulation
from dpstats.inference.intervals import Intervals, with_far_tails

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.inference.intervals import Ends


@dataclass(frozen=True)
class CovarianceIntervals(Intervals, Cached):
    """Intervals for the covariances of pairs of columns, in original units.

    Noise-aware: quantiles of the simulated error, the exact law of the noise plus sampling; where
    sampling has two laws, the wider ones, see `RowSampling`.
    Certified: interval arithmetic; see `CertifiedRadii.box`.

    Attributes
    ----------
    covariance : NoisyCovariance
    units : (p,) float64
        Original units in one of each column.
    pairs : (2, d) int64
        Which pairs of columns.
    """

    covariance: NoisyCovariance
    units: Floats
    pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @cached_property
    def scale(self) -> Floats:
        """(d,) original units of each covariance over those in unit scale."""
        return np.asarray(self.units[self.pairs[0]] * self.units[self.pairs[1]])

    @cached_property
    def values(self) -> Floats:
        """(d,) noisy covariances."""
        return np.asarray(self.covariance.matrix[self.pairs[0], self.pairs[1]] * self.scale)

    @property
    def range_widths(self) -> Floats:
        """(d,) of all covariances of bounded rows."""
        return self.clipped(np.full_like(self.values, np.inf)) - self.clipped(
            np.full_like(self.values, -np.inf)
        )

    def errors(self, kind: str) -> list[Floats]:
        """Draws (size, d) of the error, one array for every law of the sampling."""
        first, second = self.pairs

        def picked() -> list[Floats]:
            drawn = self.covariance.deviations(kind)
            return [errors[:, first, second] * self.scale for errors in drawn]

        return self._once(kind, picked)

    def variance(self, kind: str) -> Floats:
        """(d,) variances of the error, the largest of all laws."""
        return np.asarray(np.max([errors.var(axis=0) for errors in self.errors(kind)], axis=0))

    @cached_property
    def centre(self) -> Floats:
        """The values (d,), read as possible ones: limits that were cut off would be one value."""
        return self.clipped(self.values)

    def clipped(self, values: Floats) -> Floats:
        """Clip to the range for bounded rows; a variance is not negative."""
        limits = self.covariance.limits[self.pairs[0], self.pairs[1]]
        most = self.covariance.correction * self.scale * limits
        return np.clip(values, np.where(self.pairs[0] == self.pairs[1], 0, -most), most)

    def __len__(self) -> int:
        return self.pairs.shape[1]

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        if self.covariance.unknown:
            return self.clipped(np.full_like(self.values, -np.inf)), self.clipped(
                np.full_like(self.values, np.inf)
            )
        errors = self.errors("both" if target == "population" else "privacy")
        ends = np.quantile(errors, [alpha / 2, 1 - alpha / 2], axis=1)
        low, high = ends[1].max(axis=0), ends[0].min(axis=0)
        return with_far_tails(
            (self.clipped(self.centre - low), self.clipped(self.centre - high)),
            alpha,
            len(errors[0]),
            lambda: self.certified(alpha, target),
        )

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all covariances together, by the largest standardised error."""
        if self.covariance.unknown:
            return self.noise_aware(alpha, target)
        reaches = []
        for errors in self.errors("both" if target == "population" else "privacy"):
            sd = errors.std(axis=0)
            worst = np.divide(np.abs(errors), sd, out=np.zeros_like(errors), where=sd > 0)
            reaches.append(float(np.quantile(worst.max(axis=1), 1 - alpha)) * sd)
        reach = np.max(reaches, axis=0)
        return with_far_tails(
            (self.clipped(self.centre - reach), self.clipped(self.centre + reach)),
            alpha,
            len(errors),
            lambda: self.joint_certified(alpha, target),
        )

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays."""
        return self._box(alpha, target, joint=False)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all covariances together."""
        return self._box(alpha, target, joint=True)

    def _box(self, alpha: float, target: Target, *, joint: bool) -> Ends:
        low, high = CertifiedRadii(self.covariance).box(alpha, target, joint=joint)
        first, second = self.pairs
        return low[first, second] * self.scale, high[first, second] * self.scale

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) of the hypothesis that a covariance equals `value`, by simulation."""
        difference = self.centre - value
        above, below = (
            np.max(
                [of_simulation(np.sum(sign * e >= sign * difference, 0), len(e)) for e in laws], 0
            )
            for laws in [self.errors("both")]
            for sign in (1, -1)
        )
        two_sided = np.minimum(1, 2 * np.minimum(above, below))
        found = {"larger": above, "smaller": below, "two-sided": two_sided}
        return np.asarray(found[alternative], dtype=np.float64)

    def subset(self, chosen: slice) -> CovarianceIntervals:
        """Intervals of some of the pairs."""
        return replace(self, pairs=self.pairs[:, chosen])
