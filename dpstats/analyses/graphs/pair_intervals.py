"""Intervals, tests and certified verdicts for correlations and partial correlations of pairs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.graphs.pair_laws import PairLaws, Pairs
from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.corrected.correlation import LEAST_VARIANCE
from dpstats.errors import RequestError
from dpstats.inference.intervals import Intervals

if TYPE_CHECKING:
    from typing import Self

    from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
    from dpstats.checks import Target
    from dpstats.inference.intervals import Ends

EdgeVerdict = Literal["present", "absent", "undecided"]
_NEARLY_ONE = 1 - 1e-12


@dataclass(frozen=True)
class PairIntervals(Intervals, Cached):
    """Intervals and tests of a correlation of d pairs of columns, marginal or partial.

    Noise-aware: atanh of the estimate has a first-order error of known law (`PairLaws`), whose
    quantiles are those of a sum of the measured noises and a normal sampling error; a test inverts
    that interval. Where the noise is large, neither atanh r nor r has the law
    of its first order: an interval is the union of both, which differ to second order only.

    Attributes
    ----------
    covariance : NoisyCovariance
    pairs : (2, d) int64
    """

    covariance: NoisyCovariance
    pairs: Pairs
    range_widths: ClassVar[float] = 2.0

    @property
    @abstractmethod
    def known(self) -> NDArray[np.bool_]:
        """(d,) whether there is an estimate."""

    @property
    @abstractmethod
    def laws(self) -> PairLaws:
        """Of the errors, where something is known."""

    @cached_property
    def values(self) -> Floats:
        """(d,) estimates; nan where unknown."""
        values = np.full(self.pairs.shape[1], np.nan)
        if self.known.any():
            i, j = self.pairs[:, self.known]
            values[self.known] = np.clip(self.laws.correlations[i, j], -_NEARLY_ONE, _NEARLY_ONE)
        return values

    @cached_property
    def variances(self) -> tuple[Floats, Floats]:
        """(d,) variances of the estimates, of sampling and of the noise; infinite where unknown."""
        found = np.full((2, len(self.values)), np.inf)
        if self.known.any():
            at = self.values[self.known]
            noise, total = (
                self.laws.error(self.pairs[:, self.known], at, sampling=sampling).variances
                for sampling in (False, True)
            )
            found[:, self.known] = np.array([total - noise, noise]) * (1 - at**2) ** 2
        return found[0], found[1]

    def __len__(self) -> int:
        return len(self.pairs[0])

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays in [-1, 1]."""
        low, high = np.full_like(self.values, -1.0), np.full_like(self.values, 1.0)
        if self.known.any():
            at = self.values[self.known]
            law = self.laws.error(self.pairs[:, self.known], at, sampling=target == "population")
            reach, centre = law.quantile(alpha), np.arctanh(at)
            linear = reach * (1 - at**2)
            low[self.known] = np.maximum(np.minimum(np.tanh(centre - reach), at - linear), -1)
            high[self.known] = np.minimum(np.maximum(np.tanh(centre + reach), at + linear), 1)
        return low, high

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all pairs together: the certified ones are."""
        return self.certified(alpha, target)

    def verdicts(self, alpha: float, target: Target, tolerance: float | None) -> list[EdgeVerdict]:
        """Certified verdicts on all pairs, wrong for any of them with probability at most alpha.

        Absent: the limits are within the declared tolerance; that a correlation is exactly zero
        cannot be certified. Present: they exclude 0, and are not within the tolerance.
        """
        low, high = self.certified(alpha, target)
        found = np.full(len(low), "undecided", dtype=object)
        found[(low > 0) | (high < 0)] = "present"
        if tolerance is not None:
            found[np.maximum(-low, high) < tolerance] = "absent"
        return list(found)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each correlation equals `value`; 1 where unknown."""
        if not -1 < value < 1:
            raise RequestError(f"value={value:g} must be a correlation between -1 and 1")
        found = np.ones_like(self.values)
        if not self.known.any():
            return found
        at = self.values[self.known]
        distance = np.arctanh(at) - np.arctanh(value)
        pvalues = self.laws.error(self.pairs[:, self.known], at).tail(distance)
        if alternative != "two-sided":
            beyond = (distance > 0) == (alternative == "larger")
            pvalues = np.where(beyond, pvalues / 2, 1 - pvalues / 2)
        found[self.known] = pvalues
        return found

    def statistics(self) -> Floats:
        """(d,) atanh of the estimates over its standard deviations; nan where unknown."""
        found = np.full_like(self.values, np.nan)
        if self.known.any():
            at = self.values[self.known]
            law = self.laws.error(self.pairs[:, self.known], at)
            found[self.known] = np.arctanh(at) / np.sqrt(law.variances)
        return found

    def subset(self, chosen: slice) -> Self:
        """The same for some of the pairs."""
        return replace(self, pairs=self.pairs[:, chosen])


@dataclass(frozen=True)
class PartialIntervals(PairIntervals):
    """Of partial correlations, given all other columns.

    Certified: the noise (and, for the population, the sampling error) of the whole covariance
    matrix is within a spectral radius, so all entries of the precision matrix are within bounds
    jointly, and partial correlations follow by interval arithmetic.
    """

    @cached_property
    def precision(self) -> NoisyPrecision:
        """The inverse of the covariance matrix."""
        return NoisyPrecision(self.covariance)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """All, or none if the matrix is nearly singular."""
        return np.full(self.pairs.shape[1], not self.precision.singular)

    @cached_property
    def laws(self) -> PairLaws:
        """Of partial correlations."""
        return PairLaws.partial(self.precision)

    def certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly; -1 and 1 where the noise is too large for any."""
        low, high = self.precision.bounds(alpha, target)
        return _ratios(-high, -low, (low, high), self.pairs)

    def subset(self, chosen: slice) -> PartialIntervals:
        """The same for some of the pairs; the matrix is inverted once."""
        some = super().subset(chosen)
        some.__dict__["precision"] = self.precision
        return some


@dataclass(frozen=True)
class MarginalIntervals(PairIntervals):
    """Of Pearson's correlations.

    Certified: limits of all covariances jointly (`CertifiedRadii.box`), and interval arithmetic.
    """

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Those of columns whose variance is clearly above its noise."""
        names = [name for name, _ in self.covariance.moments.features]
        hidden = np.array([name in self.covariance.hidden_columns for name in names])
        return np.asarray(~(hidden[self.pairs].any(axis=0) | self.covariance.unknown))

    @cached_property
    def laws(self) -> PairLaws:
        """Of correlations."""
        return PairLaws.marginal(self.covariance)

    def certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly."""
        low, high = CertifiedRadii(self.covariance).box(alpha, target, joint=True)
        constant = np.diag(high) <= LEAST_VARIANCE
        low[constant], high[constant] = -np.inf, np.inf
        low[:, constant], high[:, constant] = -np.inf, np.inf
        low[np.diag_indices(len(low))] = np.maximum(np.diag(low), 0)
        return _ratios(low, high, (low, high), self.pairs)


def _ratios(
    low: Floats, high: Floats, of_own: tuple[Floats, Floats], pairs: Pairs
) -> tuple[Floats, Floats]:
    """Limits (d,) of x_ij / sqrt(y_i y_j) in [-1, 1], given limits of x and of y, a diagonal.

    -1 and 1 where it may be 0 over 0.
    """
    i, j = pairs
    least, most = (np.sqrt(np.diag(m)[i] * np.diag(m)[j]) for m in of_own)
    ends = np.array([low[i, j], high[i, j]])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.concatenate([ends / least, ends / most])
    known = np.isfinite(most) & ~np.isnan(ratios).any(axis=0)
    found = np.nan_to_num(ratios, nan=0.0, posinf=1.0, neginf=-1.0)
    lower = np.where(known, np.clip(found.min(axis=0), -1, 1), -1.0)
    upper = np.where(known, np.clip(found.max(axis=0), -1, 1), 1.0)
    return lower, upper
