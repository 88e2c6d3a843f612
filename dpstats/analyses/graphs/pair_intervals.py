"""Intervals, tests and certified verdicts for correlations and partial correlations of pairs.

Equations are those of docs/explanation/inference/graphical-models.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.row_sampling import with_kurtosis
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.corrected.covariance import LEAST_VARIANCE
from dpstats.errors import RequestError
from dpstats.inference.intervals import Ends, Intervals
from dpstats.inference.mixture_tails import MixtureTails
from dpstats.inference.simulation import calibration_generator

if TYPE_CHECKING:
    from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
    from dpstats.privacy.laws import LatticeLaw

EdgeVerdict = Literal["present", "absent", "undecided"]
_NEARLY_ONE = 1 - 1e-12
_THINNING = 4  # the purpose of the draws; 0 to 3 are those of `NoisyCovariance` and its uses
_GRADIENTS = 2**22  # floats in the gradients that are worked on at a time

Pairs = NDArray[np.int64]
"""(2, d): which pairs of columns."""


@dataclass(frozen=True)
class PairLaws(Cached):
    """First-order laws of the correlations of pairs of linear combinations of columns.

    With rows a_i of unit variance, a_i' S a_i = 1, let r = a_i' S a_j. If a_i is proportional to
    column i itself (marginal correlation) or to column i of the inverse of S (partial correlation,
    sign = -1), then to first order

        d(sign r) = tr(M dS),  M = (a_i a_j' + a_j a_i')/2 - r/2 (a_i a_i' + a_j a_j'),

    up to the sign in the first case (eq. first-order-of-pair). S follows from moments, so the error
    of r from the noise is a weighted sum of the measured noises with known laws; that from sampling
    is the mean of a quadratic form y'My of centred rows over n, asymptotically normal. atanh r is
    used: its sampling variance is 1/(n - 1 - k) for normal rows, k the number of other columns.
    """

    covariance: NoisyCovariance
    sample: Floats  # (p, p) S, divisor n
    directions: Floats  # (p, p) rows a_i
    df: int  # one over the sampling variance of atanh r for normal rows
    sign: int  # -1: the parameter is -r

    @staticmethod
    def partial(precision: NoisyPrecision) -> PairLaws:
        """Partial correlations."""
        covariance = precision.covariance
        df = max(1, covariance.n - covariance.p - 1)
        return PairLaws(covariance, covariance.sample, precision.regressions, df, -1)

    @staticmethod
    def marginal(covariance: NoisyCovariance) -> PairLaws:
        """Correlations of two columns."""
        sample = covariance.sample
        directions = np.diag(1 / np.sqrt(np.maximum(np.diag(sample), 1e-12)))
        return PairLaws(covariance, sample, directions, max(1, covariance.n - 3), 1)

    @cached_property
    def correlations(self) -> Floats:
        """(p, p) estimates; noise can make one exceed 1 in size."""
        return np.asarray(self.sign * self.directions @ self.sample @ self.directions.T)

    def error(self, pairs: Pairs, at: Floats, *, sampling: bool = True) -> MixtureTails:
        """Laws of the error of atanh of the correlations of some pairs.

        Derivatives are taken at correlations `at` (d,): estimates, or a hypothesis. Without
        `sampling` the noise is the only error.
        """
        weights, laws = self._noise(pairs, at)
        weights = weights / (1 - at**2)[:, np.newaxis]
        variances = weights**2 * np.array([law.variance for law in laws])
        gaussian = np.array([law.gaussian for law in laws], dtype=bool)
        normal = variances[:, gaussian].sum(axis=1)
        step = np.abs(weights).max(axis=1, initial=0.0)
        if sampling:
            i, j = pairs
            normal, step = normal + self.spread[i, j] / self.df, np.zeros_like(step)
        terms = np.array([law.terms for law in laws], dtype=np.float64)
        return MixtureTails(normal, variances[:, ~gaussian], terms[~gaussian], step)

    def _noise(self, pairs: Pairs, at: Floats) -> tuple[Floats, list[LatticeLaw]]:
        """Weights (d, k) of the k independent noises in each correlation, and their laws."""
        from scipy import sparse

        moments = self.covariance.moments
        groups = moments.answers.noise_groups
        laws = [law for _, law in groups]
        if not groups:  # of published rows: no law of the noise is known
            return np.zeros((pairs.shape[1], 0)), laws
        weights = np.array([weight for weight, _ in groups]) / (self.covariance.n * moments.units)
        # Entries of the moment matrix that are one function add up; known ones have no noise.
        entries = np.flatnonzero(moments.place >= 0)
        function = moments.place.ravel()[entries]
        shape = moments.place.size, weights.shape[1]
        members = sparse.csr_array((np.ones(len(entries)), (entries, function)), shape=shape)
        weights_of_pairs = np.empty((pairs.shape[1], len(laws)))
        for some, gradient in self._gradients(pairs, at):
            by_function = np.asarray(gradient.reshape(len(gradient), -1) @ members)
            weights_of_pairs[some] = by_function @ weights.T
        return weights_of_pairs, laws

    def _gradients(self, pairs: Pairs, at: Floats) -> Iterator[tuple[slice, Floats]]:
        """Derivatives (some, q, q) of the correlations in the moment matrix, some pairs at a time.

        S = M2/c - mm'/c^2 with M2 the second moments, m the first ones and c the count over n.
        """
        covariance = self.covariance
        count, mean = covariance.count, covariance.mean
        second = covariance.moments.matrix[1:, 1:] / count
        step = max(1, _GRADIENTS // (covariance.p + 1) ** 2)
        for first in range(0, pairs.shape[1], step):
            some = slice(first, first + step)
            form = self._forms(pairs[:, some], at[some]) / count
            gradient = np.empty((len(form), covariance.p + 1, covariance.p + 1))
            gradient[:, 1:, 1:] = form
            gradient[:, 0, 1:] = gradient[:, 1:, 0] = -form @ mean
            gradient[:, 0, 0] = -np.einsum("fij,ij->f", form, second - 2 * np.outer(mean, mean))
            yield some, gradient

    def _forms(self, pairs: Pairs, at: Floats) -> Floats:
        """(d, p, p) the matrices M (eq. first-order-of-pair)."""
        i, j = (self.directions[side] for side in pairs)
        cross = i[:, :, np.newaxis] * j[:, np.newaxis, :]
        own = i[:, :, np.newaxis] * i[:, np.newaxis, :] + j[:, :, np.newaxis] * j[:, np.newaxis, :]
        form = (cross + cross.swapaxes(1, 2)) / 2 - (self.sign * at / 2)[:, None, None] * own
        return np.asarray(form)

    @cached_property
    def spread(self) -> Floats:
        """(p, p) variances of y'My at the estimates over those of normal rows, at least one.

        The largest under the laws of `RowSampling` that apply. Normal rows have (1 - r^2)^2.
        """
        sampling = self.covariance.sampling
        r = np.clip(self.sign * self.correlations, -1, 1)
        normal = np.maximum((1 - r**2) ** 2, 1 / max(sampling.n, 1) ** 2)
        spread = np.ones_like(r)
        for law in sampling.laws:
            variances = self._of_kurtosis(r) if law == "kurtosis" else self._of_points(r)
            spread = np.maximum(spread, variances / normal)
        return spread

    def _of_kurtosis(self, r: Floats) -> Floats:
        """2 tr(MAMA) + the positive part of (tr MA)^2 - (tr MS)^2."""
        own = []
        for matrix in (with_kurtosis(self.sample, self.covariance.sampling.kurtosis), self.sample):
            both = self.directions @ matrix @ self.directions.T
            first, second = np.diag(both)[:, np.newaxis], np.diag(both)
            # With N = [[-r, 1], [1, -r]] / 2 and G the covariance of the two residuals, NG is
            one, two = (both - r * first) / 2, (second - r * both) / 2
            three, four = (first - r * both) / 2, (both - r * second) / 2
            own.append((one + four, one**2 + 2 * two * three + four**2))
        (trace, square), (plain, _) = own
        return np.asarray(2 * square + np.maximum(trace**2 - plain**2, 0))

    def _of_points(self, r: Floats) -> Floats:
        """The variance of y'My under the fitted density."""
        residuals, weights = self._residuals
        variances = np.zeros_like(r)
        for i in range(len(r)):
            own = residuals[i]
            form = residuals * own - r[i][:, np.newaxis] / 2 * (residuals**2 + own**2)
            variances[i] = form**2 @ weights - (form @ weights) ** 2
        return variances

    @cached_property
    def _residuals(self) -> tuple[Floats, Floats]:
        """(p, m) values of a_i'y at the points of the density, of unit variance; (m,) weights."""
        rng = calibration_generator(self.covariance.moments.answers, _THINNING)
        points, weights = self.covariance.sampling.moved_points(rng)
        residuals = self.directions @ (points - weights @ points).T
        spread = np.sqrt(np.maximum(residuals**2 @ weights, 1e-12))
        return residuals / spread[:, np.newaxis], weights


@dataclass(frozen=True)
class PairIntervals(Intervals, Cached):
    """Intervals and tests of a correlation of d pairs of columns, marginal or partial.

    Noise-aware: atanh of the estimate has a first-order error of known law (`PairLaws`), whose
    quantiles are those of a sum of the measured noises and a normal sampling error. Where the noise
    is large, neither atanh r nor r has the law of its first order: an interval is the union of
    both, which differ to second order only, and a p-value is the larger of both.
    """

    covariance: NoisyCovariance
    pairs: Pairs
    ranges: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    @property
    @abstractmethod
    def known(self) -> NDArray[np.bool_]:
        """(d,) whether there is an estimate."""

    @property
    @abstractmethod
    def laws(self) -> PairLaws:
        """Laws of the errors, where something is known."""

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
        variances = np.full((2, len(self.values)), np.inf)
        if self.known.any():
            at = self.values[self.known]
            noise, total = (
                self.laws.error(self.pairs[:, self.known], at, sampling=sampling).variances
                for sampling in (False, True)
            )
            variances[:, self.known] = np.array([total - noise, noise]) * (1 - at**2) ** 2
        return variances[0], variances[1]

    def __len__(self) -> int:
        return len(self.pairs[0])

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays in [-1, 1] (eq. interval-of-pair)."""
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
        verdicts = np.full(len(low), "undecided", dtype=object)
        verdicts[(low > 0) | (high < 0)] = "present"
        if tolerance is not None:
            verdicts[np.maximum(-low, high) < tolerance] = "absent"
        return list(verdicts)

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that each correlation equals `value`; 1 if unknown (eq. test-of-pair)."""
        if not -1 < value < 1:
            raise RequestError(
                "a correlation of exactly -1 or 1 cannot be tested; test a value between them"
            )
        all_pvalues = np.ones_like(self.values)
        if not self.known.any():
            return all_pvalues
        at = self.values[self.known]
        law = self.laws.error(self.pairs[:, self.known], at)
        found = []
        for distance in (np.arctanh(at) - np.arctanh(value), (at - value) / (1 - at**2)):
            pvalues = law.tail(distance)
            if alternative != "two-sided":
                beyond = (distance > 0) == (alternative == "larger")
                pvalues = np.where(beyond, pvalues / 2, 1 - pvalues / 2)
            found.append(pvalues)
        all_pvalues[self.known] = np.max(found, axis=0)
        return all_pvalues

    def statistics(self) -> Floats:
        """(d,) atanh of the estimates over its standard deviations; nan where unknown."""
        statistics = np.full_like(self.values, np.nan)
        if self.known.any():
            at = self.values[self.known]
            law = self.laws.error(self.pairs[:, self.known], at)
            statistics[self.known] = np.arctanh(at) / np.sqrt(law.variances)
        return statistics

    def subset(self, chosen: slice) -> Self:
        """Intervals of some of the pairs."""
        return replace(self, pairs=self.pairs[:, chosen])


@dataclass(frozen=True)
class PartialIntervals(PairIntervals):
    """Intervals of partial correlations, given all other columns.

    Certified: the noise (and, for the population, the sampling error) of the whole covariance
    matrix is within a spectral radius, so all entries of the precision matrix are within bounds
    jointly, and partial correlations follow by interval arithmetic (eq. partial-correlation).
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
        """Laws of the errors of partial correlations."""
        return PairLaws.partial(self.precision)

    def certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly; -1 and 1 where the noise is too large for any."""
        low, high = self.precision.bounds(alpha, target)
        return _ratios(-high, -low, (low, high), self.pairs)

    def subset(self, chosen: slice) -> PartialIntervals:
        """Intervals of some of the pairs; the matrix is inverted once."""
        some = super().subset(chosen)
        some.__dict__["precision"] = self.precision
        return some


@dataclass(frozen=True)
class MarginalIntervals(PairIntervals):
    """Intervals of Pearson's correlations.

    Certified: limits of all covariances jointly (`CertifiedRadii.box`), and interval arithmetic.
    """

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Pairs of columns whose variances are clearly above their noise."""
        names = [name for name, _ in self.covariance.moments.features]
        hidden = np.array([name in self.covariance.hidden_columns for name in names])
        return np.asarray(~(hidden[self.pairs].any(axis=0) | self.covariance.unknown))

    @cached_property
    def laws(self) -> PairLaws:
        """Laws of the errors of correlations."""
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
    bounded = np.nan_to_num(ratios, nan=0.0, posinf=1.0, neginf=-1.0)
    lower = np.where(known, np.clip(bounded.min(axis=0), -1, 1), -1.0)
    upper = np.where(known, np.clip(bounded.max(axis=0), -1, 1), 1.0)
    return lower, upper
