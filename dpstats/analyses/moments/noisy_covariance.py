"""Covariance and correlation matrices from noisy moments, with the law of their error.

In unit scale: every column runs from -1 to 1 between its declared bounds; where rows are clipped,
they lie in the unit ball.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.row_sampling import (
    RowSampling,
    SamplingLaw,
    allowing_for_noise,
    kurtosis_of,
    mean_powers,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.covariance import LEAST_VARIANCE
from dpstats.families.ball_moments import BallMoments
from dpstats.families.features import SIGN, Feature, has_sign
from dpstats.families.moments import takes_more_than_two
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import MomentMatrix
from dpstats.inference.simulation import calibration_generator

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView

NUMBERS = 2 * 10**7  # floats in one array of draws
PART = 2_000  # draws of the error that are drawn together; an even number
_NOISE, _SAMPLING = 0, 3  # purposes of draws; 1 and 2 are those of `CertifiedRadii` and
# `correlation_spread`
_CLEAR = 4.0  # a variance (or a count) within this many noise sds of zero is not usable


@dataclass(frozen=True)
class NoisyCovariance(Cached):
    """The covariance matrix of p numbers and signs (or their correlation matrix), noisy."""

    moments: MomentMatrix  # of the p numbers and signs
    points: Floats  # (m, p) points of the release's fitted density, unit scale
    weights: Floats  # (m,) their weights; they sum to one, or to zero if none is in the subgroup
    powers: Floats  # (p, 2) noisy means of third and fourth powers, unit scale; NaN where not known
    power_noise: Floats  # (p, 2) variances of the noise on them
    standardize: bool = False  # whether it is the correlation matrix

    @classmethod
    def of(
        cls,
        release: ReleaseView,
        columns: tuple[str, ...],
        *,
        standardize: bool = False,
        ball: BallMoments | None = None,
        given: Subgroup | None = None,
    ) -> NoisyCovariance:
        """From a release that measured the moments of some columns, or of clipped rows.

        Numbers, and two-level columns as their signs; with `given`, of the rows of a subgroup.
        """
        signs = [has_sign(release.schema[name]) for name in columns]
        features: list[Feature] = [
            (name, SIGN if s else None) for name, s in zip(columns, signs, strict=True)
        ]
        moments = MomentMatrix.of(release, features, ball, given)
        points = moments.unit_rows(release.candidates)
        powers, noise = np.full((len(columns), 2), np.nan), np.zeros((len(columns), 2))
        if ball is None:
            powers, noise = mean_powers(release, columns, given, moments.n)
            powers[signs, 0] = moments.matrix[0, 1:][signs]  # the third power of a sign is itself
            powers[signs, 1] = moments.matrix[0, 0]
        return cls(moments, points, weights_within(release, given), powers, noise, standardize)

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
        raised to the size of its noise before it divides, and correlations are clipped to [-1, 1].
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
        return np.asarray(self.moments.matrix[1:, 0] / self.count)

    @cached_property
    def count(self) -> float:
        """The noisy number of rows over its estimate; 1 where it is public."""
        return max(float(self.moments.matrix[0, 0]), 0.05)

    @cached_property
    def variances(self) -> Floats:
        """(p,) noisy variances, unit scale, divisor the number of rows."""
        return np.asarray(np.diag(self.moments.matrix)[1:] / self.count - self.mean**2)

    @cached_property
    def variance_sd(self) -> Floats:
        """(p,) standard deviations of the noise on the variances, to first order."""
        noise = self.moments.noise_sd
        return np.asarray(np.hypot(np.diag(noise)[1:], 2 * np.abs(self.mean) * noise[0, 1:]))

    @cached_property
    def _least(self) -> Floats:
        return np.maximum(np.maximum(self.variance_sd, self.variances / 16), LEAST_VARIANCE)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p) noisy covariance (numpy's divisor) or correlation matrix."""
        return self.correction * self.of_moments(self.moments.matrix)

    @cached_property
    def plain(self) -> Floats:
        """(p, p) noisy covariances, divisor n."""
        return replace(self, standardize=False).of_moments(self.moments.matrix)

    @cached_property
    def sample(self) -> Floats:
        """(p, p) `plain` less the bias that the noise gives the squared means."""
        own = self.moments.noise_sd[0, 1:] ** 2
        return np.asarray(self.plain + np.diag(own))

    @cached_property
    def hidden_columns(self) -> list[str]:
        """Columns whose variance is not clearly above zero, given its noise."""
        features = zip(self.moments.features, self._clear, strict=True)
        return [name for (name, _), clear in features if not clear]

    @property
    def _clear(self) -> NDArray[np.bool_]:
        """(p,) whether each variance exceeds its noise clearly."""
        return np.asarray(self.variances > np.maximum(_CLEAR * self.variance_sd, LEAST_VARIANCE))

    @property
    def unknown(self) -> bool:
        """True if noise may hide a divisor: the number of rows or, standardized, a variance."""
        hidden_count = self.count < _CLEAR * float(self.moments.noise_sd[0, 0])
        return hidden_count or (self.standardize and bool(self.hidden_columns))

    @cached_property
    def noisy_kurtosis(self) -> Floats:
        """(p,) kurtosis of the columns as measured; NaN where unknown."""
        found = kurtosis_of(self.powers / self.count, self.mean, self.variances)
        return np.where(self._clear, found, np.nan)

    @cached_property
    def kurtosis(self) -> Floats:
        """(p,) `noisy_kurtosis`, but at least 3, and 3 where unknown."""
        return np.fmax(self.noisy_kurtosis, 3.0)

    @cached_property
    def kurtosis_sd(self) -> Floats:
        """(p,) standard deviations of the noise of third and fourth powers on it; 0 where unknown.

        The noise on means and variances is far smaller.
        """
        third, fourth = (self.power_noise / self.count**2).T
        square = np.maximum(self.variances, LEAST_VARIANCE)
        found = np.sqrt(16 * self.mean**2 * third + fourth) / square**2
        return np.where(np.isnan(self.noisy_kurtosis), 0.0, found)

    @cached_property
    def _safe_kurtosis(self) -> Floats:
        """(p,) kurtosis, raised so that its noise leaves intervals of variances their coverage.

        n times the variance of a sample variance is kurtosis - 1 times its square; 2 if normal.
        """
        square = np.maximum(self.variances, LEAST_VARIANCE) ** 2
        rest = self.n * self.variance_sd**2 / (2 * square)
        known = np.nan_to_num(self.noisy_kurtosis, nan=3.0)
        spread = allowing_for_noise((known - 1) / 2, self.kurtosis_sd / 2, rest)
        return np.maximum(self.kurtosis, 1 + 2 * spread)

    @property
    def signs(self) -> tuple[int, ...]:
        """Which columns are signs."""
        return tuple(i for i, (_, level) in enumerate(self.moments.features) if level == SIGN)

    @cached_property
    def two_valued(self) -> tuple[bool, ...]:
        """For each of the p columns, True if it takes only two values."""
        schema, features = self.moments.schema, self.moments.features
        return tuple(
            level == SIGN or not takes_more_than_two(schema[name]) for name, level in features
        )

    @cached_property
    def sampling(self) -> RowSampling:
        """How the moments of independent rows vary.

        The kurtosis of a rare sign is large, and the law "kurtosis" would have all of its products
        vary as its square, which does not vary. It is used only where no other law applies.
        """
        law = RowSampling(
            self.n, self.mean, self.plain, self._safe_kurtosis, self.points, self.weights,
            two_valued=all(self.two_valued), cells=2.0 ** len(self.moments.column_names),
            signs=self.signs,
        )  # fmt: skip
        if "fitted" not in law.laws:
            return law
        others = np.isin(np.arange(self.p), self.signs, invert=True)
        return replace(law, kurtosis=np.where(others, law.kurtosis, 3.0))

    def deviations(self, kind: str, most: int | None = None) -> Iterator[Floats]:
        """Draws (size, p, p) of the error of `matrix`; an array for every law of the sampling.

        Every draw is followed by its opposite. The first `PART` of more draws are the same as those
        of `PART` alone. The arrays are large, and not kept.
        """
        size = self.draws if most is None else min(most, self.draws)
        laws: tuple[SamplingLaw | None, ...] = (None,) if kind == "privacy" else self.sampling.laws
        for law in laws:
            errors = np.zeros((size // 2, *self.moments.matrix.shape))
            for part, start in enumerate(range(0, len(errors), PART // 2)):
                some = errors[start : start + PART // 2]
                if kind != "sampling":
                    some += self.moments.noise(len(some), self._generator(_NOISE, part))
                if law is not None:
                    some += self.sampling.draw(law, len(some), self._generator(_SAMPLING, part))
            both = np.stack([errors, -errors], axis=1).reshape(-1, *errors.shape[1:])
            moved = self.of_moments(self.moments.matrix + both)
            yield self.correction * moved - self.matrix

    def _generator(self, purpose: int, part: int) -> np.random.Generator:
        return calibration_generator(self.moments.answers, (purpose, part) if part else purpose)

    @property
    def draws(self) -> int:
        """Number of draws of the error, even."""
        return 2 * int(np.clip(NUMBERS / 10 / (self.p + 1) ** 2, 500, 2_000))


def weights_within(release: ReleaseView, given: Subgroup | None) -> Floats:
    """Weights (m,) of the fitted density in a subgroup, with sum one, or zero if none is in it."""
    weights = np.asarray(release.weights)
    if given is None:
        return weights
    weights = weights * given.holds(release.candidates)
    return np.asarray(weights / max(float(weights.sum()), 1e-300))
