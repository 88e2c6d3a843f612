"""Products with the matrix of function values at the candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.families.block import FamilyValues
from dpstats.families.cells import DenseValues, TableValues

if TYPE_CHECKING:
    from scipy.sparse import csc_array

SMALL = 500_000  # numbers up to which cells are multiplied faster as a dense array
CHUNK = 2**20  # numbers of a dense array that are multiplied at a time


class Products:
    """A'y and A h, for A the functions at the candidates with every row multiplied by a number.

    A point lies in one cell of every table: all tables together are a sparse matrix with one
    entry per point and table, whose products cost half as much as a look-up per table. The other
    functions are stacked into one dense array.

    Parameters
    ----------
    values : FamilyValues
        |F| functions at m points.
    scales : (|F|,) float64
        What the rows are multiplied by, in unit scale.
    """

    def __init__(self, values: FamilyValues, scales: Floats) -> None:
        self._scales = scaled = scales / values.bounds
        starts = np.cumsum([0, *(part.size for part in values.parts)])
        placed = list(zip(values.parts, starts[:-1], strict=True))
        self._cells = _stacked(
            [(part.index, int(start)) for part, start in placed if isinstance(part, TableValues)],
            scaled,
        )
        self._of_points = None if self._cells is None else self._cells.T  # checked only once
        dense = [(part, start) for part, start in placed if isinstance(part, DenseValues)]
        self._rows = np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(s, s + part.size) for part, s in dense)]
        )
        self._dense = np.concatenate([part.array for part, _ in dense]) if dense else None
        if self._dense is not None:
            self._dense *= scaled[self._rows, np.newaxis]

    @property
    def all_dense(self) -> bool:
        """Whether there are no tables."""
        return self._cells is None

    def combine(self, y: Floats) -> Floats:
        """A'y: (m,) combinations of the functions at each point, y (|F|,)."""
        total: Floats | float = 0.0
        if self._of_points is not None:
            total = self._of_points @ y
        if self._dense is not None:
            total = total + y[self._rows] @ self._dense
        return np.asarray(total)

    def average(self, weights: Floats) -> Floats:
        """A h: (|F|,) weighted sums over points, weights (m,)."""
        means = np.zeros(len(self._scales)) if self._cells is None else self._cells @ weights
        if self._dense is not None:
            means[self._rows] = self._dense @ weights
        return np.asarray(means)

    def second_moments(self, density: Floats) -> Floats:
        """A diag(h) A': (|F|, |F|) second moments of the rows of A under a density (m,).

        Dense rows are multiplied as dense ones, which is several times faster than as sparse ones,
        some points at a time.
        """
        cells, rows = self._cells, self._rows
        found = np.zeros((len(self._scales),) * 2)
        if cells is not None and cells.shape[0] * cells.shape[1] <= SMALL:
            whole = cells.toarray()
            found = (whole * density) @ whole.T
        elif cells is not None:
            found = np.asarray((cells.multiply(density) @ cells.T).toarray())
        if self._dense is None:
            return found
        root, step = np.sqrt(density), max(1, CHUNK // len(rows))
        own, crossed = np.zeros((len(rows),) * 2), np.zeros((len(self._scales), len(rows)))
        for first in range(0, len(density), step):
            piece = slice(first, first + step)
            part = self._dense[:, piece] * root[piece]
            own += part @ part.T
            if cells is not None:
                crossed += cells[:, piece] @ (part * root[piece]).T
        if cells is not None:
            found[:, rows], found[rows] = crossed, crossed.T
        found[np.ix_(rows, rows)] = own
        return found

    def variances(self, density: Floats) -> Floats:
        """Variance (|F|,) of each row of A under a density (m,)."""
        means = self.average(density)
        squares = self._scales * means  # a cell's indicator is its own square
        if self._dense is not None:
            squares[self._rows] = np.einsum("fm,fm,m->f", self._dense, self._dense, density)
        return np.maximum(squares - means**2, 0.0)


def _stacked(tables: list[tuple[Any, int]], scaled: Floats) -> csc_array[Any] | None:
    """The cells of tables as a sparse (|F|, m) matrix; each is the cell index and first row."""
    from scipy import sparse

    if not tables:
        return None
    m = len(tables[0][0])
    small = len(scaled) < 2**31 and m * len(tables) < 2**31
    rows = np.empty((m, len(tables)), dtype=np.int32 if small else np.int64)
    for t, (index, start) in enumerate(tables):
        rows[:, t] = index + start
    starts = np.arange(0, rows.size + 1, len(tables), dtype=rows.dtype)
    return sparse.csc_array((scaled[rows.ravel()], rows.ravel(), starts), shape=(len(scaled), m))
