"""How the first and second moments of independent rows vary: two approximate laws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Family
from dpstats.families.moments import third_and_fourth_powers
from dpstats.families.subgroups import Subgroup

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView

SamplingLaw = Literal["kurtosis", "fitted"]

_LEAST_POINTS = 50  # of equal weight, for a fourth moment within about a fifth
_LARGEST_PRODUCT = 3 * 10**9
_SHIFT, _NOISIEST, _LARGEST = 0.4, 2.5, 10.0  # see `allowing_for_noise`
_CHUNK = 2**19  # products of points that are worked on at a time


@dataclass(frozen=True)
class RowSampling:
    """The sampling error of mean products of p numbers and signs, approximately normal.

    Its covariance needs all fourth moments, which are too many to measure. Two laws approximate it:

    kurtosis : normal theory with a kurtosis of each column's own [1]_. With y the centred rows, S
        their covariance, h_j the root of a third of column j's kurtosis and A_jk = S_jk (h_j +
        h_k)/2, E y_i y_j y_k y_l = A_ij A_kl + A_ik A_jl + A_il A_jk. The term A_ik A_jl + A_il
        A_jk is drawn exactly; of the rest, A_ij A_kl - S_ij S_kl, only the positive part is.
    fitted : the fourth moments of the release's fitted density, moved linearly to the noisy mean
        and covariance. The density also follows the columns' own third and fourth moments.

    Neither is correct for every table; intervals are the wider of those by either.

    .. [1] Y. Kano, M. Berkane and P. M. Bentler (1990), Covariance structure analysis with
       heterogeneous kurtosis parameters. Biometrika 77, 575-585.
    """

    n: int  # number of rows
    mean: Floats  # (p,) of the rows, noisy
    covariance: Floats  # (p, p) of the rows, noisy
    kurtosis: Floats  # (p,) of the columns, 3 where it is not known
    points: Floats  # (m, p) the fitted density
    weights: Floats  # (m,)
    # every column takes two values: the first law does not apply, unless the density lacks cells
    two_valued: bool = False
    cells: float = math.inf  # number of cells of the columns, if every one takes two values
    signs: tuple[int, ...] = ()  # columns that are -1 or 1: their squares do not vary

    @property
    def laws(self) -> tuple[SamplingLaw, ...]:
        """Laws that apply here, one or both.

        Products of two values have fourth moments far from normal ones where they depend on each
        other strongly: then a density with gaps is still a better guide.
        """
        if self.two_valued and np.any(self.weights):
            whole = self._dense or len(np.unique(self.points, axis=0)) >= self.cells
            return ("fitted",) if whole else ("kurtosis", "fitted")
        return ("kurtosis", "fitted") if self._dense else ("kurtosis",)

    @property
    def _dense(self) -> bool:
        """True if the fitted density has enough points for the law "fitted".

        A vertex of the minimax program has at most one point more than there are functions.
        """
        p = len(self.mean)
        effective = 1 / float(np.sum(self.weights**2)) if np.any(self.weights) else 0.0
        used = self.weights > 0.01 / len(self.weights)
        return effective >= _LEAST_POINTS and int(np.sum(used)) >= 2 + p * (p + 3)

    def draw(self, law: SamplingLaw, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, p + 1, p + 1) of the error of the moment matrix, the constant first."""
        drawn = self._fitted(size, rng) if law == "fitted" else self._by_kurtosis(size, rng)
        own = np.array(self.signs, dtype=np.int64) + 1
        drawn[:, own, own] = 0.0
        return drawn

    def _fitted(self, size: int, rng: np.random.Generator) -> Floats:
        i, j = np.triu_indices(len(self.mean) + 1)
        i, j = i[1:], j[1:]  # without the constant
        points, weights = self.moved_points(rng)
        rows = np.column_stack([np.ones(len(points)), points])
        means = ((rows.T * weights) @ rows)[i, j]
        spread = np.zeros((len(i), len(i)))
        step = max(1, _CHUNK // len(i))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            products = some[:, i] * some[:, j] - means
            products *= np.sqrt(weights[first : first + step, np.newaxis])
            spread += products.T @ products
        spectrum, vectors = np.linalg.eigh(spread / self.n)
        root = vectors * np.sqrt(np.maximum(spectrum, 0))
        drawn = np.zeros((size, len(self.mean) + 1, len(self.mean) + 1))
        drawn[:, i, j] = drawn[:, j, i] = rng.standard_normal((size, len(i))) @ root.T
        return drawn

    def moved_points(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The density with the noisy mean and covariance, by the nearest linear map.

        A fit to very noisy answers is drawn towards its reference: only its shape is used.
        Points (m, p) and their weights (m,).
        """
        points, weights = self._thinned(rng)
        centred = points - weights @ points
        root, inverse = _roots((centred.T * weights) @ centred)
        middle, _ = _roots(root @ self.covariance @ root)
        return self.mean + centred @ (inverse @ middle @ inverse), weights

    def _thinned(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The density, or a sample of it where all its points would be too slow."""
        p = len(self.mean)
        functions = p * (p + 3) // 2
        used = self.weights > 0
        points, weights = self.points[used], self.weights[used] / self.weights[used].sum()
        most = max(2_000, _LARGEST_PRODUCT // functions**2)
        if len(points) <= most:
            return points, weights
        return points[rng.choice(len(points), most, p=weights)], np.full(most, 1 / most)

    def _by_kurtosis(self, size: int, rng: np.random.Generator) -> Floats:
        """Mean and covariance vary independently, as those of symmetric rows do."""
        p = len(self.mean)
        root, _ = _roots(self.covariance)
        spread = with_kurtosis(self.covariance, self.kurtosis)
        wide, _ = _roots(spread)
        square = rng.standard_normal((size, p, p)) / np.sqrt(2)
        shift = rng.standard_normal((size, p)) @ root
        drawn = np.zeros((size, p + 1, p + 1))
        drawn[:, 0, 1:] = drawn[:, 1:, 0] = shift
        drawn[:, 1:, 1:] = wide @ (square + square.swapaxes(1, 2)) @ wide
        drawn[:, 1:, 1:] += rng.standard_normal((size, 1, 1)) * _rising(spread, self.covariance)
        drawn[:, 1:, 1:] += shift[:, :, np.newaxis] * self.mean
        drawn[:, 1:, 1:] += shift[:, np.newaxis, :] * self.mean[:, np.newaxis]
        return np.asarray(drawn / np.sqrt(self.n))


def with_kurtosis(covariance: Floats, kurtosis: Floats) -> Floats:
    """(p, p) the matrix A of the law "kurtosis", of a covariance or correlation matrix."""
    own = np.sqrt(kurtosis / 3)
    return np.asarray(covariance * (own[:, np.newaxis] + own) / 2)


def mean_powers(
    release: ReleaseView, columns: tuple[str, ...], given: Subgroup | None, n: int
) -> tuple[Floats, Floats]:
    """Noisy means of third and fourth powers, unit scale, and the variances of their noise.

    Two (p, 2) arrays, NaN and zero where nothing was measured. Of all rows or of a subgroup,
    about n.
    """
    found, noise = np.full((len(columns), 2), np.nan), np.zeros((len(columns), 2))
    block = third_and_fourth_powers(release.schema, columns, given)
    if block is not None:
        try:
            answers = release.answers(Family((block,)))
        except NotMeasuredError:
            return found, noise
        ratio = answers.n / n
        for f, term in enumerate(block.terms):
            at = columns.index(term[0][0]), len(term) - 3
            found[at], noise[at] = answers.means[f] * ratio, answers.noise_variances[f] * ratio**2
    return found, noise


def kurtosis_of(powers: Floats, mean: Floats, variances: Floats) -> Floats:
    """(p,) E y^4 over (E y^2)^2 of centred columns, from mean third and fourth powers (p, 2).

    Not more than columns in [-1, 1] can have.
    """
    third, fourth = powers.T
    square = np.maximum(variances, 1e-12)
    centred = fourth - 4 * mean * third + 6 * mean**2 * (square + mean**2) - 3 * mean**4
    most = np.maximum((1 + np.abs(mean)) ** 2 / square, 3)
    return np.asarray(np.minimum(centred / square**2, most))


def allowing_for_noise(spread: Floats, sd: Floats, rest: Floats) -> Floats:
    """Spreads to use, at least 1, for estimates with noise of standard deviation `sd`.

    An error has variance spread + rest. Coverage is concave in the spread, so an estimate that is
    right on average covers too seldom, as one that is short by 1.2 sd^2 / (spread + rest) would, to
    second order at 95%. The floor of 1 makes up for part of that. The least shift a(x), x = sd /
    (1 + rest), at which max(1, estimate + a) covers 95% on average over the noise, whatever the
    spread is from 1, was found by quadrature for normal and for Laplace noise: the power of x here
    is between the two, and .948 the least coverage, for x up to `_NOISIEST` and spreads up to half
    of `_LARGEST`. Beyond either only an estimate that exceeds twice its noise is used: one that may
    be 1 would cost normal rows too much width.
    """
    x, clear = sd / (1 + rest), spread > 2 * sd
    shifted = np.maximum(spread + _SHIFT * (1 + rest) * x**1.5, 1)
    hidden = np.where(x <= _NOISIEST, np.minimum(shifted, _LARGEST), 1.0)
    return np.where(clear, shifted, hidden)


def _rising(one: Floats, other: Floats) -> Floats:
    """M with vec(M) vec(M)' the positive part of vec(one) vec(one)' - vec(other) vec(other)'."""
    pair = np.stack([one.ravel(), other.ravel()], axis=1)
    basis, triangle = np.linalg.qr(pair)
    values, vectors = np.linalg.eigh(triangle @ np.diag([1.0, -1.0]) @ triangle.T)
    largest = basis @ vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    return np.asarray(largest.reshape(one.shape))


def _roots(matrix: Floats) -> tuple[Floats, Floats]:
    """Square root of the positive part of a symmetric matrix, and its pseudo-inverse."""
    values, vectors = np.linalg.eigh(matrix)
    root = np.sqrt(np.maximum(values, 0))
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 1e-6)
    return (vectors * root) @ vectors.T, (vectors * inverse) @ vectors.T
