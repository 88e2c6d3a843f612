"""Cramer's V from a noisy table: the noise's part subtracted, the interval by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.independence_score import project_to_total

_STEPS = 41


@dataclass(frozen=True)
class Association:
    """How residuals from independence vary about a fitted table, and Cramer's V.

    Attributes
    ----------
    expected : (K, R, C) float64
        Expected counts under independence within strata.
    n : int
    covariance : (d, d) float64
        Covariance of the noise on the cells.
    """

    expected: Floats
    n: int
    covariance: Floats

    @cached_property
    def _shares(self) -> tuple[Floats, Floats]:
        """Margins in each stratum: (K, R) and (K, C)."""
        size = self.expected.sum(axis=(1, 2))[:, np.newaxis]
        return self.expected.sum(axis=2) / size, self.expected.sum(axis=1) / size

    @cached_property
    def residual_variance(self) -> Floats:
        """Sampling variance (d,) of the residuals, e (1 - r) (1 - c)."""
        r, c = self._shares
        return (self.expected * (1 - r)[:, :, np.newaxis] * (1 - c)[:, np.newaxis]).ravel()

    @cached_property
    def noise_variance(self) -> Floats:
        """Variance (d,) that the noise adds to them: of (I - r 1') Z (I - 1 c')."""
        r, c = self._shares
        d = self.covariance.shape[0]
        noise = self._interactions(self.covariance.reshape(*self.expected.shape, d), r, c)
        noise = noise.reshape(d, d).T.reshape(*self.expected.shape, d)
        return np.diag(self._interactions(noise, r, c).reshape(d, d)).copy()

    @staticmethod
    def _interactions(noise: Floats, r: Floats, c: Floats) -> Floats:
        """Residuals (K, R, C, m) that m changes of the counts make."""
        noise = noise - r[:, :, np.newaxis, np.newaxis] * noise.sum(axis=1, keepdims=True)
        return np.asarray(
            noise - c[:, np.newaxis, :, np.newaxis] * noise.sum(axis=2, keepdims=True)
        )

    def phi_squared(self, tables: Floats, expected: Floats) -> Floats:
        """Pearson's statistic over n of noisy tables (..., K, R, C), less the noise's mean part."""
        noise = self.noise_variance.reshape(self.expected.shape)
        parts = ((tables - expected) ** 2 - noise) / expected
        return np.asarray(parts.sum(axis=(-3, -2, -1)) / self.n)

    def cramers_v(
        self,
        observed: Floats,
        fit: Callable[[Floats], Floats],
        noise: Floats,
        alpha: float,
        rng: np.random.Generator,
    ) -> tuple[float, tuple[float, float]]:
        """Estimate and approximate interval.

        The estimate's law is simulated at tables on the line from the fitted product through the
        projected noisy table, and the interval holds the V at which the estimate is not in a tail
        of alpha / 2: a parametric bootstrap that is also right at the boundary V = 0, where
        percentiles are not.

        Parameters
        ----------
        observed : (K, R, C) float64
        fit : function
            Expected counts of noisy tables (..., K, R, C).
        noise : (draws, K, R, C) float64
        alpha : float
        rng : numpy Generator

        Returns
        -------
        estimate : float
            In [0, 1]; zero when the noise explains all of Pearson's statistic.
        interval : (float, float)
        """
        levels = min(self.expected.shape[1:]) - 1
        found = float(self.phi_squared(observed, fit(observed)))
        estimate = float(np.sqrt(np.clip(found / levels, 0, 1)))
        direction = self._direction(observed)
        length = np.sqrt(np.sum(direction**2 / self.expected) / self.n / levels)
        falling = direction < 0
        furthest = float(np.min(-self.expected[falling] / direction[falling]))
        steps = furthest * np.linspace(0, 1, _STEPS) ** 2  # finer near zero
        larger, smaller = np.zeros(_STEPS), np.zeros(_STEPS)
        for i, step in enumerate(steps):
            p = np.maximum(self.expected + step * direction, 0).ravel()
            tables = rng.multinomial(self.n, p / p.sum(), len(noise))
            noisy = tables.reshape(noise.shape) + noise
            drawn = self.phi_squared(noisy, fit(noisy))
            larger[i], smaller[i] = np.mean(drawn >= found), np.mean(drawn <= found)
        values = steps * length
        # Tail probabilities are monotone in V; what simulation leaves is smoothed away.
        larger = np.maximum.accumulate(larger)
        smaller = np.minimum.accumulate(smaller)
        low = 0.0 if larger[0] > alpha / 2 else float(np.interp(alpha / 2, larger, values))
        high = 1.0
        if smaller[-1] <= alpha / 2:
            high = float(np.interp(-alpha / 2, -smaller, values))
        return estimate, (min(low, estimate), min(max(high, estimate), 1.0))

    def _direction(self, observed: Floats) -> Floats:
        """Interactions of the projected table, or of its first cell if it has none."""
        shape = self.expected.shape
        r, c = self._shares
        table = project_to_total(observed.ravel(), self.n).reshape(*shape, 1)
        direction = self._interactions(table - self.expected[..., np.newaxis], r, c)[..., 0]
        if np.abs(direction).max() < 1e-6:
            first = np.zeros((*shape, 1))
            first[:, 0, 0] = 1
            direction = self._interactions(first, r, c)[..., 0]
        return np.asarray(direction)
