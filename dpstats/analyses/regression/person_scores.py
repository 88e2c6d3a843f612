"""Covariances of the scores of persons in a regression, from noisy products of person totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.families.persons.moments import PersonMoments

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers


@dataclass(frozen=True)
class PersonScores:
    """Sums over persons of products of their scores, the totals of x (y - x'b).

    At any b a score is a combination of the person's totals of products of a regressor's feature
    and any other one. The same interface as `FourthMoments`, of which it is the counterpart.

    Attributes
    ----------
    answers : Answers
        To a block of `PersonMoments`.
    total : (q, q) int64
        Which of the T totals the product of two features is; -1 for a known zero, or no use.
    n : float
        Number of rows.
    k : int
        The most rows of one person.
    """

    answers: Answers
    total: NDArray[np.int64]
    n: float
    k: int

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        (block,) = self.answers.blocks
        assert isinstance(block, PersonMoments)
        return block.pairs

    @cached_property
    def _products(self) -> Floats:
        """(T, T) noisy sums over persons, in unit scale."""
        i, j = self._pairs
        found = np.zeros((int(i.max()) + 1,) * 2)
        found[i, j] = found[j, i] = self.answers.sums / self.answers.bounds
        return found

    def _along(self, residual: Floats) -> Floats:
        """(q, T): every feature times the residual, a combination (q,) of the features."""
        found = np.zeros((len(self.total), len(self._products)))
        for row, places in zip(found, self.total, strict=True):
            used = places >= 0
            np.add.at(row, places[used], residual[used])
        return found

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy sum over persons of (total of f u'f)(total of f u'f)', over n."""
        along = self._along(residual)
        return np.asarray(along @ self._products @ along.T / self.n)

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(m,) standard deviations of the noise on scores (m, q) of that on either side."""
        along = scores @ self._along(residual)
        i, j = self._pairs
        weights = along[:, i] * along[:, j] * np.where(i == j, 1, 2) / self.answers.bounds
        variances = weights**2 @ np.array([self.answers.law(f).variance for f in range(len(i))])
        return np.asarray(np.sqrt(variances) / self.n)

    def factor(self, coefficients: int) -> float:
        """For small samples: G / (G - 1) (n - 1) / (n - p), with G = n / k, the fewest persons."""
        n = max(self.n, self.k + 1.0)
        return n / (n - self.k) * (n - 1) / max(n - coefficients, 1.0)
