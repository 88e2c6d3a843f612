"""Cells of a table over which rows are spread by B-splines: sums of smooth functions of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

_MOST_CELLS = 2**13
_BITS = 23  # of the largest value
_FINEST, _FINEST_MEAN = 12, 10  # bits of the splines of one number, and of those without knots


@dataclass(frozen=True)
class SplineTable(Block):
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
        """First of the splines that codes (n,) of a number are in, and values (s, n) from it on."""
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

    def _spread(self, codes: Mapping[str, Codes]) -> tuple[Codes, Codes]:
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
            cells = (cells[:, np.newaxis] * length + places).reshape(-1, size)
            weights = (weights[:, np.newaxis] * values).reshape(-1, size)
        if self.given is not None:
            weights = weights * self.given.holds(codes)
        return cells, weights

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, *self._spread(codes))
        return total

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        cells, weights = self._spread(codes)
        values = np.zeros((self.size, cells.shape[1]), dtype=np.int64)
        values[cells, np.arange(cells.shape[1])] = weights
        return values

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
