"""Departures of noisy counts from given probabilities: their law, their test and their size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.tables.likelihood_ratio import (
    average_likelihood_ratio,
    laplace_mixture,
    normal_likelihood_ratio,
)
from dpstats.arrays import Floats
from dpstats.error_rates import LEAST_OF_COUNT, of_simulation
from dpstats.inference.simplex import project_to_total
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

_MIXTURE = 400  # draws of the noise variances in the statistic
_MOST_MIXED = 12  # cells; beyond it the average over draws is too inaccurate


@dataclass(frozen=True)
class Departures:
    """T - n p0 for noisy counts T of one column's cells.

    Where n is public this is X - n p0 + Z. Otherwise the measured number of rows N takes its place:
    X - n p0 + Z - p0 (N - n), which depends on the true n through sampling alone.

    Attributes
    ----------
    answers : Answers
        The d counts; last also the number of rows, where it is not public.
    p0 : (d,) float64
    """

    answers: Answers
    p0: Floats

    @property
    def of_persons(self) -> Departures:
        """Departures of persons, whose rows may depend on each other: see `Answers.of_persons`."""
        return replace(self, answers=self.answers.of_persons)

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.answers.n

    @property
    def counts(self) -> Answers:
        """The d counts alone."""
        return self.answers.subset(slice(0, len(self.p0)))

    def _reduced(self, vectors: Floats) -> Floats:
        """Departures (..., d) of counts, or changes of them by noise, and of the total."""
        d = len(self.p0)
        total = 0 if self.answers.rows.public else vectors[..., d:]
        return np.asarray(vectors[..., :d] - total * self.p0)

    @cached_property
    def observed(self) -> Floats:
        """Departures (d,) of the noisy counts."""
        level = self.n * self.p0 if self.answers.rows.public else 0.0
        return self._reduced(self.answers.sums) - level

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of the noise in them."""
        return self._reduced(self._reduced(self.answers.noise_covariance).T).T

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, d) of the noise in them."""
        return self._reduced(draw_noise(self.answers, size, rng))

    @cached_property
    def _inflation(self) -> float:
        """Effects of about a third of the total variance of sampling and noise."""
        return 0.3 * (1 + float(np.trace(self.covariance)) / self.n)

    @cached_property
    def _mixture(self) -> Floats | None:
        """Noise variances whose average is the law of the noise, if it is independent Laplace."""
        laws = [self.answers.law(f) for f in range(len(self.answers.sums))]
        if (
            not self.answers.rows.public
            or not self.answers.independent
            or all(law.gaussian for law in laws)
            or len(laws) > _MOST_MIXED
        ):
            return None
        variances = np.array([law.variance for law in laws])
        terms = np.array([getattr(law, "terms", 1) for law in laws])
        rng = calibration_generator(self.answers)  # of the statistic, drawn or observed
        return laplace_mixture(variances, _MIXTURE, rng, terms=terms)

    def statistic(self, departures: Floats) -> Floats:
        """Average likelihood ratios (R,) of departures (R, d): all directions, one size.

        The alternative multiplies the multinomial covariance. Noises that are Gaussian, correlated
        or too many for an average over draws are taken as normal.
        """
        n, p0 = self.n, self.p0
        if self._mixture is not None:
            return average_likelihood_ratio(
                departures, n * p0, np.sqrt(n) * p0, self._mixture, inflation=self._inflation
            )
        sampling = n * (np.diag(p0) - np.outer(p0, p0))
        # A small constant keeps the covariance definite where there is little noise, or where the
        # noise on the counts sums to zero; it is the same under both hypotheses.
        noise = float(np.trace(self.covariance)) / len(p0)
        ridge = self.covariance + 1e-9 * (n * np.diag(p0) + noise * np.eye(len(p0)))
        wide = (1 + self._inflation) * sampling
        return normal_likelihood_ratio(departures, sampling + ridge, wide + ridge)

    def test(self, simulations: int, rng: np.random.Generator) -> tuple[float, float]:
        """Statistic and p-value, exact by simulation under p0 where n is public.

        Otherwise the largest p-value at the ends and the middle of a confidence set of error 0.001
        for n, plus that error; the law changes slowly and in one direction with n.
        """
        rows = self.answers.rows
        observed = float(self.statistic(self.observed[np.newaxis])[0])
        beta = 0.0 if rows.public else LEAST_OF_COUNT
        noise = self.noise(simulations, rng)
        largest = 0.0
        for n in {rows.value, *rows.bounds(beta)}:
            drawn = rng.multinomial(n, self.p0, simulations) - n * self.p0 + noise
            # ties may differ by rounding; counting all of them is conservative
            extreme = np.sum(self.statistic(drawn) >= observed - 1e-9 * (1 + abs(observed)))
            largest = max(largest, of_simulation(int(extreme), simulations).item())
        return observed, min(1.0, largest + beta)


def effect_interval(
    departures: Floats,
    noise: Floats,
    n: int,
    p0: Floats,
    rng: np.random.Generator,
    *,
    alpha: float,
    bounded: bool = False,
) -> Floats:
    """Noise-aware interval for w = sqrt(sum (p - p0)^2 / p0), Cohen's effect size.

    Pearson's statistic Q of the noisy counts is inverted: with e the unit direction of the
    departure and xi the error of the counts (sampling plus noise), it is
    ``n w^2 + 2 w <e, xi> + |xi|^2 / n`` in the metric of 1 / p0, and xi is simulated. The direction
    and the sampling law are plugged in, so the interval is approximate; its coverage is checked
    by simulation.

    Where only a bound on the sampling covariance is known, Q may be smaller than its law says. It
    is at least the square of the component along e, whose lower quantile is smallest at the bound:
    the upper limit is that of the component.

    Parameters
    ----------
    departures : (d,) float64
        Noisy counts less expected ones.
    noise : (R, d) float64
        Draws from the law of the noise in them.
    n : int
    p0 : (d,) float64
    rng : numpy Generator
    alpha : float
    bounded : bool
        n multinomial rows have the largest covariance that there may be.

    Returns
    -------
    (2,) float64
        From 0 to sqrt(1 / min(p0) - 1), the largest w there is.
    """
    largest = float(np.sqrt(1 / p0.min() - 1))
    shares = project_to_total(n * p0 + departures, n) / n
    observed = float(np.sum(departures**2 / (n * p0)))
    chance = float(np.sum(np.mean(noise**2, axis=0) / (n * p0))) + len(p0) - 1
    # the smaller the excess over the null mean, the closer the sampling law is to the null
    kept = max(0.0, 1 - chance / max(observed, 1e-300))
    p = p0 + kept * (shares - p0)
    errors = rng.multinomial(n, p / p.sum(), len(noise)) - n * p + noise
    direction = shares - p0
    length = float(np.sqrt(np.sum(direction**2 / p0)))
    along = errors @ (direction / p0) / length if length > 0 else np.zeros(len(errors))
    square = np.sum(errors**2 / (n * p0), axis=1)
    # Beyond nearly all of its law at an end of w it is read as the median there, else no w is kept.
    at_ends = square, n * largest**2 + 2 * largest * along + square
    observed = float(np.clip(observed, *(np.median(drawn) for drawn in at_ends)))

    def above(w: float) -> float:
        return float(np.mean(n * w**2 + 2 * w * along + square >= observed))

    def along_above(w: float) -> float:
        return float(np.mean(n * w + along >= np.sqrt(n * observed)))

    low = _crossing(above, alpha / 2, largest)
    high = _crossing(along_above if bounded else above, 1 - alpha / 2, largest)
    return np.array([low, high])


def _crossing(share: Callable[[float], float], level: float, largest: float) -> float:
    """Least w on [0, largest] from which on a share of draws is at least a level."""
    from scipy import optimize

    level -= 1e-12  # shares have steps, and none is at the level itself
    if share(0.0) >= level:
        return 0.0
    if share(largest) < level:
        return largest
    return float(optimize.bisect(lambda w: share(w) - level, 0.0, largest, xtol=1e-14))
