"""The distribution function of a number at its edges: limits at each edge, and bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from dpstats.analyses.counts.binomial import within_counts
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative, Target
from dpstats.error_rates import splits_of_band
from dpstats.inference.intervals import Ends, Intervals
from dpstats.inference.simulation import LEAST_SIMULATED, calibration_generator, draw_noise
from dpstats.measured.answers import Answers, joint_noise_quantiles

_DRAWS = 3_999  # of a maximal deviation; or as many as put
_TAIL = 4  # of them beyond the bound, which is an order statistic

# Half the width of a band by answers, an error and a number of rows.
_Width: TypeAlias = Callable[[Answers, float, int, np.random.Generator], float]


@dataclass(frozen=True)
class DistributionIntervals(Intervals, Cached):
    """Limits of a distribution function F at d edges; all together, those of a band."""

    ranges: ClassVar[tuple[float, float]] = (0.0, 1.0)

    answers: Answers  # rows below each edge
    shares: Intervals  # of these rows, one at each edge
    whole: Answers | None = None  # the same and then the rows of a group, which are not all
    rng: np.random.Generator | int = field(default=0, compare=False)  # of simulated bands

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def least_pvalue(self) -> float:
        """Error that a p-value spends on the number of rows."""
        return self.shares.least_pvalue

    @property
    def estimate(self) -> Floats:
        """(d,) noisy F at the edges."""
        return self.answers.means

    @cached_property
    def fitted(self) -> Floats:
        """(d + 2,) nearest increasing distribution function, from 0 to 1."""
        from scipy import optimize

        increasing = optimize.isotonic_regression(self.estimate).x
        return np.concatenate([[0.0], np.clip(increasing, 0, 1), [1.0]])

    def variances(self, weights: Floats, probability: float) -> tuple[float, float]:
        """Sampling and privacy variance of a combination (d + 2,) of F, whose value is given."""
        mass, answers = self.fitted, self.answers
        covariance = np.minimum.outer(mass, mass) - np.outer(mass, mass)
        sampling = float(weights @ covariance @ weights / answers.of_persons.n)
        if self.whole is None:
            noise = answers.noise_less_rows(weights[1:-1], probability)
        else:
            every = np.append(weights[1:-1], -probability)
            noise = float(every @ self.whole.noise_covariance @ every)
        return sampling, noise / answers.n**2

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, computed once."""
        return self._once((alpha, target), lambda: self.shares.noise_aware(alpha, target))

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, computed once."""
        return self._once(
            ("certified", alpha, target), lambda: self.shares.certified(alpha, target)
        )

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, of a band by Bonferroni's inequality."""
        return _increasing(*super().joint_noise_aware(alpha, target))

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, of a band by Bonferroni's inequality."""
        return _increasing(*super().joint_certified(alpha, target))

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """P-values (d,) that F at each edge equals `value`."""
        return self.shares.pvalues(value, alternative)

    def pvalue_at(
        self, edge: int, value: float, alternative: Alternative, *, of_limit: bool
    ) -> float:
        """One-sided p-value at one edge; if asked for, dual to a limit of a two-sided interval."""
        own = self.shares.subset(slice(edge, edge + 1))
        return float((own.pvalues_of_limit if of_limit else own.pvalues)(value, alternative)[0])

    def subset(self, chosen: slice) -> Intervals:
        """Limits at some of the edges."""
        return self.shares.subset(chosen)


@dataclass(frozen=True)
class DistributionOfAllRows(DistributionIntervals):
    """Limits of the distribution function of all rows; together, of a band of equal width.

    The band is noise-aware by the simulated quantile of the largest deviation of sampling (at the
    fitted F, so approximate) plus noise, and certified by the bound of Dvoretzky, Kiefer and
    Wolfowitz plus the simulated quantile of the largest noise. See `QuantileResult.distribution`.
    """

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, of a band; by bounds if an error is too small to simulate."""
        if target == "table":
            return self._band(self.answers, alpha, _noise_width)
        return self._band(self.answers.of_persons, alpha, self._sampled_width)

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits, two (d,) arrays, of a band."""
        width = _noise_width if target == "table" else _bounded_width
        return self._band(self.answers.without_totals, alpha, width)

    def _band(self, answers: Answers, alpha: float, width: _Width) -> Ends:
        rng = self.rng
        if not isinstance(rng, np.random.Generator):
            rng = calibration_generator(self.answers, rng)
        of_rows = answers.rows.spent(alpha)
        fewest, most = answers.rows.bounds(of_rows)
        reach = width(answers, alpha - of_rows, fewest, rng)
        sums = within_counts(answers.sums, answers.n)
        low, high = _increasing(sums / most - reach, sums / fewest + reach)
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def _sampled_width(
        self, answers: Answers, alpha: float, n: int, rng: np.random.Generator
    ) -> float:
        if alpha < LEAST_SIMULATED:
            return _bounded_width(answers, alpha, n, rng)
        cells = np.diff(self.fitted)

        def draw(size: int) -> Floats:
            noise = draw_noise(answers, size, rng) / n
            drawn = rng.multinomial(n, cells / cells.sum(), size=size).cumsum(axis=1)[:, :-1]
            return np.asarray(np.abs(drawn / n - self.fitted[1:-1] + noise).max(axis=1))

        return _simulated(draw, alpha)


def _increasing(low: Floats, high: Floats) -> Ends:
    """Running maxima and minima of joint limits (d,), which hold for what increases."""
    return np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]


def _bounded_width(answers: Answers, alpha: float, n: int, rng: np.random.Generator) -> float:
    """For the population, by bounds on sampling and on the noise and Bonferroni's inequality."""

    def width(beta: float) -> float:  # of public numbers only
        noise = float(joint_noise_quantiles(answers, beta).max()) / n
        return _massart(n, alpha - beta) + noise

    beta = 0.0 if answers.bound_only else float(min(splits_of_band(alpha), key=width))
    return _massart(n, alpha - beta) + _noise_width(answers, beta, n, rng)


def _noise_width(answers: Answers, beta: float, n: int, rng: np.random.Generator) -> float:
    """For the private table: the quantile of the largest noise."""
    if answers.bound_only or beta < LEAST_SIMULATED:
        return float(joint_noise_quantiles(answers, beta).max()) / n

    def draw(size: int) -> Floats:
        return np.asarray(np.abs(draw_noise(answers, size, rng) / n).max(axis=1))

    return _simulated(draw, beta)


def _massart(n: int, error: float) -> float:
    """Bound on the largest deviation of n rows' distribution function, with error `error`."""
    return float(np.sqrt(np.log(2 / error) / (2 * n)))


def _simulated(draw: Callable[[int], Floats], error: float) -> float:
    """Order statistic of draws that one more exceeds with probability at most `error`."""
    size = max(_DRAWS, int(np.ceil(_TAIL / error)))
    # Some at a time, as each has an entry per edge; a smaller error has the same ones, and more.
    draws = np.concatenate([draw(_DRAWS) for _ in range(0, size, _DRAWS)])[:size]
    rank = int(np.ceil((1 - error) * (len(draws) + 1) - 1e-9))
    return float(np.sort(draws)[rank - 1])
