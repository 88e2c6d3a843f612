"""Best linear unbiased combination of overlapping tables, by orthogonal residuals.

The counts of a table over columns S split into orthogonal residuals, one for every subset A of S:
sum over the other columns, then centre along every column of A (for a pair: total, row deviations,
column deviations, interaction). Every measured table whose columns include A sees the same true
residual, with noise variance proportional to v_t times the number of cells summed over; averaging
with weights inverse to that is the generalised least squares estimate, because residuals of
different subsets are orthogonal in every table (Xiao et al. 2023). Only second moments of the noise
are used. A public total n is used exactly; otherwise it is one more residual, of the empty subset,
that every table sees (and the measured number of rows, a table over no columns).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.schema import Column

Subset = frozenset[Column]
_NOTHING = 1e-12


@dataclass(frozen=True)
class MeasuredTable:
    """A measured table.

    Attributes
    ----------
    columns : tuple of columns
        Empty for the measured number of rows.
    counts : float64 array with one axis per column
        Noisy counts.
    variance : float
        Noise variance of each.
    start : int
        Number of its first cell among all measured functions.
    """

    columns: tuple[Column, ...]
    counts: Floats
    variance: float
    start: int


@dataclass(frozen=True, eq=False)
class OverlappingTables(Cached):
    """Estimates from all measured tables together.

    Parameters
    ----------
    tables : sequence of MeasuredTable
    n : int or None
        The public total; None if it is not public, then it is estimated too.
    """

    tables: Sequence[MeasuredTable]
    n: int | None

    def shares(self, subset: Subset) -> list[tuple[MeasuredTable, float]]:
        """Tables that hold a residual, with weights that sum to one."""
        holding = [t for t in self.tables if subset <= set(t.columns)]
        precisions = [
            1 / (t.variance * math.prod(c.bins for c in t.columns if c not in subset))
            for t in holding
        ]
        total = sum(precisions)
        return [(t, p / total) for t, p in zip(holding, precisions, strict=True)]

    def residual(self, subset: Subset) -> Floats | None:
        """Combined residual, one axis per column of the subset in schema order; None if unseen."""
        return self._once(subset, lambda: self._combined(subset))

    def _combined(self, subset: Subset) -> Floats | None:
        combined: Floats | None = None
        for table, share in self.shares(subset):
            weighted = share * _residual(table.counts, table.columns, subset, sum_others=True)
            combined = weighted if combined is None else combined + weighted
        return combined

    def table(self, columns: tuple[Column, ...]) -> Floats | None:
        """Estimated counts of a table, or None if some residual of it was never measured."""
        shape = [c.bins for c in columns]
        counts = np.full(shape, (self.n or 0) / math.prod(shape))
        for subset in self._subsets(columns):
            residual = self.residual(subset)
            if residual is None:
                return None
            others = math.prod(c.bins for c in columns if c not in subset)
            counts += _spread(residual, columns, subset) / others
        return counts

    def weights(
        self, columns: tuple[Column, ...], functions: Floats
    ) -> list[tuple[MeasuredTable, Floats]] | None:
        """Weights on measured cells of the estimated sums of functions of some columns.

        Parameters
        ----------
        columns : tuple of columns
        functions : (d, bins of each column...) float64
            Values of d functions on the cells of `columns`.

        Returns
        -------
        list of (table, (d, bins of the table...) float64), or None
            The estimate is the weighted sum of noisy counts, plus the public n times the mean of
            the function; None if it does not follow from the tables.
        """
        weights: dict[int, Floats] = {}
        for subset in self._subsets(columns):
            residual = _residual(functions, columns, subset, sum_others=False)
            if np.abs(residual).max() <= _NOTHING * np.abs(functions).max():
                continue
            shares = self.shares(subset)
            if not shares:
                return None
            for table, share in shares:
                spread = share * _spread(residual, table.columns, subset)
                weights[table.start] = weights.get(table.start, 0.0) + spread
        shapes = {t.start: t for t in self.tables}
        return [
            (shapes[start], np.broadcast_to(w, (len(functions), *shapes[start].counts.shape)))
            for start, w in weights.items()
        ]

    def _subsets(self, columns: tuple[Column, ...]) -> Iterable[Subset]:
        """All subsets that have a residual to estimate: the empty one too if n is not public."""
        for size in range(0 if self.n is None else 1, len(columns) + 1):
            for chosen in itertools.combinations(columns, size):
                yield frozenset(chosen)


def _residual(
    array: Floats, columns: tuple[Column, ...], subset: Subset, *, sum_others: bool
) -> Floats:
    """Sum (or average) over the columns outside the subset, then centre along those inside.

    Axes of `array` are its columns, last; leading axes are kept.
    """
    first = array.ndim - len(columns)
    others = tuple(first + i for i, c in enumerate(columns) if c not in subset)
    reduced = array.sum(axis=others) if sum_others else array.mean(axis=others)
    for axis in range(first, reduced.ndim):
        reduced = reduced - reduced.mean(axis=axis, keepdims=True)
    return np.asarray(reduced, dtype=np.float64)


def _spread(residual: Floats, columns: tuple[Column, ...], subset: Subset) -> Floats:
    """A residual (axes last, in order of `columns`) with axes of length one for the others."""
    leading = residual.shape[: residual.ndim - len(subset)]
    shape = (*leading, *(c.bins if c in subset else 1 for c in columns))
    return np.reshape(residual, shape)
