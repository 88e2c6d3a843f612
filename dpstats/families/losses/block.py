"""Blocks of losses at the points of a parameter grid, as integers from 0 to 2^16."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.losses.changes import (
    in_pieces,
    largest_changes,
    largest_norms,
    rounded_root,
)
from dpstats.families.losses.grid import Axis, grid_names
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number

LARGEST = 2**16  # B: rounding a loss costs at most 1 / (2 B) of the largest one
_ENTRIES = 2**20  # losses that are worked on at a time
_LISTED = 5 * 10**6  # losses that are computed to find a sensitivity
_FEWEST = 2**12  # states of a row that are listed where there are more
_CORNERS = 256


class LossBlock(Block):
    """Losses at the points of a grid: functions with values from 0 to B = 2^16."""

    joint = True

    axes: tuple[Axis, ...]

    @abstractmethod
    def values(self, codes: Mapping[str, Codes]) -> Codes:
        """Losses (m, d) int64 in [0, B] of m rows, given as column name -> (m,) codes."""

    if TYPE_CHECKING:  # fields of some blocks, properties of others

        @property
        def unit(self) -> float:
            """The loss that one integer unit is."""

        @property
        def convex(self) -> bool:
            """True if the loss is convex in the parameters."""

    @property
    @abstractmethod
    def reach(self) -> Floats:
        """(p,) bounds on the slope of the loss in each parameter; infinite where unknown."""

    @property
    def largest_loss(self) -> float:
        """Bound on the loss of any row at any point of the box, B units."""
        return self.unit * LARGEST

    @property
    def rounding(self) -> float:
        """Bound on |loss - unit * integer| of any row."""
        return self.unit / 2

    def distinguished(self, column: Column) -> Codes:
        """Codes of a column among which every code has one with the same losses: all of them."""
        return np.asarray(codes_of(column))

    @property
    def continuous(self) -> Collection[str]:
        """Names of numbers in whose value every loss is Lipschitz, whatever their bins."""
        return ()

    def slack(self, gaps: Mapping[str, float]) -> Codes:
        """Bounds (d,) on the change of the integers when such numbers change by `gaps` at most."""
        return np.zeros(self.size, dtype=np.int64)

    @property
    def size(self) -> int:
        """Number of grid points, d."""
        return math.prod(axis.points for axis in self.axes)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero and B: equal noise on all."""
        return np.zeros(self.size, np.int64), np.full(self.size, LARGEST, np.int64)

    @property
    def names(self) -> list[str]:
        """Such as ``loss at Intercept=-2, x=0.5``."""
        return [f"loss at {name}" for name in grid_names(self.axes)]

    @property
    def pieces(self) -> int:
        """Rows whose losses are worked on at a time."""
        return max(1, _ENTRIES // self.size)

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64: every distinct row once, times the number of such rows.

        Products of counts and losses are exact in float64: batches hold fewer than 2^37 rows.
        """
        columns = {c.name: codes[c.name] for c in self.columns}
        distinct, counts = _distinct(columns)
        total = np.zeros(self.size, dtype=np.int64)
        for piece in in_pieces(len(counts), self.pieces):
            values = self.values({name: array[piece] for name, array in distinct.items()})
            total += (counts[piece].astype(np.float64) @ values.astype(np.float64)).astype(np.int64)
        return total

    def functions(self, codes: Mapping[str, Codes]) -> Floats:
        """Losses (d, n) of rows, whole numbers; float64, as points are many."""
        n = len(codes[self.columns[0].name])
        array = np.empty((self.size, n))
        for piece in in_pieces(n, self.pieces):
            rows = {c.name: codes[c.name][piece] for c in self.columns}
            array[:, piece] = self.values(rows).T
        return array

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact where all states of a row are listed, but for very many; else a bound.

        Where numbers have too many grid points, a row is compared with the nearest listed one: each
        function differs there by at most its `slack` (sensitivity.md, "Losses on a grid").
        """
        return _sensitivity(self, unit)

    def listed(self) -> tuple[list[Codes], Codes]:
        """Codes of every column that are listed, and the slack (d,) of the others."""
        every = [self.distinguished(column) for column in self.columns]
        most = max(_LISTED // self.size, _FEWEST)
        if math.prod(len(codes) for codes in every) <= most:
            return every, self.slack({})
        numbers = [i for i, c in enumerate(self.columns) if c.name in self.continuous]
        others = math.prod(len(codes) for i, codes in enumerate(every) if i not in numbers)
        each = int((most / others) ** (1 / max(len(numbers), 1)) + 1e-9)
        if not numbers or each < 3:
            raise RequestError(
                f"losses of {[c.name for c in self.columns]} have too many states of a row for a "
                "sensitivity; use fewer columns, fewer levels or fewer grid points"
            )
        gaps = {}
        for i in numbers:
            column, codes = self.columns[i], every[i]
            assert isinstance(column, Number)
            chosen = np.unique(np.rint(np.linspace(0, len(codes) - 1, each)).astype(np.int64))
            values = column.grid[codes + column.half_points]
            cuts = (values[chosen][1:] + values[chosen][:-1]) / 2
            nearest = values[chosen][np.searchsorted(cuts, values)]
            gaps[column.name] = float(np.abs(values - nearest).max())
            every[i] = codes[chosen]
        return every, self.slack(gaps)

    def states(self, lists: Sequence[Codes]) -> Iterator[Codes]:
        """Losses (m, d) of all combinations of codes, in pieces."""
        shape = [len(codes) for codes in lists]
        for piece in in_pieces(math.prod(shape), self.pieces):
            place = np.unravel_index(np.arange(piece.start, piece.stop), shape)
            pairs = zip(self.columns, lists, place, strict=True)
            yield self.values({c.name: codes[at] for c, codes, at in pairs})


@lru_cache(maxsize=32)
def _sensitivity(block: LossBlock, unit: Unit) -> Sensitivity:
    lists, slack = block.listed()
    if unit == "add_remove":
        (l1, l2_squared), times = largest_norms(lambda: block.states(lists)), 1
    else:
        ends = [codes[[0, -1]] if isinstance(c, Number) else codes
                for c, codes in zip(block.columns, lists, strict=True)]  # fmt: skip
        corners = next(block.states(ends))[:_CORNERS]
        (l1, l2_squared), times = largest_changes(lambda: block.states(lists), corners), 2
    if slack.any():
        l1 += times * int(slack.sum())
        longest = rounded_root(l2_squared) + times * rounded_root(int((slack * slack).sum()))
        l2_squared = longest**2
    return Sensitivity(Fraction(l1, LARGEST), Fraction(l2_squared, LARGEST**2))


def codes_of(column: Column) -> Codes:
    """All codes of a column."""
    return column.all_codes if isinstance(column, Number) else np.arange(column.bins)


def _distinct(columns: Mapping[str, Codes]) -> tuple[dict[str, Codes], Codes]:
    """The distinct rows, by column, and how often each occurs, (m,) int64."""
    lows = {name: int(codes.min()) for name, codes in columns.items() if len(codes)}
    if not lows:
        return dict(columns), np.empty(0, dtype=np.int64)
    spans = [int(columns[name].max()) - low + 1 for name, low in lows.items()]
    if math.prod(spans) >= 2**62:
        return dict(columns), np.ones(len(next(iter(columns.values()))), dtype=np.int64)
    index = np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
    for (name, low), span in zip(lows.items(), spans, strict=True):
        index = index * span + (columns[name] - low)
    _, first, counts = np.unique(index, return_index=True, return_counts=True)
    return {name: codes[first] for name, codes in columns.items()}, counts.astype(np.int64)


def grid_points(axes: Sequence[Axis]) -> Floats:
    """(d, p) the points of a grid, the last axis running first."""
    return np.array(list(itertools.product(*(axis.values for axis in axes))))
