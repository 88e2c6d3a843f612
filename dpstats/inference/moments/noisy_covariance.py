"""Covariance and correlation matrices of numbers from noisy moments, with the law of their error.

In unit scale: every column runs from -1 to 1 between its declared bounds; where rows are clipped,
they lie in the unit ball.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.covariance import divided, outer, sampling_box
from dpstats.corrected.spectral import mean_error, sampling_radii
from dpstats.families.ball_moments import BallMoments
from dpstats.families.monomials import takes_more_than_two
from dpstats.inference.moment_matrix import MomentMatrix
from dpstats.inference.moments.row_sampling import (
    RowSampling,
    SamplingLaw,
    kurtosis_of,
    mean_powers,
)

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.measured.view import ReleaseView

_OF_BOX = 0.2  # of alpha, for the lower bounds of variances
_NUMBERS = 2 * 10**7  # floats in one array of draws
_MOST_DRAWS = 100_000
_CLEAR = 4.0  # a variance (or a count) within so many noise sds of zero is drowned


@dataclass(frozen=True)
class NoisyCovariance(Cached):
    """The covariance matrix of p numbers (or their correlation matrix), noisy.

    Attributes
    ----------
    moments : MomentMatrix
        Of the p numbers.
    points : (m, p) float64
        Points of the release's fitted density, unit scale.
    weights : (m,) float64
        Their weights; they sum to one.
    powers : (p, 2) float64
        Noisy means of third and fourth powers, unit scale; NaN where not measured.
    standardize : bool
        The correlation matrix.
    """

    moments: MomentMatrix
    points: Floats
    weights: Floats
    powers: Floats
    standardize: bool = False

    @classmethod
    def of(
        cls,
        release: ReleaseView,
        columns: tuple[str, ...],
        *,
        standardize: bool = False,
        ball: BallMoments | None = None,
    ) -> NoisyCovariance:
        """From a release that measured the moments of some numbers, or of clipped rows."""
        moments = MomentMatrix.of(release, [(name, None) for name in columns], ball)
        points = moments.unit_rows(release.candidates)
        powers = np.full((len(columns), 2), np.nan) if ball else mean_powers(release, columns)
        return cls(moments, points, np.asarray(release.weights), powers, standardize)

    @property
    def p(self) -> int:
        """Number of columns."""
        return len(self.moments.features)

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.moments.n

    @property
    def limits(self) -> Floats:
        """(p, p) largest absolute covariances, with the number of rows as divisor."""
        return self.moments.limits[1:, 1:]

    @property
    def largest_trace(self) -> float:
        """Largest possible sum of the variances, with the number of rows as divisor."""
        ones = np.ones(self.p)
        return float(self.p) if self.standardize else self.moments.ball_and_reach(ones)[0]

    @property
    def correction(self) -> float:
        """The factor n / (n - 1), which makes the covariance of rows that of `numpy.cov`."""
        return 1.0 if self.standardize or self.n < 2 else self.n / (self.n - 1)

    def of_moments(self, moments: Floats) -> Floats:
        """Covariance (or correlation) matrices (..., p, p) of moment matrices (..., q, q).

        The divisor is the number of rows. A variance that noise has made small or negative is
        raised to the size of its noise before it divides, and correlations stay in [-1, 1].
        """
        count = np.maximum(moments[..., :1, :1], 0.05)
        mean = moments[..., 1:, :1] / count
        covariance = moments[..., 1:, 1:] / count - mean * mean.swapaxes(-1, -2)
        if not self.standardize:
            return np.asarray(covariance)
        root = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), self._least))
        scaled = covariance / root[..., :, np.newaxis] / root[..., np.newaxis, :]
        scaled = np.clip(scaled, -1, 1)
        own = np.arange(self.p)
        scaled[..., own, own] = 1.0
        return np.asarray(scaled)

    @cached_property
    def mean(self) -> Floats:
        """(p,) noisy means, unit scale."""
        return np.asarray(self.moments.matrix[1:, 0] / self._count)

    @cached_property
    def _count(self) -> float:
        return max(float(self.moments.matrix[0, 0]), 0.05)

    @cached_property
    def variances(self) -> Floats:
        """(p,) noisy variances, unit scale, divisor the number of rows."""
        return np.asarray(np.diag(self.moments.matrix)[1:] / self._count - self.mean**2)

    @cached_property
    def variance_sd(self) -> Floats:
        """(p,) standard deviations of the noise on the variances, to first order."""
        noise = self.moments.noise_sd
        return np.asarray(np.hypot(np.diag(noise)[1:], 2 * np.abs(self.mean) * noise[0, 1:]))

    @cached_property
    def _least(self) -> Floats:
        return np.maximum(np.maximum(self.variance_sd, self.variances / 16), 1e-12)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p) noisy covariance (numpy's divisor) or correlation matrix."""
        return self.correction * self.of_moments(self.moments.matrix)

    @cached_property
    def drowned(self) -> list[str]:
        """Columns whose variance cannot be told from zero for the noise."""
        features = zip(self.moments.features, self._clear, strict=True)
        return [name for (name, _), clear in features if not clear]

    @property
    def _clear(self) -> NDArray[np.bool_]:
        """(p,) whether each variance can be told from zero."""
        return np.asarray(self.variances > np.maximum(_CLEAR * self.variance_sd, 1e-12))

    @property
    def unknown(self) -> bool:
        """Whether noise has drowned what everything is divided by."""
        lost_count = self._count < _CLEAR * float(self.moments.noise_sd[0, 0])
        return lost_count or (self.standardize and bool(self.drowned))

    @cached_property
    def kurtosis(self) -> Floats:
        """(p,) kurtosis of the columns; 3 where unknown, and never less."""
        found = kurtosis_of(self.powers / self._count, self.mean, self.variances)
        return np.where(self._clear, found, 3.0)

    @cached_property
    def sampling(self) -> RowSampling:
        """How the moments of independent rows vary."""
        columns = [self.moments.schema[name] for name, _ in self.moments.features]
        return RowSampling(
            self.n, self.mean, self._plain, self.kurtosis, self.points, self.weights,
            two_valued=not any(map(takes_more_than_two, columns)),
        )  # fmt: skip

    def deviations(self, kind: str) -> tuple[Floats, ...]:
        """Draws (size, p, p) of the error of `matrix`; an array for every law of the sampling.

        Parameters
        ----------
        kind : {"privacy", "sampling", "both"}
            The privacy noise, from its exact law, and the sampling of rows; see `RowSampling`.
        """
        return self._once(kind, lambda: tuple(self._drawn(kind)))

    def _drawn(self, kind: str) -> Iterator[Floats]:
        laws: tuple[SamplingLaw | None, ...] = (None,) if kind == "privacy" else self.sampling.laws
        for law in laws:
            rng = np.random.default_rng(0)
            error = np.zeros((self._size, *self.moments.matrix.shape))
            if kind != "sampling":
                error += _both_signs(self.moments.noise(self._size // 2, rng))
            if law is not None:
                error += _both_signs(self.sampling.draw(law, self._size // 2, rng))
            yield self.correction * self.of_moments(self.moments.matrix + error) - self.matrix

    @property
    def _size(self) -> int:
        return 2 * int(np.clip(_NUMBERS / 10 / (self.p + 1) ** 2, 500, 2_000))

    # Certified: for any data, from the exact law of the noise.

    def counts(self, beta: float) -> tuple[float, float]:
        """Ends of the number of rows over its estimate, with probability 1 - beta."""
        if self.moments.answers.rows.public:
            return 1.0, 1.0
        laws = self.moments.answers
        q = laws.law(int(self.moments.place[0, 0])).quantile(beta) / self.n
        centre = float(self.moments.matrix[0, 0])
        return max(centre - q, 1 / self.n), max(centre + q, 1 / self.n)

    def corrections(self, alpha: float) -> tuple[float, float]:
        """Ends of n / (n - 1), on the event of `radii` for the table."""
        low, high = self.counts(alpha / 10)
        sizes = math.ceil(self.n * high - 1e-9), math.floor(self.n * low + 1e-9)
        few, many = (n / (n - 1) if n > 1 else np.inf for n in sizes)
        return (1.0, 1.0) if self.n < 2 and few == np.inf else (min(few, many), many)

    def box(
        self, alpha: float, target: Target, *, joint: bool, beta: float
    ) -> tuple[Floats, Floats]:
        """Ends (p, p) of the covariances of the private rows or of the population, certified.

        Interval arithmetic on the noisy moments within quantiles of their noise, so exact for any
        data; for the population, bounds on the sampling error of bounded columns are added, see
        `sampling_box`.

        Parameters
        ----------
        alpha : float
            Error in all.
        target : {"population", "table"}
            For the table the divisor is that of `numpy.cov`.
        joint : bool
            All ends hold together; else each by itself.
        beta : float
            The part of alpha for the noise, if the target is the population; else all of it.
        """
        low, high, sizes = self._box(alpha, target, joint=joint, beta=beta)
        if target == "population":
            return low, high
        factors = [n / (n - 1) if n > 1 else np.inf for n in sizes]
        most = factors[0]
        with np.errstate(invalid="ignore"):
            low = np.minimum(low * factors[0], low * factors[1])
            high = np.maximum(high * factors[0], high * factors[1])
        low, high = (
            np.nan_to_num(end, nan=most_of, posinf=np.inf, neginf=-np.inf)
            for end, most_of in ((low, -most), (high, most))
        )
        low[np.diag_indices(self.p)] = np.maximum(np.diag(low), 0)
        limits = most * self.limits
        return np.clip(low, -limits, limits), np.clip(high, -limits, limits)

    def _box(
        self, alpha: float, target: Target, *, joint: bool, beta: float
    ) -> tuple[Floats, Floats, tuple[int, int]]:
        """The same with divisor n, and the ends of n."""
        beta = beta if target == "population" else alpha
        public = self.moments.answers.rows.public
        of_count = 0.0 if public else beta / 10
        counts = self.counts(of_count)
        # A covariance has three noises; its sampling part looks at both variances as well.
        r = self._radii(beta - of_count, together=None if joint else 3 + 2 * (target != "table"))
        moments = self.moments.matrix
        low, high = divided(moments - r, moments + r, *counts)
        limits = self.moments.limits
        low, high = np.clip(low, -limits, limits), np.clip(high, -limits, limits)
        means = low[0, 1:], high[0, 1:]
        square_low, square_high = outer(*means)
        low, high = low[1:, 1:] - square_high, high[1:, 1:] - square_low
        sizes = math.floor(self.n * counts[0] + 1e-9), math.ceil(self.n * counts[1] - 1e-9)
        if target == "population":
            radius = sampling_box(means, high, max(1, sizes[0]), alpha - beta, joint=joint)
            low, high = low - radius, high + radius
        own = np.diag_indices(self.p)
        low[own], high[own] = np.clip(low[own], 0, 1), np.clip(high[own], 0, 1)
        limits = self.limits
        return np.clip(low, -limits, limits), np.clip(high, -limits, limits), sizes

    def _radii(self, beta: float, *, together: int | None) -> Floats:
        """(q, q) bounds on the noise, of so many entries together; of all of them if None."""
        if together is None:
            return self.moments.radius(beta)
        answers = self.moments.answers
        quantiles = np.array([law.quantile(beta / together) for law in answers.law_table])
        return self.moments.fill(quantiles[answers.law_of] / (self.n * self.moments.units))

    def radii(self, alpha: float, target: Target) -> tuple[float, float]:
        """Radius of `matrix` in spectral norm, and of its trace, certified at 1 - alpha.

        Centred at the noisy matrix with divisor n. With the true means a = m - e (m noisy), the
        noise on the covariance is N = E - (ae' + ea' + ee'), E the noise on the second moments.
        Its law depends on a, which is within q_1 of m with probability 1 - b, so that
        |N_a| <= |N_m| + 2 q_1 |e| for every draw, and the simulated quantile of the right side is
        at least that of |N_a|. Where the number of rows is measured, the same at the worst share
        1/u of rows, plus what the matrix itself moves with u. Sampling: see
        `spectral.sampling_radii`.

        For a correlation matrix let S^2 be one over the true variances, and |SNS| <= r (certified
        lower bounds of the variances serve, since |SNS| decreases in them). Diagonals are within
        the norm, so own over true variances lie in 1 +- r and their roots A within
        t = 1 - sqrt(1 - r) of one. The true correlations are A R A - SNS, R the own ones, and
        |ARA - R| <= t (2 + t) |R|.
        """
        return self._once((alpha, target), lambda: self._radii_at(alpha, target))

    def _radii_at(self, alpha: float, target: Target) -> tuple[float, float]:
        if self.unknown:
            return np.inf, np.inf
        least = np.ones(self.p)
        if self.standardize:
            of_box = alpha * _OF_BOX
            alpha -= of_box
            low, _, _ = self._box(of_box, target, joint=True, beta=of_box / 2)
            least = np.diag(low)
            if np.any(least <= 0):
                return np.inf, np.inf
        beta = alpha / 2 if target == "population" else alpha
        counts = self.counts(beta / 10)
        spectral, of_trace, q1 = self._noise_radii(beta, least, *counts)
        if target == "population" and math.isfinite(spectral):
            n = max(1, math.floor(self.n * counts[0] + 1e-9))
            scale = 1 / np.sqrt(least)
            ball, _ = self.moments.ball_and_reach(scale)
            apart = mean_error(n, ball, alpha - beta) + float(scale.max()) * q1
            apart += self._count_slack(*counts) * float(np.linalg.norm(scale * self.mean))
            reach = (self.moments.ball_and_reach(scale, self.mean)[1] + apart) ** 2
            plain = self._plain * scale[:, np.newaxis] * scale
            top = float(np.linalg.eigvalsh(plain)[-1]) + spectral
            trace = float(np.trace(plain)) + of_trace
            found = sampling_radii(top, trace, n, self.p, ball, min(reach, 4 * ball), alpha - beta)
            spectral, of_trace = spectral + found[0], of_trace + found[1]
        if not self.standardize:
            return spectral, of_trace
        if spectral >= 1:
            return np.inf, np.inf
        moved = 1 - math.sqrt(1 - spectral)
        root = np.sqrt(np.diag(self._plain))
        own = self._plain / np.outer(root, root)  # not clipped to [-1, 1]
        clipped, size = (float(np.linalg.norm(m, 2)) for m in (self.matrix - own, own))
        return spectral + moved * (2 + moved) * size + clipped, 0.0

    def _count_slack(self, low_count: float, high_count: float) -> float:
        """How far one over the number of rows may be off, relative to its estimate."""
        return max(abs(self._count / count - 1) for count in (low_count, high_count))

    @cached_property
    def _plain(self) -> Floats:
        """(p, p) noisy covariances, divisor n."""
        return replace(self, standardize=False).of_moments(self.moments.matrix)

    def _noise_radii(
        self, beta: float, least: Floats, low_count: float, high_count: float
    ) -> tuple[float, float, float]:
        """Of the scaled noise in spectral norm and in trace, and of the noise of the mean."""
        public = self.moments.answers.rows.public
        main, minor = (0.9 * beta, 0.1 * beta) if public else (0.8 * beta, 0.1 * beta)
        own = 1 / self._count
        most, slack = 1 / low_count, own * self._count_slack(low_count, high_count)
        m = self.moments.matrix[0, 1:]
        first, second = self._draws(minor)
        lengths = np.linalg.norm(first, axis=1)
        q1 = _upper_quantile(lengths, minor)
        if not math.isfinite(q1):
            q1 = float(np.linalg.norm(self.moments.radius(minor)[0, 1:]))
        scale = 1 / np.sqrt(least)
        product = m[np.newaxis, :, np.newaxis] * first[:, np.newaxis, :]
        product = product + product.swapaxes(1, 2)
        product += first[:, :, np.newaxis] * first[:, np.newaxis, :]
        noise = (second - own * product) * scale[:, np.newaxis] * scale
        extra = (2 * own * q1 + 2 * slack * (np.linalg.norm(m) + q1)) * lengths
        extra = (extra + slack * lengths**2) / least.min()
        size = np.abs(np.linalg.eigvalsh(noise)[:, [0, -1]]).max(axis=1)
        trace = np.abs(np.trace(noise, axis1=1, axis2=2))
        found = most * _upper_quantile(np.maximum(size, trace) + extra, main)
        if not math.isfinite(found):
            found = self._crude_radius(main, own, most, slack, q1, least)
        spectral_shift, trace_shift = 0.0, 0.0
        for share in {1 / low_count, 1 / high_count}:
            step = self.moments.matrix[1:, 1:] - (share + own) * np.outer(m, m)
            shift = slack * np.abs(np.linalg.eigvalsh(step)).max() / least.min()
            spectral_shift = max(spectral_shift, float(shift))
            trace_shift = max(trace_shift, float(slack * abs(np.trace(step))))
        return found + spectral_shift, found + trace_shift, q1 * most

    def _crude_radius(
        self, beta: float, own: float, most: float, slack: float, q1: float, least: Floats
    ) -> float:
        """Bound without simulation, for error probabilities below what draws can tell."""
        r = self.moments.radius(beta)
        length = float(np.linalg.norm(r[0, 1:]))
        m = float(np.linalg.norm(self.moments.matrix[0, 1:])) + q1
        size = float(np.trace(r[1:, 1:])) + float(np.linalg.norm(r[1:, 1:]))
        return most * (size + (own + slack) * (2 * m * length + length**2)) / float(least.min())

    def _draws(self, beta: float) -> tuple[Floats, Floats]:
        """Independent draws of the noise on means (size, p) and second moments (size, p, p)."""
        most = int(np.clip(_NUMBERS / (self.p + 1) ** 2, 2_000, _MOST_DRAWS))
        size = int(np.clip(20 / beta, 4_000, most)) if most > 4_000 else most
        drawn = self.moments.noise(size, np.random.default_rng(1))
        return drawn[:, 0, 1:], drawn[:, 1:, 1:]


def _upper_quantile(draws: Floats, beta: float) -> float:
    """A bound that one more draw passes with probability at most beta, over all draws together."""
    rank = math.ceil((len(draws) + 1) * (1 - beta))
    return float(np.sort(draws)[rank - 1]) if rank <= len(draws) else math.inf


def _both_signs(draws: Floats) -> Floats:
    return np.concatenate([draws, -draws])
