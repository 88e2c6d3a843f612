"""A generalised linear model from the cells of a table: score equations with noise, inverted.

With few regressors, in bins, everything the score needs is in the counts T_cy of the cells c of the
regressors by the outcome, and in the sums L_c of the distance of each number from the middle of
its bin. To second order in the width of the bins the score at b is

    U(b) = sum_c x_c [T_c1 - N_c (s(e_c) + v_c) - s'(e_c) d_c'b L_c],   N_c = T_c0 + T_c1,

x_c the regressors at the middles, e_c = x_c'b, d_c their change over half a bin of the number, and
v_c = s_2(e_c) (d_c'b)^2 / 6 for rows that are spread evenly in the bin, s_2 the second derivative.
U is linear in the noisy counts, so its noise has mean zero and a known covariance at every b,
however large; no count is divided by another one. Its sampling covariance at the population's b is
that of a binomial, sum x_c x_c' N_c s(1 - s), or at most k times that if persons have k rows.
Inverting the test of a value of h'b, the other coefficients fitted under it, gives an interval that
is unbounded where the noise leaves the coefficient open [1]_. The statistic is one normal variable
plus the noises with known weights, so under Laplace noise its tail is that of their sum, not the
normal one. The remainder of the expansion inside the bins is bounded and carried into the interval.

References
----------
.. [1] C. R. Rao (1948), Large sample tests of statistical hypotheses concerning several parameters
   with applications to problems of estimation. Proc. Camb. Phil. Soc. 44, 50-57.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, optimize, special

from dpstats.analyses.regression.joint_test import independent, joint_test, root_of
from dpstats.analyses.regression.links import Average, corners
from dpstats.analyses.regression.newton import (
    derivatives,
    find_root,
    rejected_beyond,
    solved,
    tail_of,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.mixture_tails import MixtureTails

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstats.checks import Alternative

DRAWS = 5_000
_ROUNDING = 1e-7  # standard deviations of the sampling error
_LEAST_TAIL = 1e-300  # has a normal deviate
_THIRD = 1 / 8  # largest |s'''| of the logistic function


@dataclass(frozen=True, eq=False)
class CellScore(Cached):
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

    @staticmethod
    def _spread_evenly(chance: Floats, slope: Floats, moved: Floats) -> Floats:
        """(C,) chances, for rows that are spread evenly inside the bins."""
        return np.asarray(chance + slope * (1 - 2 * chance) * (moved**2).sum(axis=0) / 6)

    def score(self, b: Floats) -> Floats:
        """(p,) U(b)."""
        chance, slope, moved = self._fit(b)
        left = self.counts[1] - self._totals * self._spread_evenly(chance, slope, moved)
        return np.asarray(self.x.T @ (left - slope * (moved * self.offsets).sum(axis=0)))

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
        whole, slope, moved = self._fit(b)
        chance = self._spread_evenly(whole, slope, moved)
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
        b = self._estimate
        steps = 1e-5 * np.maximum(np.abs(b), 1.0) * np.eye(len(b))
        moved = [self.score(b - h) - self.score(b + h) for h in steps]
        derivative = (np.array(moved) / (2 * steps.sum(axis=1))[:, np.newaxis]).T
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

        sums = np.concatenate([self.counts.ravel(), self.offsets.ravel()])

        def mean(b: Floats) -> float:
            return float(weights(b) @ sums) / size

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

        For large samples, as the noisy counts of rows are taken as exact.

        By Taylor's theorem a row in cell c adds s''(e_c) t^2 / 2 to the expected outcome, t the
        change of its predictor from the middle, and at most max|s'''| |t|^3 / 6 more. Of t^2,
        which is between zero and its largest value, the mean over an even spread is in U(b).
        From this the same sums of another function are taken off, with second derivatives
        `curvature` (J, C) by the distance of each number from the middle, in half bins.
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
        """Variance of what U(b) of the rows themselves adds to that of their cells; at most.

        Every row enters its own score with its own number, not with the middle of the bin; given
        the numbers the difference has mean zero.
        """
        slope = self._fit(b)[1]
        half = np.abs(self.slopes @ along).sum(axis=0) + self.remainder @ np.abs(along)
        return self.clustering * float((self._rows * slope) @ half**2)

    @cached_property
    def params(self) -> Floats | None:
        """(p,) the solution of U(b) = 0; None without one."""
        return find_root(self.score, self.information, self.x, np.zeros(self.x.shape[1]))

    @property
    def _estimate(self) -> Floats:
        """(p,) where it is known that there is one."""
        assert self.params is not None
        return self.params

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

        As the tail is that of a sum of independent variables of known laws (Lugannani and Rice's
        formula), few cells with Laplace noise give the heavier tail that they have.
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
        """How far the score is from zero if the combination has this value, as a normal deviate.

        Positive where larger values are more likely. The value in the table has no sampling
        variance but that inside the bins. Zero where the misfit inside the bins alone could explain
        it; None where the other coefficients have no solution.
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

    def _under(self, combinations: Floats, values: Floats) -> Floats | None:
        """(p,) coefficients of which independent combinations (k, p) have these values (k,).

        The others solve the score; None where they have no solution.
        """
        away = values - combinations @ self._estimate
        along = solved(self.information(self._estimate), combinations.T)
        start = np.asarray(self._estimate + along @ np.linalg.solve(combinations @ along, away))
        free = linalg.null_space(combinations)
        if not free.shape[1]:
            return start
        return find_root(self.score, self.information, self.x, start, free)

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test that combinations (k, p) of the coefficients equal values (k,); see `joint_test`.

        Of the score under the hypothesis, as intervals are. What the expansion in the bins leaves
        out may have any value in its bounds: the one that speaks most for the hypothesis is taken.
        """
        inverse = np.linalg.inv(self.information(self._estimate))
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

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that a combination has this value in the population."""
        z = self.deviate(combination, value, sampled=True)
        return 1.0 if z is None else tail_of(z, alternative)

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """All values that are not rejected at level alpha, as an interval around the estimate."""
        centre = float(combination @ self._estimate)
        along = solved(self.information(self._estimate), combination)
        deviation = float(np.sqrt(along @ self._covariances_of_score.sum(axis=0) @ along))
        deviate = partial(self.deviate, combination, sampled=sampled)
        return rejected_beyond(
            self.x, combination, deviate, alpha, (centre, centre), centre, deviation
        )
