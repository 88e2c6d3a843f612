"""Linear programs over all tables that agree with bounds on some sums, with bounds that are safe.

A table is the number of rows c_j in each of m states. What a solver returns is not trusted: any
multipliers y give, for c >= 0 with A c between `low` and `high` and sum c between `rows`,

    v'c = y'A c + (v - A'y)'c >= sum_f min(y_f low_f, y_f high_f) + min(r rows_0, r rows_1),

r = min_j (v - A'y)_j (weak duality). The bounds below are this right side at the solver's
multipliers, less the rounding of the sums: a solver that stops early gives a wider bound, never a
wrong one. Equations are those of docs/explanation/inference/what-a-release-can-answer.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_INFEASIBLE = 2  # status of `scipy.optimize.linprog`
_ROUNDING = 1e-12  # relative error allowed for sums of products, far above what float64 makes
_LARGE = 2_000  # states beyond which interior points are faster than the simplex method


class Contradiction(Exception):
    """No table agrees with the bounds: the event that they hold has failed."""


@dataclass(frozen=True, eq=False)
class Program(Cached):
    """The tables that agree with bounds on sums (eq. tables-that-agree)."""

    matrix: csr_array[Any]  # (d, m) values of functions in states
    low: Floats  # (d,) bounds on their sums over the rows; may be infinite
    high: Floats
    rows: tuple[float, float]  # bounds on the number of rows, at least 1

    def least_sum(self, values: Floats) -> float:
        """Lower bound of the sum of `values` (m,); Contradiction if no table agrees."""
        matrix, limits = self._inequalities
        found = self._solved(values, A_ub=matrix, b_ub=limits)
        return self._certified(values, self._multipliers(found))

    def least_ratio(self, numerator: Floats, denominator: Floats, at_least: float) -> float:
        """Lower bound of the ratio of two sums (m,); `at_least` > 0 is one of the denominator.

        By Charnes and Cooper's substitution w = t c, t = 1 / (denominator'c), one more linear
        program (eq. linear-ratio). If it gives the ratio x, the least sum of numerator - x
        denominator is near 0; where the certified one is below 0, the ratio is lower by that over
        the least denominator. Contradiction if no table with such a denominator agrees with the
        bounds.
        """
        from scipy import sparse

        program = self.with_sum(denominator, at_least)
        matrix, limits = program._inequalities
        found = self._solved(
            np.append(numerator, 0.0),
            A_ub=sparse.hstack([matrix, sparse.csr_array(-limits[:, np.newaxis])], format="csr"),
            b_ub=np.zeros(len(limits)),
            A_eq=sparse.csr_array(np.append(denominator, 0.0)[np.newaxis]),
            b_eq=np.ones(1),
        )
        if found.status != 0:  # any number and any multipliers give a bound
            ratio, multipliers = 0.0, np.zeros(len(program.low))
        else:
            ratio, multipliers = float(found.fun), program._multipliers(found)
        left = program._certified(numerator - ratio * denominator, multipliers)
        return ratio + min(left, 0.0) / at_least

    def with_sum(self, values: Floats, at_least: float) -> Program:
        """The tables whose sum of `values` (m,) is, besides, at least a number."""
        from scipy import sparse

        row = sparse.csr_array(values[np.newaxis])
        return Program(
            sparse.vstack([self.matrix, row], format="csr"),
            np.append(self.low, at_least),
            np.append(self.high, np.inf),
            self.rows,
        )

    def _solved(self, values: Floats, **constraints: Any) -> Any:
        from scipy import optimize

        method: Any = "highs-ipm" if len(values) > _LARGE else "highs"
        found = optimize.linprog(values, **constraints, method=method)
        if found.status == _INFEASIBLE:
            raise Contradiction
        return found

    @cached_property
    def _ends(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which functions have an upper bound, and which a lower one."""
        return np.isfinite(self.high), np.isfinite(self.low)

    @cached_property
    def _inequalities(self) -> tuple[Any, Floats]:
        """Matrix and limits of matrix x <= limits, x = c / rows_1 of a size near one."""
        from scipy import sparse

        above, below = self._ends
        ones = sparse.csr_array(np.ones((1, self.matrix.shape[1])))
        blocks = [self.matrix[above], -self.matrix[below], ones, -ones]
        sums = [self.high[above], -self.low[below], np.array([self.rows[1], -self.rows[0]])]
        return sparse.vstack(blocks, format="csr"), np.concatenate(sums) / self.rows[1]

    def _multipliers(self, found: Any) -> Floats:
        """One multiplier (d,) per function from those of its two bounds; zeros without any."""
        joined = np.zeros(len(self.low))
        given = getattr(found.ineqlin, "marginals", None)
        if given is None or not np.all(np.isfinite(given)):
            return joined
        given, (above, below) = np.minimum(given, 0.0), self._ends
        first = int(above.sum())
        joined[above] += given[:first]
        joined[below] -= given[first : first + int(below.sum())]
        return joined

    def _certified(self, values: Floats, y: Floats) -> float:
        """The right side of weak duality, less what rounding can add to it (eq. weak-duality)."""
        pulled = self.matrix.T @ y
        size = np.abs(values).max() + float(np.max(abs(self.matrix).T @ np.abs(y), initial=0.0))
        least = float(np.min(values - pulled)) - _ROUNDING * size
        used = y != 0
        ends = np.where(y[used] > 0, self.low[used], self.high[used])
        terms = y[used] * ends
        whole = terms.sum() - _ROUNDING * float(np.abs(terms).sum())
        return float(whole + min(least * self.rows[0], least * self.rows[1]))
