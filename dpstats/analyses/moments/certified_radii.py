"""Certified bounds on covariance matrices: for any data, from the exact law of the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.moments.noisy_covariance import NUMBERS, NoisyCovariance
from dpstats.arrays import Floats, on_one_blas_thread, within
from dpstats.caching import Cached
from dpstats.corrected.covariance import divided, outer, sampling_box
from dpstats.corrected.eigenvalues import mean_error, sampling_radii
from dpstats.error_rates import (
    bonferroni,
    for_covariance_count,
    for_covariance_noise,
    for_noise,
    for_variances,
)
from dpstats.inference.simulation import calibration_generator
from dpstats.measured.bounded import BoundedAnswers
from dpstats.measured.radius import SpectralRadius

if TYPE_CHECKING:
    from dpstats.checks import Target
    from dpstats.inference.moment_matrix import MomentMatrix

_MOST_DRAWS = 100_000
_CHUNK = 2**21  # floats in the matrices that are worked on at a time, 16 MB
_FEW = 12, 50  # draws that would be above a quantile, if few are made
_RADII = 1  # the purpose of the draws, distinct from those of `NoisyCovariance`


@dataclass(frozen=True)
class CertifiedRadii(Cached):
    """How far a noisy covariance matrix is from that of the private rows, and of the population."""

    covariance: NoisyCovariance
    # Only the spectral norm of the noise is drawn. Its trace is at most p times it, a wide
    # bound; where noise on the diagonal is large, a joint bound on both widens that of the norm.
    norm_alone: bool = False

    @property
    def _moments(self) -> MomentMatrix:
        return self.covariance.moments

    @property
    def _public(self) -> bool:
        """True if the number of rows is public."""
        return self._moments.answers.rows.public

    @property
    def _bound_only(self) -> bool:
        """True if only bounds on the noise are known, whose error is counted elsewhere."""
        return self._moments.answers.bound_only

    @property
    def _published(self) -> SpectralRadius | None:
        """The published bounds on the noise as a whole, if there are any for this matrix."""
        answers = self._moments.answers
        if self.covariance.standardize or not isinstance(answers, BoundedAnswers):
            return None
        return answers.spectral

    def _counts(self, beta: float) -> tuple[float, float]:
        """Bounds on the number of rows over its estimate n, with probability 1 - beta."""
        if self._public:
            return 1.0, 1.0
        if self._published is not None:
            low, high = self._published.n
            return low / self.covariance.n, high / self.covariance.n
        law = self._moments.answers.law(int(self._moments.place[0, 0]))
        n, centre = self.covariance.n, self.covariance.moments.matrix[0, 0]
        q = law.quantile(beta) / n
        return max(float(centre) - q, 1 / n), max(float(centre) + q, 1 / n)

    def corrections(self, alpha: float) -> tuple[float, float]:
        """Ends of n / (n - 1), on the event of `radii` for the table."""
        n = self.covariance.n
        low, high = self._counts(for_covariance_count(alpha))
        sizes = math.ceil(n * high - 1e-9), math.floor(n * low + 1e-9)
        few, many = (size / (size - 1) if size > 1 else np.inf for size in sizes)
        return (1.0, 1.0) if n < 2 and few == np.inf else (min(few, many), many)

    def box(self, alpha: float, target: Target, *, joint: bool) -> tuple[Floats, Floats]:
        """Limits (p, p) of the covariances of the private rows or of the population.

        Interval arithmetic on the noisy moments within quantiles of their noise, valid for any
        data. For the population it takes half of alpha, and bounds on the sampling error of bounded
        columns take the other half, see `sampling_box`.
        """
        low, high, sizes = self._box(alpha, target, joint=joint)
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
        low[np.diag_indices(self.covariance.p)] = np.maximum(np.diag(low), 0)
        limits = most * self.covariance.limits
        return np.clip(low, -limits, limits), np.clip(high, -limits, limits)

    def _box(
        self, alpha: float, target: Target, *, joint: bool
    ) -> tuple[Floats, Floats, tuple[int, int]]:
        """Box with divisor n, and the ends of n."""
        population = target == "population"
        beta = for_noise(alpha, bound_only=self._bound_only) if population else alpha
        of_count = 0.0 if self._public else for_covariance_count(beta)
        counts = self._counts(of_count)
        # A covariance has three noises; its sampling part uses both variances as well.
        r = self._entries(beta - of_count, together=None if joint else 3 + 2 * (target != "table"))
        moments = self._moments.matrix
        limits = self._moments.limits
        low, high = within(*divided(moments - r, moments + r, *counts), -limits, limits)
        means = low[0, 1:], high[0, 1:]
        square_low, square_high = outer(*means)
        low, high = low[1:, 1:] - square_high, high[1:, 1:] - square_low
        n = self.covariance.n
        sizes = math.floor(n * counts[0] + 1e-9), math.ceil(n * counts[1] - 1e-9)
        if population:
            radius = sampling_box(means, high, max(1, sizes[0]), alpha - beta, joint=joint)
            low, high = low - radius, high + radius
        own = np.diag_indices(self.covariance.p)
        low[own], high[own] = within(low[own], high[own], 0, 1)
        limits = self.covariance.limits
        return np.clip(low, -limits, limits), np.clip(high, -limits, limits), sizes

    def _entries(self, beta: float, *, together: int | None) -> Floats:
        """(q, q) bounds on the noise of that many entries jointly; of all of them if None."""
        moments = self._moments
        if together is None:
            return moments.radius(beta)
        answers, each = moments.answers, bonferroni(beta, together)
        quantiles = np.array([law.quantile(each) for law in answers.law_table])
        return moments.fill(quantiles[answers.law_of] / (moments.n * moments.units))

    def radii(self, alpha: float, target: Target) -> tuple[float, float]:
        """Radius of the matrix in spectral norm, and of its trace, certified at 1 - alpha.

        Centred at the noisy matrix with divisor n. With the true means a = m - e (m noisy), the
        noise on the covariance is N = E - (ae' + ea' + ee'), E the noise on the second moments.
        Its law depends on a, which is within q_1 of m with probability 1 - b. Hence
        |N_a| <= |N_m| + 2 q_1 |e| for every draw, and the simulated quantile of the right side is
        at least that of |N_a|. Where the number of rows is measured, the same at the worst share
        1/u of rows, plus the change of the matrix itself with u. Sampling: see
        `spectral.sampling_radii`.

        For a correlation matrix let S^2 be one over the true variances, and |SNS| <= r (certified
        lower bounds of the variances suffice, since |SNS| decreases in them). Diagonals are within
        the norm, so noisy over true variances lie in 1 +- r and their roots A within
        t = 1 - sqrt(1 - r) of one. The true correlations are A R A - SNS, R the noisy ones, and
        |ARA - R| <= t (2 + t) |R|.
        """
        return self._once((alpha, target), lambda: self._radii(alpha, target))

    @on_one_blas_thread
    def exceed(self, limit: float, alpha: float) -> bool:
        """True if the radius of the noise, `radii` for the table, exceeds a limit.

        The radius is a simulated quantile. A few draws suffice where far fewer of them are above
        the limit than would be above the quantile, or far more: were the quantile on the other
        side, that would have a probability of 6e-6 at most. Else all draws are made.
        """
        simulated = not (self.covariance.unknown or self.covariance.standardize or self._bound_only)
        if simulated and self._public and limit > 0 and math.isfinite(limit):
            main, minor = for_covariance_noise(alpha, public=True)
            q1 = float(np.linalg.norm(self._moments.radius(minor)[0, 1:]))  # at least its quantile
            for above in _FEW:
                draws = math.ceil(above / main)
                lengths, size = self._simulated(np.ones(self.covariance.p), draws)
                upper = size + 2 / self.covariance.count * q1 * lengths
                if np.sum(upper > limit) <= max(0, above - 5 * math.sqrt(above)):
                    return False
                if np.sum(size > limit) >= above + 6 * math.sqrt(above):
                    return True
        return not self.radii(alpha, "table")[0] <= limit

    @on_one_blas_thread
    def _radii(self, alpha: float, target: Target) -> tuple[float, float]:
        covariance = self.covariance
        if covariance.unknown:
            return np.inf, np.inf
        least = np.ones(covariance.p)
        if covariance.standardize:
            of_variances = for_variances(alpha)
            alpha -= of_variances
            low, _, _ = self._box(of_variances, target, joint=True)
            least = np.diag(low)
            if np.any(least <= 0):
                return np.inf, np.inf
        population = target == "population"
        beta = for_noise(alpha, bound_only=self._bound_only) if population else alpha
        counts = self._counts(for_covariance_count(beta))
        spectral, of_trace, of_mean = self._of_noise(beta, least, counts)
        if population and math.isfinite(spectral):
            seen = spectral, of_trace, of_mean
            found = self._of_sampling(alpha - beta, least, counts, seen)
            spectral, of_trace = spectral + found[0], of_trace + found[1]
        if not covariance.standardize:
            return spectral, of_trace
        if spectral >= 1:
            return np.inf, np.inf
        moved = 1 - math.sqrt(1 - spectral)
        root = np.sqrt(np.diag(covariance.plain))
        own = covariance.plain / np.outer(root, root)  # not clipped to [-1, 1]
        clipped, size = (float(np.linalg.norm(m, 2)) for m in (covariance.matrix - own, own))
        return spectral + moved * (2 + moved) * size + clipped, 0.0

    def _of_sampling(
        self,
        gamma: float,
        least: Floats,
        counts: tuple[float, float],
        seen: tuple[float, float, float],
    ) -> tuple[float, float]:
        """Radii of the sampling error, given `seen`, the radii of the noise from `_of_noise`."""
        covariance, (spectral, of_trace, of_mean) = self.covariance, seen
        n = max(1, math.floor(covariance.n * counts[0] + 1e-9))
        scale = 1 / np.sqrt(least)
        ball, _ = self._moments.ball_and_reach(scale)
        off = mean_error(n, ball, gamma) + float(scale.max()) * of_mean
        off += self._count_slack(counts) * float(np.linalg.norm(scale * covariance.mean))
        reach = (self._moments.ball_and_reach(scale, covariance.mean)[1] + off) ** 2
        plain = covariance.plain * scale[:, np.newaxis] * scale
        top = float(np.linalg.eigvalsh(plain)[-1]) + spectral
        trace = float(np.trace(plain)) + of_trace
        return sampling_radii(top, trace, n, covariance.p, ball, min(reach, 4 * ball), gamma)

    def _count_slack(self, counts: tuple[float, float]) -> float:
        """Largest relative error of one over the number of rows."""
        return max(abs(self.covariance.count / count - 1) for count in counts)

    @on_one_blas_thread
    def of_noise(self, beta: float) -> SpectralRadius:
        """Bounds on the noise alone, at variances of one, with probability 1 - beta."""
        counts = self._counts(for_covariance_count(beta))
        found = self._of_noise(beta, np.ones(self.covariance.p), counts)
        n = self.covariance.n
        return SpectralRadius(
            *found, (math.floor(n * counts[0] + 1e-9), math.ceil(n * counts[1] - 1e-9))
        )

    def of_rows(self, shares: Floats, alpha: float) -> SpectralRadius:
        """How far the matrix of synthetic rows is from the private one, with probability 1 - alpha.

        The noise on the noisy matrix is within its radius, and the distance of the rows' matrix
        from the noisy one is known: the triangle inequality.
        """
        noisy, noise = self.covariance, self.of_noise(alpha)
        mean = shares @ noisy.points
        misfit = (noisy.points.T * shares) @ noisy.points - np.outer(mean, mean) - noisy.plain
        return SpectralRadius(
            noise.norm + float(np.linalg.norm(misfit, 2)),
            noise.trace + abs(float(np.trace(misfit))),
            noise.mean + float(np.linalg.norm(mean - noisy.mean)),
            noise.n,
        )

    def _of_noise(
        self, beta: float, least: Floats, counts: tuple[float, float]
    ) -> tuple[float, float, float]:
        """Radii of the noise in spectral norm and in trace, over variances `least`; of the mean."""
        if self._published is not None:
            return self._published.norm, self._published.trace, self._published.mean
        if self._bound_only:
            return self._of_bounds(least, counts)
        main, minor = for_covariance_noise(beta, public=self._public)
        own = 1 / self.covariance.count
        most, slack = 1 / counts[0], own * self._count_slack(counts)
        m = self._moments.matrix[0, 1:]
        lengths, size = self._simulated(least, self._usual_draws(minor))
        q1 = _upper_quantile(lengths, minor)
        if not math.isfinite(q1):
            q1 = float(np.linalg.norm(self._moments.radius(minor)[0, 1:]))
        extra = (2 * own * q1 + 2 * slack * (np.linalg.norm(m) + q1)) * lengths
        extra = (extra + slack * lengths**2) / least.min()
        found = most * _upper_quantile(size + extra, main)
        if not math.isfinite(found):
            found = most * self._without_draws(main, own + slack, q1) / float(least.min())
        spectral_shift, trace_shift = self._shifts(least, counts)
        of_trace = found * self.covariance.p if self.norm_alone else found
        return found + spectral_shift, of_trace + trace_shift, q1 * most

    def _shifts(self, least: Floats, counts: tuple[float, float]) -> tuple[float, float]:
        """Change of the matrix itself with the number of rows, in norm and in trace."""
        m, own = self._moments.matrix[0, 1:], 1 / self.covariance.count
        slack = own * self._count_slack(counts)
        spectral_shift, trace_shift = 0.0, 0.0
        for share in {1 / count for count in counts}:
            step = self._moments.matrix[1:, 1:] - (share + own) * np.outer(m, m)
            shift = slack * np.abs(np.linalg.eigvalsh(step)).max() / least.min()
            spectral_shift = max(spectral_shift, float(shift))
            trace_shift = max(trace_shift, float(slack * abs(np.trace(step))))
        return spectral_shift, trace_shift

    def _of_bounds(self, least: Floats, counts: tuple[float, float]) -> tuple[float, float, float]:
        """Radii from bounds on every entry: a norm is at most that of the entries' bounds.

        With e the noise on the means m, bounded by q1, that on mm' is at most q1 (2 |m| + q1).
        """
        r = self._moments.radius(0.0)
        q1, length = (float(np.linalg.norm(x)) for x in (r[0, 1:], self._moments.matrix[0, 1:]))
        most, own = 1 / counts[0], 1 / self.covariance.count
        products = (own + own * self._count_slack(counts)) * q1 * (2 * length + q1)
        shifts = self._shifts(least, counts)
        spectral = most * (float(np.linalg.norm(r[1:, 1:], 2)) + products) / float(least.min())
        trace = most * (float(np.trace(r[1:, 1:])) + products) / float(least.min())
        return spectral + shifts[0], trace + shifts[1], q1 * most

    def _without_draws(self, beta: float, share: float, q1: float) -> float:
        """Bound on norm and trace for error probabilities below one over the number of draws."""
        r = self._moments.radius(beta)
        length = float(np.linalg.norm(r[0, 1:]))
        m = float(np.linalg.norm(self._moments.matrix[0, 1:])) + q1
        size = float(np.trace(r[1:, 1:])) + float(np.linalg.norm(r[1:, 1:]))
        return size + share * (2 * m * length + length**2)

    def _simulated(self, least: Floats, draws: int) -> tuple[Floats, Floats]:
        """Draws (draws,) of the noise's length on the means, and of its size on the covariance.

        The size is the larger of norm and trace, or the norm, over variances `least`. The matrices
        are drawn some at a time; the statistics of all draws are independent and have one law.
        """
        m, own, scale = self._moments.matrix[0, 1:], 1 / self.covariance.count, 1 / np.sqrt(least)
        rng = calibration_generator(self._moments.answers, _RADII)
        found = []
        for drawn in self._draws(draws, rng):
            first, noise = drawn[:, 0, 1:], drawn[:, 1:, 1:]
            product = (m + first / 2)[:, :, np.newaxis] * (own * first)[:, np.newaxis, :]
            noise = (noise - product - product.swapaxes(1, 2)) * scale[:, np.newaxis] * scale
            norm = np.abs(np.linalg.eigvalsh(noise)[:, [0, -1]]).max(axis=1)
            if not self.norm_alone:
                norm = np.maximum(norm, np.abs(np.trace(noise, axis1=1, axis2=2)))
            found.append((np.linalg.norm(first, axis=1), norm))
        lengths, sizes = zip(*found, strict=True)
        return np.concatenate(lengths), np.concatenate(sizes)

    def _usual_draws(self, beta: float) -> int:
        """How many draws a quantile is read from."""
        most = int(np.clip(NUMBERS / (self.covariance.p + 1) ** 2, 2_000, _MOST_DRAWS))
        return int(np.clip(10 / beta, 4_000, most)) if most > 4_000 else most

    def _draws(self, size: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Independent draws (some, q, q) of the noise on the moments."""
        step = max(1, _CHUNK // (self.covariance.p + 1) ** 2)
        for start in range(0, size, step):
            yield self._moments.noise(min(step, size - start), rng)


def _upper_quantile(draws: Floats, beta: float) -> float:
    """A bound that one more draw exceeds with probability at most beta, over all draws jointly."""
    rank = math.ceil((len(draws) + 1) * (1 - beta))
    return float(np.sort(draws)[rank - 1]) if rank <= len(draws) else math.inf
