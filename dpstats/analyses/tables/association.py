"""Cramer's V from a noisy table: corrected for the bias of the noise, interval by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Floats
from dpstats.inference.simplex import project_to_total

_STEPS = 31


@dataclass(frozen=True)
class Association:
    """Law of the residuals from independence about a fitted table, and Cramer's V.

    Attributes
    ----------
    expected : (K, R, C) float64
        Expected counts under independence within strata.
    n : int
    covariance : (d, d) float64
        Covariance of the noise on the cells.
    bounded : bool
        n multinomial rows have the largest sampling covariance that there may be. The statistic may
        then be smaller than its law says, but not than the square of its component along the
        direction of the table: see `effect_size.effect_interval`.
    """

    expected: Floats
    n: int
    covariance: Floats
    bounded: bool = False

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
        """Residuals (K, R, C, m) due to m changes of the counts."""
        noise = noise - r[:, :, np.newaxis, np.newaxis] * noise.sum(axis=1, keepdims=True)
        return np.asarray(
            noise - c[:, np.newaxis, :, np.newaxis] * noise.sum(axis=2, keepdims=True)
        )

    def phi_squared(self, tables: Floats, expected: Floats) -> Floats:
        """Pearson's statistic over n of noisy tables (..., K, R, C), less its mean due to noise."""
        noise = self.noise_variance.reshape(self.expected.shape)
        terms = ((tables - expected) ** 2 - noise) / expected
        return np.asarray(terms.sum(axis=(-3, -2, -1)) / self.n)

    def cramers_v(self, observed: Floats) -> float:
        """Estimate in [0, 1] from noisy counts (K, R, C) whose fit is `expected`.

        Zero when the noise explains all of Pearson's statistic.
        """
        found = float(self.phi_squared(observed, self.expected))
        return float(np.sqrt(np.clip(found / (min(self.expected.shape[1:]) - 1), 0, 1)))

    def interval(
        self,
        observed: Floats,
        fit: Callable[[Floats], Floats],
        noise: Floats,
        alpha: float,
        rng: np.random.Generator,
    ) -> tuple[float, float]:
        """Approximate interval for Cramer's V.

        The estimate's law is simulated at tables on the line from the fitted product through the
        projected noisy table and beyond, with negative counts set to zero. The interval holds the V
        at which the estimate is not in a tail of alpha / 2: a parametric bootstrap that is also
        valid at the boundary V = 0, where percentiles are not.

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
        low, high : float
        """
        levels = min(self.expected.shape[1:]) - 1
        found = float(self.phi_squared(observed, self.expected))
        estimate = self.cramers_v(observed)
        direction = self._direction(observed)
        plain = self.noise_variance.reshape(self.expected.shape) / self.expected
        root = np.sqrt(max(self.n * found + float(plain.sum()), 0.0))  # of Pearson's statistic
        falling = direction < 0
        edge = float(np.min(-self.expected[falling] / direction[falling]))
        steps = edge * np.concatenate([np.linspace(0, 1, _STEPS) ** 2, np.geomspace(1.2, 1e3, 12)])
        values, kept, drawn = np.zeros(len(steps)), np.ones(len(steps)), []
        for i, step in enumerate(steps):
            p = np.maximum(self.expected + step * direction, 0)
            p /= p.sum()
            values[i] = np.sqrt(_phi_squared(p) / levels)
            tables = rng.multinomial(self.n, p.ravel(), len(noise))
            noisy = tables.reshape(noise.shape) + noise
            fitted = fit(noisy)
            drawn.append(self.phi_squared(noisy, fitted))
            if self.bounded:
                kept[i] = np.mean(self._along(direction, noisy, fitted) <= root)
        # Beyond nearly all of its law at an end it is read as the median there, else no V is kept.
        found = float(np.clip(found, np.median(drawn[0]), np.median(drawn[-1])))
        larger, smaller = np.mean(np.array(drawn) >= found, axis=1), kept
        if not self.bounded:
            smaller = np.mean(np.array(drawn) <= found, axis=1)
        # Tail probabilities are monotone in V; remove the error of the simulation.
        values = np.maximum.accumulate(values)
        larger = np.maximum.accumulate(larger)
        smaller = np.minimum.accumulate(smaller)
        low = 0.0 if larger[0] > alpha / 2 else float(np.interp(alpha / 2, larger, values))
        high = 1.0
        if smaller[-1] <= alpha / 2:
            high = float(np.interp(-alpha / 2, -smaller, values))
        return min(low, estimate), min(max(high, estimate), 1.0)

    def _along(self, direction: Floats, tables: Floats, expected: Floats) -> Floats:
        """Component (...,) of the residuals along a direction, a root of Pearson's statistic."""
        weights = direction / self.expected
        inside = (tables - expected) * weights
        length = np.sqrt(np.sum(direction * weights))
        return np.asarray(inside.sum(axis=(-3, -2, -1)) / length)

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


def _phi_squared(p: Floats) -> float:
    """Pearson's statistic over n of proportions (K, R, C), summed over strata."""
    size = np.maximum(p.sum(axis=(1, 2), keepdims=True), 1e-300)
    even = p.sum(axis=2, keepdims=True) * p.sum(axis=1, keepdims=True) / size
    return float(np.sum(np.divide((p - even) ** 2, even, out=np.zeros_like(p), where=even > 0)))
