"""All levels of a schema's columns in one list, and tables of one or two columns as one matrix.

With L levels in all, a row is a vector of L zeros and ones, rows are a matrix O (L, n) of such
columns, and O O' holds every table of two columns at once: its blocks are the tables, and its
diagonal the counts of single levels. Coefficients of such tables are a matrix too, and multiplying
it by O gives what every level of every column adds to the log probability of every row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Table
from dpstats.schema import Schema

MANY = 30  # levels to a column from which looking them up is faster than products
Single = NDArray[np.float32]  # counts and log probabilities: errors of 1e-6 do not matter


class Levels:
    """The levels (or bins) of the columns of a schema, one after the other.

    Attributes
    ----------
    size : int
        L.
    slices : dict of column name to slice
        Where the levels of a column are.
    column : (L,) int64
        The number of the column that a level belongs to.
    """

    def __init__(self, schema: Schema) -> None:
        ends = np.cumsum([column.bins for column in schema]).tolist()
        starts = [0, *ends[:-1]]
        self.size: int = ends[-1]
        self.slices = {
            name: slice(start, end)
            for name, start, end in zip(schema.names, starts, ends, strict=True)
        }
        self.column = np.repeat(np.arange(len(ends)), [column.bins for column in schema])

    @property
    def are_many(self) -> bool:
        """True if columns have so many levels that products with one-hot rows do not pay."""
        return self.size > MANY * len(self.slices)

    def one_hot(self, bins: Mapping[str, Codes]) -> Single:
        """O: which levels each row has, (L, rows), from column name -> (rows,) bins."""
        rows = len(next(iter(bins.values())))
        found = np.zeros((self.size, rows), dtype=np.float32)
        for name, place in self.slices.items():
            found[place.start + bins[name], np.arange(rows)] = 1
        return found

    def places(self, family: Family) -> tuple[Codes, Codes]:
        """The row and the column (|F|,) of each function of a family of such tables."""
        pairs = [self._places(block) for block in family.blocks]
        first, second = zip(*pairs, strict=True)
        return np.concatenate(first), np.concatenate(second)

    def _places(self, block: Block) -> tuple[Codes, Codes]:
        starts = [self.slices[c.name].start for c in block.columns]
        cells = np.indices([c.bins for c in block.columns]).reshape(len(starts), -1)
        return starts[0] + cells[0], starts[-1] + cells[-1]

    def matrix(self, family: Family, values: Floats) -> Floats:
        """Symmetric (L, L) matrix of values (|F|,) of the cells; zero where there is no table."""
        first, second = self.places(family)
        found = np.zeros((self.size, self.size))
        found[first, second] = values
        found[second, first] = values
        return found


def is_small(block: Block) -> bool:
    """True for a table of one or two columns."""
    return isinstance(block, Table) and 1 <= len(block.columns) <= 2
