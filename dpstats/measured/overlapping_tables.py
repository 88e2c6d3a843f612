"""Best linear unbiased combination of overlapping tables, by orthogonal residuals.

The counts of a table over columns S split into orthogonal residuals, one for every subset A of S:
sum over the other columns, then centre along every column of A (for a pair: total, row deviations,
column deviations, interaction). Every measured table whose columns include A sees the same true
residual, with noise variance proportional to v_t times the number of cells summed over; averaging
with weights inverse to that (eq. precision-of-residual of
docs/explanation/inference/overlapping-tables.md) is the generalised least squares estimate, because
residuals of different subsets are orthogonal in every table (Xiao et al. 2023). Only second moments
of the noise are used. A public total n is used exactly; otherwise it is one more residual, of the
empty subset, that every table sees (and the measured number of rows, a table over no columns).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.families.merging import ColumnIndex
from dpstats.schema import Column

Subset = frozenset[Column]
_NOTHING = 1e-12


@dataclass(frozen=True)
class MeasuredTable:
    """A measured table, or a residual.

    A residual holds sums of the functions of `Residual`: prod n_a times the residual of all its
    columns, which is the only one that it holds.
    """

    columns: tuple[Column, ...]  # none for the measured number of rows
    counts: Floats  # noisy, one axis per column
    variance: float  # of the noise on each
    start: int  # number of the first cell among all measured functions
    residual: bool = False

    def precision(self, subset: Subset) -> float:
        """One over the noise variance of each entry of a residual before it is centred."""
        if self.residual:
            return self.counts.size**2 / self.variance if subset == set(self.columns) else 0.0
        others = math.prod(c.bins for c in self.columns if c not in subset)
        return 1 / (self.variance * others)

    @property
    def scale(self) -> int:
        """Divisor of the counts."""
        return self.counts.size if self.residual else 1


@dataclass(frozen=True, eq=False)
class OverlappingTables(Cached):
    """Estimates from all measured tables together; of the total too, where n is not public."""

    tables: Sequence[MeasuredTable]
    n: int | None

    def shares(self, subset: Subset) -> list[tuple[MeasuredTable, float]]:
        """Tables that hold a residual, with weights that sum to one."""
        return self._once(("shares", subset), lambda: self._shares(subset))

    def _shares(self, subset: Subset) -> list[tuple[MeasuredTable, float]]:
        tables = [self.tables[i] for i in self._index.with_all(c.name for c in subset)]
        holding = [(t, p) for t in tables if (p := t.precision(subset))]
        total = sum(p for _, p in holding)
        return [(t, p / total) for t, p in holding]

    @cached_property
    def _index(self) -> ColumnIndex:
        return ColumnIndex({i: [c.name for c in t.columns] for i, t in enumerate(self.tables)})

    def residual(self, subset: Subset) -> Floats | None:
        """Combined residual, one axis per column of the subset in schema order; None if unseen."""
        return self._once(subset, lambda: self._combined(subset))

    def _combined(self, subset: Subset) -> Floats | None:
        combined: Floats | None = None
        for table, share in self.shares(subset):
            seen = _residual(table.counts, table.columns, subset, sum_others=True)
            weighted = share / table.scale * seen
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

    def rows(self, columns: tuple[Column, ...], functions: Floats, size: int) -> Floats | None:
        """Weights (d, size) on the measured functions of the sums of d functions of some columns.

        `functions` has their values on the cells, (d, bins of each column...). To the weighted sum
        of noisy counts comes the public n times the mean of the function; None if it does not
        follow.
        """
        rows = np.zeros((len(functions), size))
        for subset in self._subsets(columns):
            residual = _residual(functions, columns, subset, sum_others=False)
            if np.abs(residual).max() <= _NOTHING * np.abs(functions).max():
                continue
            shares = self.shares(subset)
            if not shares:
                return None
            if not subset:  # the total, which all tables see
                rows += residual[:, np.newaxis] * self._total(size)
                continue
            for table, share in shares:
                of_table = rows[:, table.start : table.start + table.counts.size]
                of_cells = of_table.reshape(-1, *table.counts.shape)  # a view
                of_cells += share / table.scale * _spread(residual, table.columns, subset)
        return rows

    def _total(self, size: int) -> Floats:
        def found() -> Floats:
            row = np.zeros(size)
            for table, share in self.shares(frozenset()):
                row[table.start : table.start + table.counts.size] = share
            return row

        return self._once("total", found)

    def _subsets(self, columns: tuple[Column, ...]) -> Iterable[Subset]:
        """All subsets that have a residual to estimate: the empty one too if n is not public."""
        for size in range(0 if self.n is None else 1, len(columns) + 1):
            for chosen in itertools.combinations(columns, size):
                yield frozenset(chosen)


def _residual(
    array: Floats, columns: tuple[Column, ...], subset: Subset, *, sum_others: bool
) -> Floats:
    """Sum (or average) over columns outside the subset, then centre along those inside."""
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
