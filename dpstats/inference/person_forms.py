"""Sums of squares over persons: sampling variances from noisy products of their totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.errors import NotMeasuredError
from dpstats.families.persons import PersonProducts
from dpstats.inference.simulation import draw_evenly

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers
    from dpstats.measured.view import ReleaseView

MOST_NOISE = 0.4  # of the bound: with more, products of totals say less than the bound does


def measured_totals(release: ReleaseView, block: PersonProducts) -> Answers | None:
    """The noisy products of person totals; None where the plan did not ask for them."""
    try:
        return release.answers(block)
    except NotMeasuredError:
        return None


def small_sample(n: Floats | float, k: float, p: int) -> Floats:
    """Factor of a covariance from sums over persons: G / (G - 1) (n - 1) / (n - p).

    As of statsmodels' cluster covariance, for p parameters, n rows and G = n / k persons: the
    fewest that there can be if a person has at most k rows (eq. factor-of-persons of
    docs/explanation/inference/persons.md).
    """
    rows = np.maximum(n, k + 1.0)
    ratios = [(rows - 1) / np.maximum(rows - p, 1), (n - 1) / np.maximum(n - p, 1)]
    return np.asarray(rows / (rows - k) * np.maximum(*ratios))


@dataclass(frozen=True)
class PersonForms(Cached):
    """Sums over persons of the squares of combinations of their T totals.

    Combinations are arrays (T, ...). Each square is a quadratic form in the measured products.
    """

    answers: Answers  # to a block of `PersonProducts`

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        (block,) = self.answers.blocks
        assert isinstance(block, PersonProducts)
        return block.pairs

    @cached_property
    def _sums(self) -> Floats:
        """(d,) noisy products, in unit scale."""
        return np.asarray(self.answers.sums / self.answers.bounds)

    @cached_property
    def products(self) -> Floats:
        """(T, T) noisy sums over persons of products of two totals, in unit scale."""
        i, j = self._pairs
        products = np.zeros((int(i.max()) + 1,) * 2)
        products[i, j] = products[j, i] = self._sums
        return products

    def _weights(self, along: Floats) -> Floats:
        """Weights (..., d) of the products in the squares."""
        i, j = self._pairs
        return np.asarray((along[i] * along[j]).T * np.where(i == j, 1.0, 2.0))

    def squares(self, along: Floats) -> Floats:
        """Noisy sums (...)."""
        return np.asarray(self._weights(along) @ self._sums)

    def noise_sd(self, along: Floats) -> Floats:
        """Standard deviations (...) of their noise."""
        variances = self.answers.noise_variances * self.answers.n**2
        return np.asarray(np.sqrt(self._weights(along) ** 2 @ variances))

    def less_noise(self, along: Floats, rng: np.random.Generator) -> Floats:
        """Draws (m,) of a sum without its noise, for as many draws (T, m) of the combination."""
        weights = self._weights(along)
        total = np.zeros(len(weights))
        for f in np.flatnonzero(weights.any(axis=0)).tolist():
            noise = draw_evenly(self.answers.law(f), len(weights), rng) / self.answers.bounds[f]
            total += weights[:, f] * (self._sums[f] - noise)
        return total
