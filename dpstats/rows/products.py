"""Products with the matrix of function values at the candidates."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.families.block import DenseValues, FamilyValues
from dpstats.families.tables.cells import TableValues

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

MOST_CELLS = 2**16  # of a joint table: its coefficients must stay in the processor's cache
POINTS_PER_CELL = 8  # fewer points than this would not repay the cells of a joint table

SMALL = 500_000  # numbers up to which cells are multiplied faster as a dense array
CHUNK = 2**20  # numbers of a dense array that are multiplied at a time


class Products:
    """A'y and A h, for A the functions at the candidates with every row multiplied by a number.

    A point lies in one cell of every table: all tables together are a sparse matrix with one
    entry per point and table, whose products cost half as much as a look-up per table. For many
    points, tables are margins of fewer joint tables of their columns, and A is the product of a
    matrix of margins and one with an entry per point and joint table. The other functions are
    stacked into one dense array.

    Parameters
    ----------
    values : FamilyValues
        |F| functions at m points.
    scales : (|F|,) float64
        What the rows are multiplied by, in unit scale.
    joint : bool
        Whether to look for joint tables, which pays if there are many products.
    """

    def __init__(self, values: FamilyValues, scales: Floats, *, joint: bool = True) -> None:
        self._scales = scales / values.bounds
        starts = np.cumsum([0, *(part.size for part in values.parts)])
        placed = list(zip(values.parts, starts[:-1].tolist(), strict=True))
        tables = [(part, start) for part, start in placed if isinstance(part, TableValues)]
        self._margins, self._cells = _stacked(tables, len(scales), joint)
        self._of_points = None if self._cells is None else self._cells.T  # checked only once
        self._of_margins = None if self._margins is None else self._margins.T
        dense = [(part, start) for part, start in placed if isinstance(part, DenseValues)]
        assert len(tables) + len(dense) == len(placed)  # residuals are fitted as their tables
        self._rows = np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(s, s + part.size) for part, s in dense)]
        )
        self._dense = _scaled([part.array for part, _ in dense], self._scales[self._rows])
        used = self._dense if self._cells is None else self._cells
        assert used is not None  # a family has at least one block
        self.points = int(used.shape[1])

    @property
    def all_dense(self) -> bool:
        """True if there are no tables, so that all functions are in the dense array."""
        return self._cells is None

    def combine(self, y: Floats) -> Floats:
        """A'y: (m,) combinations of the functions at each point, y (|F|,)."""
        total: Floats | float = 0.0
        if self._of_points is not None:
            coefficients = self._scales * y
            if self._of_margins is not None:
                coefficients = self._of_margins @ coefficients
            total = self._of_points @ coefficients
        if self._dense is not None:
            total = total + y[self._rows] @ self._dense
        return np.asarray(total)

    def average(self, weights: Floats) -> Floats:
        """A h: (|F|,) weighted sums over points, weights (m,)."""
        means = self._scales * self._of_cells(weights)
        if self._dense is not None:
            means[self._rows] = self._dense @ weights
        return np.asarray(means)

    def _of_cells(self, weights: Floats) -> Floats:
        """Weight (|F|,) of every cell, for weights (m,); zero for functions that have none."""
        if self._cells is None:
            return np.zeros(len(self._scales))
        sums = self._cells @ weights
        return np.asarray(sums if self._margins is None else self._margins @ sums)

    def gram(self, weights: Floats, rows: NDArray[np.intp] | None = None) -> Floats:
        """A diag(weights) A' for the functions `rows`, all if not given; weights (m,) positive."""
        from scipy import sparse

        rows = np.arange(len(self._scales)) if rows is None else rows
        result = np.zeros((len(rows), len(rows)))
        roots = np.sqrt(weights)
        cells = None
        if self._by_function is not None:
            chosen = self._by_function[rows]
            data = chosen.data * roots[chosen.indices]
            cells = sparse.csr_array((data, chosen.indices, chosen.indptr), shape=chosen.shape)
            result = (cells @ cells.T).toarray()
        if self._dense is not None:
            found = np.full(len(self._scales), -1)
            found[self._rows] = np.arange(len(self._rows))
            mine = np.flatnonzero(found[rows] >= 0)
            wanted = found[rows[mine]]
            every = np.array_equal(wanted, np.arange(len(self._dense)))
            chosen_rows = slice(None) if every else wanted  # a slice is not copied
            crossed, own = np.zeros((len(rows), len(mine))), np.zeros((len(mine), len(mine)))
            step = max(1, CHUNK // max(len(mine), 1))
            for first in range(0, self.points, step):  # some points at a time, for their memory
                piece = slice(first, first + step)
                dense = self._dense[chosen_rows, piece] * roots[piece]
                own += dense @ dense.T
                if cells is not None:
                    crossed += cells[:, piece] @ dense.T
            result[:, mine], result[mine] = crossed, crossed.T
            result[np.ix_(mine, mine)] = own
        return result

    @cached_property
    def _by_function(self) -> csr_array[Any] | None:
        """The rows of A, without the functions that are no cells."""
        from scipy import sparse

        if self._cells is None:
            return None
        whole = self._cells if self._margins is None else self._margins @ self._cells
        return sparse.csr_array(sparse.diags_array(self._scales) @ whole)

    def distances(self, half: int) -> Floats:
        """Lengths (half,) of the differences between A at the first points and at the others.

        Infinite where there is none, so that slopes along them are zero.
        """
        squares = np.zeros(half)
        if self._cells is not None:
            whole = self._cells if self._margins is None else self._margins @ self._cells
            squares += self._scales**2 @ (whole[:, half:] - whole[:, :half]).power(2)
        if self._dense is not None:
            differences = self._dense[:, half:] - self._dense[:, :half]
            squares += np.einsum("fm,fm->m", differences, differences)
        return np.where(squares > 0, np.sqrt(squares), np.inf)

    def variances(self, density: Floats) -> Floats:
        """Variance (|F|,) of each row of A under a density (m,)."""
        means = self.average(density)
        squares = self._scales * means  # a cell's indicator is its own square
        if self._dense is not None:
            squares[self._rows] = np.einsum("fm,fm,m->f", self._dense, self._dense, density)
        return np.maximum(squares - means**2, 0.0)


def _scaled(arrays: list[Floats], scales: Floats) -> Floats | None:
    """Arrays (.., m) on top of each other, every row times its scale; None without arrays."""
    if not arrays:
        return None
    found, first = np.empty((len(scales), arrays[0].shape[1])), 0
    for array in arrays:
        piece = slice(first, first := first + len(array))
        np.multiply(array, scales[piece, np.newaxis], out=found[piece])
    return found


def _stacked(
    tables: list[tuple[TableValues, int]], functions: int, merged: bool
) -> tuple[csr_array[Any] | None, csc_array[Any] | None]:
    """Margins (|F|, C) of joint tables, and their C cells at the points (C, m), both of ones.

    The margins are None, and C is |F|, where the cells are those of the tables themselves. Each
    table comes with its first row.
    """
    from scipy import sparse

    if not tables:
        return None, None
    m = len(tables[0][0].index)
    most = min(MOST_CELLS, m // POINTS_PER_CELL)
    joint = _joint_tables([table for table, _ in tables], most) if merged else []
    if len(joint) in {0, len(tables)}:
        return None, _indicators([t.index for t, _ in tables], [s for _, s in tables], functions, m)
    bins = {name: b for t, _ in tables for name, b in zip(t.columns, t.shape, strict=True)}
    starts, rows, cells = [0], [], []
    for columns, members in joint:
        shape = [bins[name] for name in columns]
        every = dict(zip(columns, np.indices(shape).reshape(len(shape), -1), strict=True))
        for which in members:
            table, start = tables[which]
            cell = np.ravel_multi_index([every[name] for name in table.columns], table.shape)
            rows.append(cell + start)
            cells.append(np.arange(starts[-1], starts[-1] + len(cell)))
        starts.append(starts[-1] + math.prod(shape))
    entries = np.concatenate(rows), np.concatenate(cells)
    ones = np.ones(len(entries[0]))
    margins = sparse.csr_array((ones, entries), shape=(functions, starts[-1]))
    codes = _codes([table for table, _ in tables])
    indices = []
    for columns, _ in joint:
        index = np.zeros(m, np.int64)
        for name in columns:
            index *= bins[name]
            index += codes[name]
        indices.append(index.astype(np.int32))
    return margins, _indicators(indices, starts[:-1], starts[-1], m)


def _indicators(indices: list[Any], starts: list[int], cells: int, m: int) -> csc_array[Any]:
    """Which cell of every table each point is in, (cells, m); tables by first cell."""
    from scipy import sparse

    small = cells < 2**31 and m * len(indices) < 2**31
    rows = np.empty((m, len(indices)), dtype=np.int32 if small else np.int64)
    for t, (index, start) in enumerate(zip(indices, starts, strict=True)):
        rows[:, t] = index
        rows[:, t] += start
    ends = np.arange(0, rows.size + 1, len(indices), dtype=rows.dtype)
    return sparse.csc_array((np.ones(rows.size), rows.ravel(), ends), shape=(cells, m))


def _codes(tables: list[TableValues]) -> dict[str, NDArray[Any]]:
    """The bin of every column at each point, column name -> (m,)."""
    codes: dict[str, NDArray[Any]] = {}
    for table in tables:
        if not codes.keys() >= set(table.columns):
            bins = np.unravel_index(table.index, table.shape)
            for name, size, code in zip(table.columns, table.shape, bins, strict=True):
                codes.setdefault(name, code.astype(np.min_scalar_type(size)))
    return codes


def _joint_tables(tables: list[TableValues], most: int) -> list[tuple[list[str], list[int]]]:
    """Sets of columns with at most `most` cells, and the tables that are margins of each.

    Greedy: from the largest table left, add the column that makes most of the others margins.
    """
    bins = {name: b for t in tables for name, b in zip(t.columns, t.shape, strict=True)}
    left = dict.fromkeys(sorted(range(len(tables)), key=lambda t: -tables[t].size))
    joint = []
    while left:
        columns = list(tables[next(iter(left))].columns)
        while True:
            size = math.prod(bins[name] for name in columns)
            fitting = [b for b in bins if b not in columns and size * bins[b] <= most]
            if not fitting:
                break
            gains = {
                name: sum(
                    name in tables[t].columns
                    and 1 + sum(c in columns for c in tables[t].columns) == len(tables[t].columns)
                    for t in left
                )
                for name in fitting
            }
            best = max(fitting, key=lambda name: gains[name])
            if gains[best] == 0:
                break
            columns.append(best)
        members = [t for t in left if set(tables[t].columns) <= set(columns)]
        for t in members:
            del left[t]
        joint.append((columns, members))
    return joint
