"""Where rows lie inside the bins of a number: what a table leaves out, at a small price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.tables.cells import Table
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import cell_index

_FACTORS = {"laplace": 16, "gaussian": 8}  # 1/16 and 1/64 of a table's price


@dataclass(frozen=True)
class BinOffsets(Block):
    """In every cell of a table, the sum of a number's distance from the middle of its bin.

    With the counts of the cells these give the mean inside every bin, so that a smooth function of
    the number has no error of first order in the bins' width. An offset is at most half a bin, so
    it needs far less precision than a count, and `noise_factor` gives it less.

    Examples
    --------
    >>> import dpstats as dps
    >>> from dpstats.families.tables.bin_offsets import BinOffsets
    >>> age = dps.Number("age", 0, 100, points=101, edges=[25, 50, 75], missing=0)
    >>> BinOffsets.of(dps.Schema([age]), ["age"], "age").names[0]
    'offset of age, age=[0, 25)'
    """

    # those of the table, in the order of the schema; the number among them
    columns: tuple[Column, ...]
    number: str

    kind: ClassVar[str] = "bin_offsets"
    joint: ClassVar[bool] = True

    @staticmethod
    def of(schema: Schema, columns: Sequence[str], number: str) -> BinOffsets:
        """The offsets of one of the columns in the table of all of them."""
        return BinOffsets(tuple(c for c in schema if c.name in columns), number)

    def __post_init__(self) -> None:
        Table(self.columns)
        if not any(c.name == self.number and isinstance(c, Number) for c in self.columns):
            raise RequestError(
                f"{self.number!r} is not a number among {[c.name for c in self.columns]}"
            )

    @property
    def coded(self) -> tuple[Column, ...]:
        """The number alone."""
        return (self._column,)

    @property
    def _column(self) -> Number:
        return next(c for c in self.columns if c.name == self.number)  # type: ignore[return-value]

    @cached_property
    def table(self) -> Table:
        """The table of the cells."""
        return Table(self.columns)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.table.size

    @cached_property
    def _bins(self) -> Codes:
        """(d,) the bin of the number in every cell."""
        axis = [c.name for c in self.columns].index(self.number)
        return np.asarray(np.indices(self.table.shape)[axis].ravel(), dtype=np.int64)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Half the width of the bin in either direction, in half steps of the grid."""
        first, last = self._column.bin_codes
        width = np.maximum(last - first, 1)[self._bins]
        return -width, width

    @property
    def names(self) -> list[str]:
        """One name per cell."""
        return [f"offset of {self.number}, {cell}" for cell in self.table.names]

    def _offsets(self, codes: Codes) -> Codes:
        column = self._column
        first, last = column.bin_codes
        bins = column.bins_of(codes)
        return 2 * codes - (first + last)[bins]

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, cell_index(self.columns, codes), self._offsets(codes[self.number]))
        return total

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Offsets in the cells, (d, n) int64."""
        cells = cell_index(self.columns, codes)
        values = np.zeros((self.size, len(cells)), dtype=np.int64)
        values[cells, np.arange(len(cells))] = self._offsets(codes[self.number])
        return values

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact where some bin has two grid points: a row adds at most one to one function."""
        if unit == "add_remove":
            return Sensitivity(Fraction(1), Fraction(1))
        return Sensitivity(Fraction(2), Fraction(4))

    def noise_factor(self, budget: Budget, unit: Unit) -> int:
        """16 times the noise of a table if it is Laplace, else 8 times."""
        return _FACTORS[budget.noise]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return super().to_dict() | {"number": self.number}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> BinOffsets:
        """Inverse of `to_dict`."""
        return cls(Table.from_dict(plain, schema).columns, plain["number"])
