"""The mean of a group from its noisy size, sum and sum of squares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni
from dpstats.families.group_moments import PARTS, TO_MOMENTS
from dpstats.inference.confidence_law import DRAWS
from dpstats.inference.noisy_ratio import NoisyRatio
from dpstats.inference.simulation import calibration_seed, draw_evenly
from dpstats.privacy.weighted_noise import law_of_sum

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.privacy.laws import NoiseLaw

LEAST_ROWS = 2  # for a mean and its error
_ADDED = 3.0  # persons with the trait and without


@dataclass(frozen=True)
class NoisyMean:
    """A group of rows with a number in [-1, 1] (unit scale)."""

    observed: Floats  # (3,) noisy size, sum and sum of squares
    mixing: Floats  # (3, k) the noise on them as combinations of k independent noises
    laws: tuple[NoiseLaw | None, ...]  # None for what is public
    units: Floats  # (k,) what the noises are divided by
    most: float  # public upper bound of the size; inf if there is none
    # Of the draws of the noise, different for groups that are compared; see `calibration_seed`.
    # That of a column or a group is the same whatever else is asked with it.
    seed: int = 0
    # At least 1: how many times the sampling variance of independent rows is allowed for, such
    # as the most rows of one person. The t law has as many times fewer degrees of freedom.
    clustering: float = 1.0
    share: bool = False  # the numbers are 0 and 1, and the mean is a share: see `few`

    @classmethod
    def of_column(cls, answers: Answers, f: int) -> NoisyMean:
        """All rows, from functions number f (x) and f + 1 (x^2); the count last, if noisy."""
        rows = answers.rows
        size, law = (
            (rows.estimate, None) if rows.public else (float(answers.sums[-1]), answers.law(-1))
        )
        units = answers.bounds[f : f + 2].astype(np.float64)
        return cls(
            np.append(size, answers.sums[f : f + 2] / units),
            np.eye(3),
            (law, answers.law(f), answers.law(f + 1)),
            np.append(1.0, units),
            size if law is None else np.inf,
            calibration_seed(answers.subset(slice(f, f + 2)), answers.names[f]),
            float(rows.rows_per_person),
        )

    @classmethod
    def of_share(cls, answers: Answers) -> NoisyMean:
        """All rows, 1 where a condition holds and else 0, from its count; their number last."""
        rows, joint = answers.rows, answers.with_count
        size, count = rows.estimate if rows.public else float(answers.sums[-1]), answers.sums[0]
        weights = [(0.0, 1.0), (1.0, 0.0)]
        laws: tuple[NoiseLaw | None, ...] = (None, answers.law(0))
        assert rows.public or joint is not None
        if joint is not None:
            parts = joint[0][int(joint[1][0])].parts
            weights, laws = [(a, b) for a, b, _ in parts], tuple(law for *_, law in parts)
        return cls(
            np.array([size, count, count]),
            np.array(weights).T[[1, 0, 0]],
            laws,
            np.ones(len(laws)),
            size if rows.public else np.inf,
            calibration_seed(answers),
            float(rows.rows_per_person),
            share=True,
        )

    @classmethod
    def of_trait(cls, answers: Answers, f: int = 0) -> NoisyMean:
        """A group, 1 with a trait and 0 without, from both counts: numbers f and f + 1."""
        rows, counts = answers.rows, answers.subset(slice(f, f + 2))
        weights, laws = zip(*counts.noise_parts, strict=True)
        moments = np.array([[1, 1], [1, 0], [1, 0.0]])
        most, clustering = rows.estimate if rows.public else np.inf, float(rows.rows_per_person)
        seed, mixing = calibration_seed(answers, f), moments @ np.array(weights).T
        observed = moments @ counts.sums
        return cls(observed, mixing, laws, np.ones(len(laws)), most, seed, clustering, True)

    @classmethod
    def of_group(cls, answers: Answers, i: int) -> NoisyMean:
        """Group number i, from the answers to a block of `GroupMoments`."""
        return cls.of_parts(answers.subset(slice(len(PARTS) * i, len(PARTS) * (i + 1))), TO_MOMENTS)

    @classmethod
    def of_parts(cls, parts: Answers, mixing: Floats) -> NoisyMean:
        """A group whose size, sum and sum of squares are combinations (3, k) of k answers."""
        units, laws = parts.bounds.astype(np.float64), tuple(map(parts.law, range(len(parts.sums))))
        most = parts.rows.estimate if parts.rows.public else np.inf
        seed, clustering = calibration_seed(parts, parts.names[0]), parts.rows.rows_per_person
        observed = mixing @ (parts.sums / units)
        return cls(observed, mixing, laws, units, most, seed, float(clustering))

    @cached_property
    def covariance(self) -> Floats:
        """(3, 3) covariance of the noise."""
        variances = [0.0 if law is None else law.variance for law in self.laws] / self.units**2
        return np.asarray((self.mixing * variances) @ self.mixing.T)

    @property
    def size(self) -> float:
        """Estimate of the size, from 1 to the number of rows."""
        return float(np.clip(self.observed[0], 1, self.most))

    @property
    def size_noise(self) -> float:
        """Standard deviation of the noise on the size."""
        return float(np.sqrt(self.covariance[0, 0]))

    @property
    def size_law(self) -> tuple[NoiseLaw | None, float]:
        """Law of the noise on the size, and what it is multiplied by; None where there is none."""
        return law_of_sum(self.mixing[0] / self.units, self.laws)

    @property
    def mean(self) -> float:
        """Estimate of the mean, in [-1, 1]."""
        return float(np.clip(self.observed[1] / self.size, -1, 1))

    def possible(self, mean: float) -> float:
        """The nearest mean that rows can have."""
        return float(np.clip(mean, 0.0 if self.share else -1.0, 1.0))

    @property
    def privacy_variance(self) -> float:
        """Variance of the mean's noise, to first order; at most 1, that of -1 or 1 at random."""
        return min(self._first_order, 1.0)

    @cached_property
    def _first_order(self) -> float:
        return self.noise_at(self.mean)

    def noise_at(self, mean: float) -> float:
        """Variance of the noise on the sum less a mean times the size, over the squared size."""
        gradient = np.array([-mean, 1.0, 0.0]) / self.size
        return float(gradient @ self.covariance @ gradient)

    @property
    def _plain(self) -> float:
        """Mean square minus squared mean, as observed."""
        return float(self.observed[2] / self.size - (self.observed[1] / self.size) ** 2)

    @property
    def variance(self) -> float:
        """Estimate of the variance, n in the denominator, in [0, 1 - mean^2].

        The noise on the mean lowers mean square minus squared mean by its variance on average.
        """
        return float(np.clip(self._plain + self._first_order, 0, 1 - self.mean**2))

    @property
    def variance_noise(self) -> float:
        """Standard deviation of the noise on the variance, to first order."""
        gradient = np.array([self.mean**2 - self._plain, -2 * self.mean, 1.0])
        return float(np.sqrt(gradient @ self.covariance @ gradient)) / self.size

    @property
    def _too_few(self) -> bool:
        """True if the noisy size is below two rows: the mean is then not determined."""
        return bool(self.observed[0] < LEAST_ROWS)

    @property
    def sampling_variance(self) -> float:
        """Variance of the sample mean; 1 below two rows, as in `drawn`."""
        if self._too_few:
            return 1.0
        return self.clustering * self.variance / max(self.size - 1, 1.0)

    @property
    def hidden_by_noise(self) -> bool:
        """True if the noise may exceed the size, or gives the mean an sd above 1/8 of its range."""
        small = self._too_few or self.size <= 2 * self.size_noise
        return small or self.privacy_variance > 1 / 16

    @cached_property
    def drawn(self) -> tuple[Floats, Floats, Floats]:
        """Draws (m,) of the mean, its squared sampling error and the size without noise.

        The size is divided by `clustering`, down to 2: fewer persons than rows.
        """
        mean, variance, n = self.moments
        persons = n if self.clustering == 1 else np.maximum(n / self.clustering, float(LEAST_ROWS))
        return mean, self.clustering * variance / (n - 1) + self.few, persons

    @cached_property
    def few(self) -> Floats:
        """Draws (m,) of what is added to the squared error of a share; zeros for other means.

        Where few persons have a trait, or few are without it, p (1 - p) is estimated too small. It
        is taken at the share with three persons more of either kind, if that is larger, in the
        manner of Agresti and Coull (1998). At Poisson numbers of persons 1.96 standard errors then
        cover the number with probability .943 or more, from .05 to 60 expected persons.
        """
        mean, _, n = self.moments
        if not self.share:
            return np.zeros(DRAWS)
        more, p = _ADDED * self.clustering, np.clip(mean, 0, 1)
        moved = (n * p + more) / (n + 2 * more)
        larger = np.maximum(moved * (1 - moved) - p * (1 - p), 0)
        return np.asarray(self.clustering * larger / (n - 1))

    @cached_property
    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Draws (m,) of the mean, the variance and the size (at least 2) without noise.

        In a draw with fewer than two rows the mean is -1 or 1, at random. The noisy variance may be
        negative: it is raised to zero before its noise is subtracted, and clipped to the range for
        a number in [-1, 1] with that mean (Bhatia and Davis 2000).
        """
        rng = np.random.default_rng(self.seed)
        noises = np.array([
            np.zeros(DRAWS) if law is None else draw_evenly(law, DRAWS, rng) for law in self.laws
        ])  # fmt: skip
        moments = self.observed[:, np.newaxis] - self.mixing @ (noises / self.units[:, np.newaxis])
        size = np.clip(moments[0], 0, self.most)
        seen = size >= LEAST_ROWS
        n = np.where(seen, size, float(LEAST_ROWS))
        ends = rng.permutation(np.resize([-1.0, 1.0], DRAWS))
        mean, square = np.where(seen, moments[1:] / n, [ends, np.ones(DRAWS)])
        raised = square - mean**2 + self.variance - self._plain
        return mean, np.clip(raised, 0, np.maximum(1 - mean**2, 0)), n

    @property
    def bound_only(self) -> bool:
        """True if only bounds on the noises are known, whose error is counted elsewhere."""
        return all(law.bound_only for law in self.laws if law is not None)

    @cached_property
    def of_table(self) -> NoisyRatio | None:
        """(1 + mean) / 2 of the private rows themselves, if their number is noisy.

        The uniform is drawn with the seed, which is independent of the noise.
        """
        if self.laws[0] is None:
            return None
        size, total = self.mixing[:2] / self.units
        weighted = [
            ((s + t) / 2, s, law)
            for s, t, law in zip(size.tolist(), total.tolist(), self.laws, strict=True)
            if law is not None and (s or t)
        ]
        u = np.random.default_rng((self.seed, 1)).random(1) - 0.5
        half = np.array([(self.observed[0] + self.observed[1]) / 2])
        return NoisyRatio.of(weighted, float(self.observed[0]), half, u)

    def _reaches(self, beta: float, count: int) -> list[float]:
        """Bounds on the first `count` combinations of noises, jointly with probability 1 - beta.

        Combinations of bounded noises are within the same combination of the bounds.
        """
        if self.bound_only:
            bounds = np.array([0.0 if law is None else law.quantile(0.0) for law in self.laws])
            return list((np.abs(self.mixing[:count]) @ (bounds / self.units)).tolist())
        found = [law_of_sum(row, self.laws) for row in self.mixing[:count] / self.units]
        each = bonferroni(beta, sum(law is not None for law, _ in found))
        return [0.0 if law is None else weight * law.quantile(each) for law, weight in found]

    def box(self, beta: float, *, squares: bool = True) -> tuple[float, float, float, float]:
        """Bounds that hold jointly with probability 1 - beta, whatever the rows.

        Bonferroni's inequality over the noises on size, sum and (if requested) squares.
        """
        size, total, *rest = self._reaches(beta, 3 if squares else 2)
        least = float(np.ceil(self.observed[0] - size - 1e-9))
        most = min(max(self.observed[0] + size, 1.0), self.most)
        if least < 1:
            return -1.0, 1.0, 1.0, 0.0
        least = min(least, most)
        read = np.clip(self.observed[1], -most, most)  # as the nearest sum that the rows can have
        sums = read + np.array([-total, total])
        ratios = np.concatenate([sums / least, sums / most])
        low, high = (float(np.clip(end, -1, 1)) for end in (ratios.min(), ratios.max()))
        nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        bound = (self.observed[2] + rest[0]) / least if rest else 1.0
        return low, high, float(np.clip(bound, nearest**2, 1.0)) - nearest**2, least
