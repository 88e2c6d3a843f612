"""Where rows lie inside the bins of a table: offsets from their middles, and B-splines."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, of_weight_one
from dpstats.families.subgroups import (
    Subgroup,
    given_from_plain,
    plain_given,
    require_answered,
    suffix_of,
)
from dpstats.families.tables.cells import Table
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import cell_index

_MOST_CELLS = 2**13
_BITS = 23  # of the largest value
_FINEST, _FINEST_MEAN = 12, 10  # bits of the splines of one number, and of those without knots
_FACTORS = {"laplace": 16, "gaussian": 8}  # 1/16 and 1/64 of a table's price


class SpreadBlock(Block):
    """Functions of the cells of a table, of which a row has values in a few."""

    @abstractmethod
    def spread(self, codes: Mapping[str, Codes]) -> tuple[Codes, Codes]:
        """Cells (s, n) in which rows have values, and these values (s, n)."""

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, *self.spread(codes))
        return total

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        cells, values = self.spread(codes)
        array = np.zeros((self.size, cells.shape[1]), dtype=np.int64)
        array[cells, np.arange(cells.shape[1])] = values
        return array


@dataclass(frozen=True)
class BinOffsets(SpreadBlock):
    """In every cell of a table, the sum of a number's distance from the middle of its bin.

    With the counts of the cells these give the mean inside every bin, so that a smooth function of
    the number has no error of first order in the bins' width. An offset is at most half a bin, so
    it needs far less precision than a count, and `noise_factor` gives it less.

    Examples
    --------
    >>> import dpstats as dps
    >>> from dpstats.families.tables.inside_bins import BinOffsets
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

    def spread(self, codes: Mapping[str, Codes]) -> tuple[Codes, Codes]:
        """Cell of each row (1, n), and its offset there."""
        own, (first, last) = codes[self.number], self._column.bin_codes
        offsets = 2 * own - (first + last)[self._column.bins_of(own)]
        return cell_index(self.columns, codes)[np.newaxis], offsets[np.newaxis]

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


@dataclass(frozen=True)
class SplineTable(SpreadBlock):
    """Products of quadratic B-splines of numbers and indicators of the bins of other columns.

    The splines of a number are not negative and add up to one, as the indicators of its bins do. So
    a row spreads a weight of one over neighbouring cells of a table. A number without inner knots
    has the two functions 1 - y and y, with y in [0, 1] from its first to its last value.

    Attributes
    ----------
    axes : tuple of Column
        Columns of the table.
    knots : tuple of (tuple of int, or None)
        Codes of each number at which its splines change, from the first to the last; None for a
        column that is counted in its bins.
    given : Subgroup, optional
        The rows that the sums are over.

    Notes
    -----
    Two of the splines of a code are rounded to whole units and the third has the rest, which is not
    negative (sensitivity.md, "Splines of numbers").
    """

    axes: tuple[Column, ...]
    knots: tuple[tuple[int, ...] | None, ...]
    given: Subgroup | None = None

    kind: ClassVar[str] = "spline_table"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = [column.name for column in self.axes]
        if len(set(names)) < len(names) or len(self.knots) != len(names) or not any(self.knots):
            raise RequestError("a table of splines needs different columns, numbers among them")
        for column, knots in zip(self.axes, self.knots, strict=True):
            if knots is None:
                continue
            ends = isinstance(column, Number) and (-column.half_points, column.half_points)
            steps = itertools.pairwise(knots)
            if (*knots[:1], *knots[1:][-1:]) != ends or any(b >= c for b, c in steps):
                raise RequestError(
                    f"knots of {column.name!r} must be increasing codes, its first and last "
                    "among them"
                )
        require_answered(self.coded, self.given)
        if self.size > _MOST_CELLS:
            raise RequestError(
                f"splines of {names} have {self.size:,} cells, more than {_MOST_CELLS:,}; use "
                "fewer edges or columns"
            )
        if math.prod(self.units) > 1 << _BITS:
            raise RequestError(f"splines of {names} are too fine for products; use fewer columns")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the table and of the condition."""
        given = () if self.given is None else self.given.columns
        return tuple(dict.fromkeys((*self.axes, *given)))

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers with splines."""
        return tuple(c for c, knots in zip(self.axes, self.knots, strict=True) if knots is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Splines or bins of every column."""
        return tuple(
            column.bins if knots is None else len(knots) + (len(knots) > 2)
            for column, knots in zip(self.axes, self.knots, strict=True)
        )

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def units(self) -> tuple[int, ...]:
        """Sum of the splines of every column; fewer bits where there are several."""
        ends = [None if own is None or len(own) > 2 else own[1] - own[0] for own in self.knots]
        means = [min(end, 1 << _FINEST_MEAN) for end in ends if end is not None]
        curved = sum(own is not None and len(own) > 2 for own in self.knots)
        left = _BITS - (math.prod(means) - 1).bit_length()
        unit = 1 << max(min(left // max(curved, 1), _FINEST), 2)
        return tuple(
            1 if own is None else unit if end is None else min(end, 1 << _FINEST_MEAN)
            for own, end in zip(self.knots, ends, strict=True)
        )

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero, and the product of the units."""
        top = math.prod(self.units)
        return np.zeros(self.size, np.int64), np.full(self.size, top, np.int64)

    @property
    def names(self) -> list[str]:
        """Such as ``spline 2 of age, sex=f``."""
        labels = [
            [f"{c.name}={label}" for label in c.bin_labels] if knots is None
            else [f"spline {i + 1} of {c.name}" for i in range(length)]
            for c, knots, length in zip(self.axes, self.knots, self.shape, strict=True)
        ]  # fmt: skip
        return [", ".join(cell) + suffix_of(self.given) for cell in itertools.product(*labels)]

    def splines(self, axis: int, codes: Codes) -> tuple[Codes, Codes]:
        """First of the splines that codes (n,) of a number are in, and values (s, n) from it on.

        See eq. three-splines of ``docs/explanation/privacy/sensitivity.md``.
        """
        chosen, unit = self.knots[axis], self.units[axis]
        assert chosen is not None
        knots = np.array(chosen, dtype=np.int64)
        at = np.clip(np.searchsorted(knots, codes, side="right") - 1, 0, len(knots) - 2)
        b, c = knots[at], knots[at + 1]
        if len(knots) == 2:
            last = _nearest(unit * (codes - b), c - b)
            return at, np.stack([unit - last, last])
        a, d = knots[np.maximum(at - 1, 0)], knots[np.minimum(at + 2, len(knots) - 1)]
        first = _nearest(unit * (c - codes) ** 2, (c - a) * (c - b))
        last = _nearest(unit * (codes - b) ** 2, (d - b) * (c - b))
        return at, np.stack([first, unit - first - last, last])

    def spread(self, codes: Mapping[str, Codes]) -> tuple[Codes, Codes]:
        """Cells (s, n) over which rows are spread, and their weights (s, n) there."""
        size = len(codes[self.axes[0].name])
        cells, weights = np.zeros((1, size), np.int64), np.ones((1, size), np.int64)
        for axis, (column, length) in enumerate(zip(self.axes, self.shape, strict=True)):
            own = codes[column.name]
            knots = self.knots[axis]
            if knots is None:
                cells = cells * length + column.bins_of(own)
                continue
            inside = np.clip(own, knots[0], knots[-1])  # those of missing cells are not `given`
            first, values = self.splines(axis, inside)
            places = first + np.arange(len(values))[:, np.newaxis]
            shape = len(cells) * len(values), size
            cells = (cells[:, np.newaxis] * length + places).reshape(shape)
            weights = (weights[:, np.newaxis] * values).reshape(shape)
        if self.given is not None:
            weights = weights * self.given.holds(codes)
        return cells, weights

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact, as of the cells of a table: values are not negative and add up to one."""
        return of_weight_one(unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        knots = [None if own is None else list(own) for own in self.knots]
        plain = {"kind": self.kind, "columns": [c.name for c in self.axes], "knots": knots}
        return plain | plain_given(self.given)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> SplineTable:
        """Inverse of `to_dict`."""
        knots = (None if own is None else tuple(map(int, own)) for own in plain["knots"])
        columns = tuple(schema[name] for name in plain["columns"])
        return cls(columns, tuple(knots), given_from_plain(plain, schema))


def _nearest(above: Codes, below: Codes) -> Codes:
    """Fractions rounded to the nearest whole number, halves up."""
    return (2 * above + below) // (2 * below)


def knots_of(number: Number) -> tuple[int, ...]:
    """The first code of every bin of values of a number, and its last code."""
    first, _ = number.bin_codes
    return tuple(dict.fromkeys([*first[: number.value_bins].tolist(), number.half_points]))
