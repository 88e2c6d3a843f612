"""Products with the matrix of function values at the candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.families.block import FamilyValues
from dpstats.families.cells import DenseValues, TableValues

if TYPE_CHECKING:
    from scipy.sparse import csc_array


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

    def array(self) -> Floats:
        """A itself, (|F|, m), for few functions and points."""
        if self._cells is not None:
            whole = self._cells.toarray()
        else:
            assert self._dense is not None
            whole = np.zeros((len(self._scales), self._dense.shape[1]))
        if self._dense is not None:
            whole[self._rows] = self._dense
        return np.asarray(whole)

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
