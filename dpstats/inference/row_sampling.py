"""How the first and second moments of independent rows vary, told from a fitted density."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpstats.families.block import Floats

_LEAST_POINTS = 50  # of equal weight, for a fourth moment within about a fifth
_LARGEST_PRODUCT = 3 * 10**9


@dataclass(frozen=True)
class RowSampling:
    """The sampling error of mean products of p numbers, approximately normal.

    Its covariance needs fourth moments, which are not measured: those of the release's fitted
    density, moved linearly to the noisy mean and covariance, or those of normal rows.

    Attributes
    ----------
    n : int
        Number of rows.
    mean, covariance : (p,) and (p, p) float64
        Of the rows, noisy.
    points, weights : (m, p) and (m,) float64
        The fitted density.
    """

    n: int
    mean: Floats
    covariance: Floats
    points: Floats
    weights: Floats

    @property
    def normal_theory(self) -> bool:
        """Whether the fitted density has too few points to tell how rows vary.

        The minimax fit has at most one point more than there are functions.
        """
        p = len(self.mean)
        effective = 1 / float(np.sum(self.weights**2))
        points = int(np.sum(self.weights > 0.01 / len(self.weights)))
        return effective < _LEAST_POINTS or points < 2 + p * (p + 3)

    def draw(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, p + 1, p + 1) of the error of the moment matrix, the constant first."""
        if self.normal_theory:
            return self._normal(size, rng)
        i, j = np.triu_indices(len(self.mean) + 1)
        i, j = i[1:], j[1:]  # without the constant
        points, weights = self._thinned(len(i), rng)
        points = self._moved(points, weights)
        rows = np.column_stack([np.ones(len(points)), points])
        products = rows[:, i] * rows[:, j]
        products -= weights @ products
        spectrum, vectors = np.linalg.eigh((products.T * weights) @ products / self.n)
        root = vectors * np.sqrt(np.maximum(spectrum, 0))
        drawn = np.zeros((size, len(self.mean) + 1, len(self.mean) + 1))
        drawn[:, i, j] = drawn[:, j, i] = rng.standard_normal((size, len(i))) @ root.T
        return drawn

    def _moved(self, points: Floats, weights: Floats) -> Floats:
        """The density with the noisy mean and covariance, by the nearest linear map.

        A fit to very noisy answers is drawn towards its reference: only its shape is used.
        """
        apart = points - weights @ points
        root, inverse = _roots((apart.T * weights) @ apart)
        middle, _ = _roots(root @ self.covariance @ root)
        return np.asarray(self.mean + apart @ (inverse @ middle @ inverse))

    def _thinned(self, functions: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The density, or a sample of it where all its points would take minutes."""
        used = self.weights > 0
        points, weights = self.points[used], self.weights[used] / self.weights[used].sum()
        most = max(2_000, _LARGEST_PRODUCT // functions**2)
        if len(points) <= most:
            return points, weights
        return points[rng.choice(len(points), most, p=weights)], np.full(most, 1 / most)

    def _normal(self, size: int, rng: np.random.Generator) -> Floats:
        """Normal rows: their mean and covariance vary independently."""
        p = len(self.mean)
        root, _ = _roots(self.covariance)
        square = rng.standard_normal((size, p, p)) / np.sqrt(2)
        shift = rng.standard_normal((size, p)) @ root
        drawn = np.zeros((size, p + 1, p + 1))
        drawn[:, 0, 1:] = drawn[:, 1:, 0] = shift
        drawn[:, 1:, 1:] = root @ (square + square.swapaxes(1, 2)) @ root
        drawn[:, 1:, 1:] += shift[:, :, np.newaxis] * self.mean
        drawn[:, 1:, 1:] += shift[:, np.newaxis, :] * self.mean[:, np.newaxis]
        return np.asarray(drawn / np.sqrt(self.n))


def _roots(matrix: Floats) -> tuple[Floats, Floats]:
    """Square root of the positive part of a symmetric matrix, and its pseudo-inverse."""
    values, vectors = np.linalg.eigh(matrix)
    root = np.sqrt(np.maximum(values, 0))
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 1e-6)
    return (vectors * root) @ vectors.T, (vectors * inverse) @ vectors.T
