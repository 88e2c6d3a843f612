"""Scores that are linear in noisy counts, with their tests and intervals [1]_.

References
----------
.. [1] C. R. Rao (1948), Large sample tests of statistical hypotheses concerning several parameters
   with applications to problems of estimation. Proc. Camb. Phil. Soc. 44, 50-57.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import linalg, optimize, special

from dpstats.analyses.regression.score import DRAWS, Score, parts_of, solved
from dpstats.arrays import Floats
from dpstats.inference.joint_coverage import independent, joint_test, root_of
from dpstats.inference.mixture_tails import MixtureTails

_ROUNDING = 1e-7  # standard deviations of the sampling error
_LEAST_TAIL = 1e-300  # has a normal deviate


@dataclass(frozen=True, eq=False)
class LinearScore(Score):
    """Score of p coefficients that is linear in m noisy counts, at fixed coefficients."""

    noise: Floats = field(kw_only=True)  # (m, m) covariance of the noise on the counts
    # The Laplace part of the noise: weights (k, m) on k independent noises of variance one, and the
    # number of equal Laplace noises (k,) that each of these is a sum of.
    laplace: Floats = field(kw_only=True, default_factory=lambda: np.zeros((0, 0)))
    terms: Floats = field(kw_only=True, default_factory=lambda: np.zeros(0))
    seed: int = field(kw_only=True, default=0)  # of the draws of these noises in a joint test

    @property
    @abstractmethod
    def _sums(self) -> Floats:
        """(m,) noisy counts."""

    @abstractmethod
    def _entries(self, b: Floats) -> Floats:
        """(m, p): U(b) as a combination of the counts."""

    @abstractmethod
    def _sampling(self, b: Floats) -> Floats:
        """(p, p) covariance of U(b) without privacy."""

    @abstractmethod
    def _influences(self, combinations: Floats) -> Floats:
        """(p, k) effect of the score on combinations (k, p) of the estimate, to first order.

        A LinAlgError where noise hides whether the derivative of the score is definite.
        """

    def misfit(self, b: Floats, along: Floats) -> tuple[float, float]:
        """Bounds on the mean of along'U(b) at the true b; here zero."""
        return 0.0, 0.0

    def _inside(self, b: Floats, along: Floats) -> float:
        """Variance of along'U(b) from what the counts do not tell of the rows; here none."""
        return 0.0

    def score(self, b: Floats) -> Floats:
        """(p,) U(b)."""
        return np.asarray(self._entries(b).T @ self._sums)

    def noise_covariance(self, b: Floats) -> Floats:
        """(p, p) of U(b), of the privacy noise alone."""
        entries = self._entries(b)
        return np.asarray(entries.T @ self.noise @ entries)

    @cached_property
    def params(self) -> Floats | None:
        """(p,) the solution of U(b) = 0; None without one."""
        return self._find_root(np.zeros(self.x.shape[1]))

    @cached_property
    def _covariances_of_score(self) -> Floats:
        """(2, p, p) of the score at the estimate, from sampling and from the noise."""
        return np.array([self._sampling(self._estimate), self.noise_covariance(self._estimate)])

    def covariances(self, combinations: Floats) -> Floats:
        """(2, k, k) of combinations (k, p), from sampling and noise; infinite if not known."""
        try:
            along = self._influences(combinations)
        except np.linalg.LinAlgError:
            return np.full((2, len(combinations), len(combinations)), np.inf)
        return np.asarray(along.T @ self._covariances_of_score @ along)

    def _deviate_of(self, distance: float, b: Floats, along: Floats, rest: float) -> float:
        """The normal deviate with the tail of an error along'U(b), `rest` the variance of its rows.

        With Laplace noise on few cells that tail is heavier than the normal one (`MixtureTails`).
        """
        weights = self._entries(b) @ along
        total = float(weights @ self.noise @ weights) + rest
        if not len(self.terms):
            return float(distance / np.sqrt(total))
        laplace = (self.laplace @ weights) ** 2 / total
        normal = max(1 - float(laplace.sum()), rest / total)
        law = MixtureTails(np.array([normal]), laplace[np.newaxis, :], self.terms)
        tail = float(law.tail(np.array([distance / np.sqrt(total)]))[0])
        return float(-np.sign(distance) * special.ndtri(max(tail, _LEAST_TAIL) / 2))

    def deviate(self, combination: Floats, value: float, *, sampled: bool) -> float | None:
        """See `Score.deviate`; zero where the misfit alone could explain it.

        The value in the table has no sampling variance but that inside the cells.
        """
        b = self._under(combination[np.newaxis, :], np.array([value]))
        if b is None:
            return None
        information = self.information(b)
        try:
            along = solved(information, combination)
        except linalg.LinAlgError:
            return None
        spread = float(along @ self._sampling(b) @ along)
        rest = spread if sampled else max(self._inside(b, along), _ROUNDING**2 * spread)
        distance = float(along @ self.score(b))
        low, high = self.misfit(b, along)
        return self._deviate_of(distance - float(np.clip(distance, low, high)), b, along, rest)

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float, float, float]:
        """F test of the score under the hypothesis, or on the way to it, as in `pvalue`."""
        inverse = np.linalg.inv(self._information_at_estimate)
        covariance = np.asarray(inverse @ self._covariances_of_score.sum(axis=0) @ inverse)
        reduced, difference = independent(combinations, values, self._estimate, covariance)
        found = [(0.0, 1.0, float(len(reduced)), float(self.df))]
        for part in parts_of(float(np.linalg.norm(difference))) if len(reduced) else ():
            b = self._under(reduced, part * difference + reduced @ self._estimate)
            if b is None:
                break
            found.append(self._joint_test(reduced, b))
        return min(found, key=lambda test: (test[1], -test[0]))

    def _joint_test(self, combinations: Floats, b: Floats) -> tuple[float, float, float, float]:
        """F test of combinations (k, p) at coefficients b that they allow.

        The misfit has the value in its bounds that is most favourable to the hypothesis.
        """
        try:
            along = solved(self.information(b), combinations.T)
        except linalg.LinAlgError:
            return 0.0, 1.0, float(len(combinations)), self.df
        weights = self._entries(b) @ along
        scaled = self.laplace @ weights if len(self.terms) else np.zeros((1, len(combinations)))
        laplace = scaled.T @ scaled
        normal = along.T @ self._sampling(b) @ along + weights.T @ self.noise @ weights - laplace
        score = along.T @ self.score(b)
        low, high = np.array([self.misfit(b, one) for one in along.T]).T
        half = root_of(np.asarray(np.linalg.pinv(normal + laplace, hermitian=True)))
        explained = low
        if np.any(low < high):  # combinations have about unit variance
            ends = low - _ROUNDING, high + _ROUNDING
            explained = optimize.lsq_linear(half, half @ score, ends).x
        rng = np.random.default_rng(self.seed)
        return joint_test(
            score - explained, self.df, normal, laplace, lambda: self._draws(rng) @ scaled, rng
        )

    def _draws(self, rng: np.random.Generator) -> Floats:
        """(DRAWS, k) of Laplace noises of unit variance."""
        parts = rng.standard_gamma(self.terms, (2, DRAWS, len(self.terms)))
        return np.asarray((parts[0] - parts[1]) / np.sqrt(2 * self.terms))

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """All values that are not rejected at level alpha, as an interval around the estimate."""
        centre = float(combination @ self._estimate)
        along = solved(self._information_at_estimate, combination)
        deviation = float(np.sqrt(along @ self._covariances_of_score.sum(axis=0) @ along))
        return self._rejected_beyond(
            combination, alpha, (centre, centre), deviation, sampled=sampled
        )
