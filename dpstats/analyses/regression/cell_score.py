"""A generalised linear model from the cells of a table: score equations with noise, inverted.

Few regressors, in bins: with T_cy the counts of cells c by the outcome y, N_c = T_c0 + T_c1, L_c
the sums of the distance of each number from the middle of its bin and d_c the change of x over half
a bin, the score is to second order in the width of the bins

    U(b) = sum_c x_c [T_c1 - N_c (s(e_c) + v_c) - s'(e_c) d_c'b L_c],   e_c = x_c'b,

v_c = s_2(e_c) (d_c'b)^2 / 6 for rows that are spread evenly in the bin. It is linear in the noisy
counts. Values of h'b are tested by it, the other coefficients fitted under the hypothesis [1]_. See
docs/explanation/regression/logistic-regression.md.

References
----------
.. [1] C. R. Rao (1948), Large sample tests of statistical hypotheses concerning several parameters
   with applications to problems of estimation. Proc. Camb. Phil. Soc. 44, 50-57.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, optimize, special

from dpstats.analyses.regression.score import DRAWS, Average, Score, derivatives, solved
from dpstats.arrays import Floats
from dpstats.inference.joint_coverage import independent, joint_test, root_of
from dpstats.inference.mixture_tails import MixtureTails

if TYPE_CHECKING:
    from collections.abc import Callable

_ROUNDING = 1e-7  # standard deviations of the sampling error
_LEAST_TAIL = 1e-300  # has a normal deviate
_THIRD = 1 / 8  # largest |s'''| of the logistic function


@dataclass(frozen=True, eq=False)
class CellScore(Score):
    """Noisy counts of C cells of the regressors, by a binary outcome."""

    x: Floats  # (C, p) regressors at the middle of every cell, of size about one
    slopes: Floats  # (J, C, p) their change over half a bin of each of the J numbers
    remainder: Floats  # (C, p) bounds on what slopes leave out, from squares and products
    counts: Floats  # (2, C) noisy counts of rows with the outcome 0 and 1
    offsets: Floats  # (J, C) noisy sums of the numbers' distance from the middle, in half bins
    noise: Floats  # ((2 + J) C,) * 2 covariance of the noise on all of these, in this order
    n: int  # number of rows, or its estimate
    # The Laplace part of the noise: weights (k, (2 + J) C) on k independent noises of variance one,
    # and the number of equal Laplace noises (k,) that each of these is a sum of.
    laplace: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    terms: Floats = field(default_factory=lambda: np.zeros(0))
    seed: int = 0  # of the draws of these noises in a joint test
    clustering: float = 1.0  # factor of the sampling variance: the most rows of one person

    @cached_property
    def _totals(self) -> Floats:
        """(C,) noisy counts of rows."""
        return np.asarray(self.counts.sum(axis=0))

    @cached_property
    def _rows(self) -> Floats:
        """(C,) counts of rows that are not negative and add up to n, for variances."""
        rows = np.maximum(self._totals, 0.0)
        return np.asarray(rows * self.n / max(rows.sum(), 1e-9))

    def _fit(self, b: Floats) -> tuple[Floats, Floats, Floats]:
        """(C,) chances s, derivatives s' and (J, C) change of the predictor over half a bin."""
        chance = special.expit(self.x @ b)
        return chance, chance * (1 - chance), self.slopes @ b

    @cached_property
    def _sums(self) -> Floats:
        """((2 + J) C,) counts and offsets."""
        return np.concatenate([self.counts.ravel(), self.offsets.ravel()])

    def score(self, b: Floats) -> Floats:
        """(p,) U(b)."""
        return np.asarray(self._entries(b).T @ self._sums)

    def information(self, b: Floats) -> Floats:
        """(p, p) sum of x x' N s(1 - s), positive semidefinite."""
        slope = self._fit(b)[1]
        return np.asarray((self.x.T * (self._rows * slope)) @ self.x)

    def _sampling(self, b: Floats) -> Floats:
        """(p, p) covariance of U(b) without privacy."""
        return self.clustering * self.information(b)

    @property
    def _df(self) -> int:
        """Persons, the fewest that the rows can be of, less coefficients."""
        return max(round(self.n / self.clustering) - int(self.x.shape[1]), 1)

    def _entries(self, b: Floats) -> Floats:
        """((2 + J) C, p): U(b) as a combination of counts and offsets."""
        chance, slope, moved = self._fit(b)
        chance = chance + slope * (1 - 2 * chance) * (moved**2).sum(axis=0) / 6
        factors = [-chance, 1 - chance, *(-slope * moved)]
        return np.concatenate([self.x * factor[:, np.newaxis] for factor in factors])

    def noise_covariance(self, b: Floats) -> Floats:
        """(p, p) of U(b), of the privacy noise alone."""
        entries = self._entries(b)
        return np.asarray(entries.T @ self.noise @ entries)

    def _influences(self, combinations: Floats) -> Floats:
        """(p, k) effect of the score on combinations (k, p) of the estimate, to first order.

        By the derivative of U itself, which knows where rows lie in their bins; the information at
        the middles does not. A LinAlgError where noise hides whether the derivative is definite.
        """
        derivative = -derivatives(self.score, self._estimate).T
        linalg.cholesky((derivative + derivative.T) / 2)
        return np.asarray(np.linalg.solve(derivative.T, combinations.T))

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows of a function of the numbers and the coefficients (eq. 2).

        The function is evaluated at the `corners` of all cells.
        """
        size, at_estimate = max(float(self._totals.sum()), 1.0), self._estimate

        def parts(b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
            """Values (C,), change over half a bin (J, C), curvature (J, C), rest (C,)."""
            at, signs = values(b).reshape(-1, len(self.x)), corners(len(self.slopes))
            low, high = at[1 : 1 + 2 * len(self.slopes)].reshape(-1, 2, len(self.x)).swapaxes(0, 1)
            change, curvature = (high - low) / 2, high + low - 2 * at[0]
            quadratic = at[0] + signs @ change + signs**2 @ curvature / 2
            return at[0], change, curvature, np.abs(at - quadratic).max(axis=0)

        def weights(b: Floats) -> Floats:
            middle, change, curvature, _ = parts(b)
            counted = middle + curvature.sum(axis=0) / 6
            return np.concatenate([counted, counted, *change])

        def mean(b: Floats) -> float:
            return float(weights(b) @ self._sums) / size

        estimate, gradient = mean(at_estimate), derivatives(mean, at_estimate)
        try:
            along = self._influences(gradient[np.newaxis])[:, 0]
        except np.linalg.LinAlgError:
            return Average(estimate, np.inf, np.inf)
        own = weights(at_estimate)
        own[: 2 * len(self.x)] -= estimate
        influence = own / size + self._entries(at_estimate) @ along
        _, change, curvature, rest = parts(at_estimate)
        chance = self._fit(at_estimate)[0]
        expected = np.concatenate([self._rows * (1 - chance), self._rows * chance])
        within = np.abs(change).sum(axis=0) ** 2 @ self._rows / size**2
        sampling = float(expected @ influence[: len(expected)] ** 2) + float(within)
        inside = self._inside(at_estimate, along)
        beyond = float(self._rows @ rest) / size
        low, high = self.misfit(at_estimate, along, self._rows * curvature / size)
        return Average(
            estimate, max(self.clustering * sampling - inside, 0.0),
            float(influence @ self.noise @ influence) + inside,
            low - beyond, high + beyond,
        )  # fmt: skip

    def misfit(
        self, b: Floats, along: Floats, curvature: Floats | None = None
    ) -> tuple[float, float]:
        """Bounds on the mean of along'U(b) at the true b: what the expansion in a bin leaves out.

        By Taylor's theorem a row in cell c adds s''(e_c) t^2 / 2 to the expected outcome, t the
        change of its predictor from the middle, and at most max|s'''| |t|^3 / 6 more; the mean of
        t^2 over an even spread is in U(b). Noisy counts of rows are taken as exact. The same sums
        of another function, with second derivatives `curvature` (J, C), are subtracted (eq. 3).
        """
        chance, slope, moved = self._fit(b)
        beyond = self.remainder @ np.abs(b)
        reach = np.abs(moved).sum(axis=0) + beyond
        weight = self._rows * (self.x @ along)
        second = weight * slope * (1 - 2 * chance) / 2
        even = (moved**2).sum(axis=0) / 3
        ends = np.sort([-second * even, second * (reach**2 - even)], axis=0)
        if curvature is not None:  # of the two functions apart, or square by square: the narrower
            each = np.sort([curvature / 6, -curvature / 3], axis=0).sum(axis=1)
            both = second * moved**2 - curvature / 2
            joint = np.sort([-both / 3, both * 2 / 3], axis=0).sum(axis=1)
            others = np.abs(second) * (reach**2 - 3 * even) * np.array([[-1.0], [1.0]])
            low, high = np.stack([ends + each, joint + others], axis=1)
            ends = np.stack([low.max(axis=0), high.min(axis=0)])
        rest = float(np.abs(weight) @ (slope * beyond + _THIRD * reach**3 / 6))
        return float(ends[0].sum()) - rest, float(ends[1].sum()) + rest

    def _inside(self, b: Floats, along: Floats) -> float:
        """Bound on the variance that U(b) of the rows adds to that of the middles of their bins."""
        slope = self._fit(b)[1]
        half = np.abs(self.slopes @ along).sum(axis=0) + self.remainder @ np.abs(along)
        return self.clustering * float((self._rows * slope) @ half**2)

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
        """See `Score.deviate`; zero where the misfit inside the bins alone could explain it.

        The value in the table has no sampling variance but that inside the bins.
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

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test of the score under the hypothesis, as intervals are.

        What the expansion in the bins leaves out has the value in its bounds that is most
        favourable to the hypothesis.
        """
        inverse = np.linalg.inv(self._information_at_estimate)
        covariance = np.asarray(inverse @ self._covariances_of_score.sum(axis=0) @ inverse)
        reduced, difference = independent(combinations, values, self._estimate, covariance)
        b = self._under(reduced, difference + reduced @ self._estimate) if len(reduced) else None
        if b is None:
            return 0.0, 1.0
        try:
            along = solved(self.information(b), reduced.T)
        except linalg.LinAlgError:
            return 0.0, 1.0
        weights = self._entries(b) @ along
        scaled = self.laplace @ weights if len(self.terms) else np.zeros((1, len(reduced)))
        laplace = scaled.T @ scaled
        normal = along.T @ self._sampling(b) @ along + weights.T @ self.noise @ weights - laplace
        score = along.T @ self.score(b)
        low, high = np.array([self.misfit(b, one) for one in along.T]).T
        half = root_of(np.asarray(np.linalg.pinv(normal + laplace, hermitian=True)))
        explained = low
        if np.any(low < high):  # combinations have about unit variance
            ends = low - _ROUNDING, high + _ROUNDING
            explained = optimize.lsq_linear(half, half @ score, ends).x
        rng, df = np.random.default_rng(self.seed), self._df
        return joint_test(
            score - explained, df, normal, laplace, lambda: self._draws(rng) @ scaled, rng
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


def corners(numbers: int) -> Floats:
    """Points (s, J) of a cell in half bins: its middle, those of its sides, and its corners."""
    sides = [sign * one for one in np.eye(numbers) for sign in (-1, 1)]
    ends = list(itertools.product((-1.0, 1.0), repeat=numbers)) if numbers > 1 else []
    return np.array([np.zeros(numbers), *sides, *ends])
