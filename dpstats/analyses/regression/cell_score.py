"""A generalised linear model from the cells of a table: score equations with noise, inverted.

Few regressors, in bins: with T_cy the counts of cells c by the outcome y, N_c = T_c0 + T_c1, L_c
the sums of the distance of each number from the middle of its bin and d_c the change of x over half
a bin, the score is to second order in the width of the bins

    U(b) = sum_c x_c [T_c1 - N_c (s(e_c) + v_c) - s'(e_c) d_c'b L_c],   e_c = x_c'b,

v_c = s_2(e_c) (d_c'b)^2 / 6 for rows that are spread evenly in the bin. It is linear in the noisy
counts (eq. 6). Equations are those of docs/explanation/regression/logistic-regression.md.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, special

from dpstats.analyses.regression.linear_score import LinearScore
from dpstats.analyses.regression.score import Average, derivatives
from dpstats.arrays import Floats

if TYPE_CHECKING:
    from collections.abc import Callable

_THIRD = 1 / 8  # largest |s'''| of the logistic function


@dataclass(frozen=True, eq=False)
class CellScore(LinearScore):
    """Noisy counts of C cells of the regressors x (C, p), taken at the middle, by a binary outcome.

    The noise is on `counts` and `offsets`, in this order.
    """

    slopes: Floats  # (J, C, p) their change over half a bin of each of the J numbers
    remainder: Floats  # (C, p) bounds on what slopes leave out, from squares and products
    counts: Floats  # (2, C) noisy counts of rows with the outcome 0 and 1
    offsets: Floats  # (J, C) noisy sums of the numbers' distance from the middle, in half bins
    n: int  # number of rows, or its estimate
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

    def information(self, b: Floats) -> Floats:
        """(p, p) sum of x x' N s(1 - s), positive semidefinite."""
        slope = self._fit(b)[1]
        return np.asarray((self.x.T * (self._rows * slope)) @ self.x)

    def _sampling(self, b: Floats) -> Floats:
        """(p, p) covariance of U(b) without privacy."""
        return self.clustering * self.information(b)

    @property
    def df(self) -> int:
        """Persons, the fewest that the rows can be of, less coefficients."""
        return max(round(self.n / self.clustering) - int(self.x.shape[1]), 1)

    def _entries(self, b: Floats) -> Floats:
        """((2 + J) C, p): U(b) as a combination of counts and offsets."""
        chance, slope, moved = self._fit(b)
        chance = chance + slope * (1 - 2 * chance) * (moved**2).sum(axis=0) / 6
        factors = [-chance, 1 - chance, *(-slope * moved)]
        return np.concatenate([self.x * factor[:, np.newaxis] for factor in factors])

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


def corners(numbers: int) -> Floats:
    """Points (s, J) of a cell in half bins: its middle, those of its sides, and its corners."""
    sides = [sign * one for one in np.eye(numbers) for sign in (-1, 1)]
    ends = list(itertools.product((-1.0, 1.0), repeat=numbers)) if numbers > 1 else []
    return np.array([np.zeros(numbers), *sides, *ends])
