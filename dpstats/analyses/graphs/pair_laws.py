"""First-order laws of correlations and partial correlations from noisy moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.row_sampling import with_kurtosis
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.mixture_tails import MixtureTails
from dpstats.inference.simulation import calibration_generator

if TYPE_CHECKING:
    from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
    from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
    from dpstats.privacy.laws import LatticeLaw

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

    up to the sign in the first case. S follows from moments, so the error of r from the noise is a
    weighted sum of the measured noises with known laws; that from sampling is the mean of a
    quadratic form y'My of centred rows over n, asymptotically normal. atanh r is used: its sampling
    variance is 1/(n - 1 - k) for normal rows, k the number of other columns.

    Attributes
    ----------
    covariance : NoisyCovariance
    sample : (p, p) float64
        S, divisor n.
    directions : (p, p) float64
        The rows a_i.
    df : int
        One over the sampling variance of atanh r for normal rows.
    sign : {1, -1}
        -1: the parameter is -r.
    """

    covariance: NoisyCovariance
    sample: Floats
    directions: Floats
    df: int
    sign: int

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

        Parameters
        ----------
        pairs : (2, d) int64
        at : (d,) float64
            The correlations at which the derivatives are taken: estimates, or a hypothesis.
        sampling : bool
            False: the noise alone.
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
        found = np.empty((pairs.shape[1], len(laws)))
        for some, gradient in self._gradients(pairs, at):
            by_function = np.asarray(gradient.reshape(len(gradient), -1) @ members)
            found[some] = by_function @ weights.T
        return found, laws

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
        """(d, p, p) the matrices M."""
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
            found = self._of_kurtosis(r) if law == "kurtosis" else self._of_points(r)
            spread = np.maximum(spread, found / normal)
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
        found = np.zeros_like(r)
        for i in range(len(r)):
            own = residuals[i]
            form = residuals * own - r[i][:, np.newaxis] / 2 * (residuals**2 + own**2)
            found[i] = form**2 @ weights - (form @ weights) ** 2
        return found

    @cached_property
    def _residuals(self) -> tuple[Floats, Floats]:
        """(p, m) values of a_i'y at the points of the density, of unit variance; (m,) weights."""
        rng = calibration_generator(self.covariance.moments.answers, _THINNING)
        points, weights = self.covariance.sampling.moved_points(rng)
        residuals = self.directions @ (points - weights @ points).T
        spread = np.sqrt(np.maximum(residuals**2 @ weights, 1e-12))
        return residuals / spread[:, np.newaxis], weights
