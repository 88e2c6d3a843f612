"""Noisy mean products of four features, for errors whose variance depends on the regressors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.confidence_law import DRAWS
from dpstats.inference.moment_matrix import ONE, ZERO
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

FOURTH = 3  # a purpose of draws, distinct from those of the noise on second moments


@dataclass(frozen=True)
class FourthMoments:
    """Mean products of two regressors and of two regressors or responses, measured with noise.

    Attributes
    ----------
    answers : Answers
        The d distinct measured functions.
    pair : (q, q) int64
        Which of the P products of two features each is; -1 for a known zero.
    place : (P, P) int64
        Which function the product of a pair of regressors' features and of any pair is; -1 for a
        known zero (or a product of no use), -2 for a known one.
    """

    answers: Answers
    pair: NDArray[np.int64]
    place: NDArray[np.int64]

    @cached_property
    def _values(self) -> Floats:
        """(P, P)."""
        known = {ZERO: 0.0, ONE: 1.0}
        padded = np.concatenate([self.answers.means, [known[ONE], known[ZERO]]])
        return np.asarray(padded[self.place])

    def _pairs(self, one: Floats, other: Floats) -> Floats:
        """(P,) weights of the pairs in the product of two combinations (q,) of the features."""
        used = self.pair >= 0
        products = np.outer(one, other)[used]
        weights = np.bincount(self.pair[used], products, minlength=len(self.place))
        return np.asarray(weights, dtype=np.float64)

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy mean of f f' (u'f)^2 for features f of regressors, u = `residual` (q,)."""
        by_pair = np.append(self._values @ self._pairs(residual, residual), 0.0)
        return np.asarray(by_pair[self.pair])

    def _weights(self, scores: Floats, residual: Floats) -> Floats:
        """(k, d) of the noise on the sums in that on the mean of (s'f)^2 (u'f)^2, scores (k, q)."""
        right = self._pairs(residual, residual)
        measured = self.place >= 0
        unit = self.answers.n * self.answers.bounds
        return np.array([
            np.bincount(
                self.place[measured], np.outer(self._pairs(s, s), right)[measured],
                minlength=len(unit),
            )
            for s in scores
        ]) / unit  # fmt: skip

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(k,) standard deviations of the noise on the mean of (s'f)^2 (u'f)^2, scores (k, q)."""
        weights, covariance = self._weights(scores, residual), self.answers.noise_covariance
        variances = np.einsum("ij,ij->i", weights @ covariance, weights)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))

    @cached_property
    def _drawn(self) -> Floats:
        """(DRAWS / 4, d) draws of the noise on the sums."""
        rng = calibration_generator(self.answers, FOURTH)
        return draw_noise(self.answers, DRAWS // 4, rng)

    def noise(self, score: Floats, residual: Floats) -> Floats:
        """(DRAWS,) draws of the noise on the mean of (s'f)^2 (u'f)^2, for one score (q,).

        Each with its opposite, twice: halves are uncorrelated with draws and their opposites.
        """
        drawn = self._drawn @ self._weights(score[np.newaxis], residual)[0]
        return np.concatenate([drawn, -drawn, drawn, -drawn])
