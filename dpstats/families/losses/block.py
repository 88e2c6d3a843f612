"""Blocks of losses at the points of a parameter grid, as integers from 0 to 2^16."""

from __future__ import annotations

import bisect
import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import as_float, short
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number

LARGEST = 2**16  # B: rounding a loss costs at most 1 / (2 B) of the largest one
_ENTRIES = 2**20  # losses that are worked on at a time
_LISTED = 5 * 10**6  # losses that are computed to find a sensitivity
_FEWEST = 2**12  # states of a row that are listed where there are more
_CORNERS = 256
_KEPT = 10**6  # entries of losses that are compared in pairs
_WORK = 10**8  # entries that are subtracted where losses of states are compared in pairs

MOST_PARAMETERS = 3
MOST_GRID_POINTS = 2_048


@dataclass(frozen=True)
class Axis:
    """Evenly spaced values of one parameter, both ends included."""

    name: str
    low: float
    high: float
    points: int

    @property
    def values(self) -> Floats:
        """(points,) increasing."""
        steps = self.points - 1
        return self.low + (self.high - self.low) * np.arange(self.points) / steps

    @property
    def step(self) -> float:
        """Distance of neighbouring values."""
        return (self.high - self.low) / (self.points - 1)


def axes_of(grid: Mapping[str, Sequence[Any]]) -> tuple[Axis, ...]:
    """The axes of a grid given as name -> (low, high, points)."""
    if not isinstance(grid, Mapping) or not grid:
        raise RequestError(
            "grid must name the parameters, each with its least and largest value and the number "
            f"of points, such as {{'Intercept': (-2, 2, 21), 'x': (-2, 2, 21)}}; got {short(grid)}"
        )
    axes = tuple(_axis(name, given) for name, given in grid.items())
    size = math.prod(axis.points for axis in axes)
    if len(axes) > MOST_PARAMETERS or size > MOST_GRID_POINTS:
        raise RequestError(
            f"a grid of {len(axes)} parameters with {size} points; at most {MOST_PARAMETERS} "
            f"parameters and {MOST_GRID_POINTS} points can be measured well: take fewer of them"
        )
    return axes


def _axis(name: Any, given: Any) -> Axis:
    try:
        low, high, points = given
        low, high = as_float(low), as_float(high)
        good = bool(np.isfinite(low) and np.isfinite(high) and low < high)
        good = good and not isinstance(points, bool) and int(points) == points and points >= 3
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good or not isinstance(name, str):
        several = isinstance(given, list | tuple) and len(given) == 3
        shown = f"({', '.join(map(short, given))})" if several else short(given)
        raise RequestError(
            f"the grid of {short(name)} must be its least and its largest value and a number of "
            f"points of at least 3, such as (-2, 2, 21); got {shown}"
        )
    return Axis(name, low, high, int(points))


def grid_names(axes: Sequence[Axis]) -> list[str]:
    """One name per point of the grid, such as ``Intercept=-2, x=0.5``; the last axis runs first."""
    texts = [[f"{axis.name}={value:.6g}" for value in axis.values] for axis in axes]
    return [", ".join(point) for point in itertools.product(*texts)]


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
        function differs there by at most its `slack` (eq. slack-of-loss of
        ``docs/explanation/privacy/sensitivity.md``).
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
    losses = np.concatenate([piece.astype(np.int32) for piece in block.states(lists)])
    if unit == "add_remove":
        (l1, l2_squared), times = (int(_distances(losses, 0, p).max()) for p in (1, 2)), 1
    else:
        ends = [codes[[0, -1]] if isinstance(c, Number) else codes
                for c, codes in zip(block.columns, lists, strict=True)]  # fmt: skip
        corners = next(block.states(ends))[:_CORNERS]
        (l1, l2_squared), times = (largest_distance(losses, corners, p) for p in (1, 2)), 2
    if slack.any():
        l1 += times * int(slack.sum())
        longest = _root(l2_squared) + times * _root(int((slack * slack).sum()))
        l2_squared = longest**2
    return Sensitivity(Fraction(l1, LARGEST), Fraction(l2_squared, LARGEST**2))


def largest_distance(
    vectors: NDArray[np.integer[Any]], some: NDArray[np.integer[Any]], power: int
) -> int:
    """Bound on the L1 (power 1) or squared L2 distance of two vectors of (m, d).

    With a + b twice a centre, two vectors have 2 |u - v| <= |2u - a - b| + |2v - a - b| (eq.
    pairs-of-states). In decreasing order of the norms on the right, pairs are compared until their
    bound is no larger than the largest distance found: then that is exact. Where it takes too long,
    the bound of the next pair is returned, or of the farthest vector with one that is not compared.
    The centre is that of the farthest two of `some` (c, d) of the vectors.
    """
    found = [_distances(some[i:], some[i], power) for i in range(len(some))]
    i = int(np.argmax([own.max() for own in found]))
    norms = _distances(vectors, some[i] + some[i + found[i].argmax()], power, times=2)
    order = np.argsort(-norms, kind="stable")
    vectors, decreasing = vectors[order], norms[order].tolist()

    def bound(one: int, other: int) -> int:
        """Largest distance of two vectors with these doubled distances from the centre."""
        if power == 1:
            return (one + other) // 2
        return (one + other + 2 * (math.isqrt(one * other) + 1)) // 4

    keep = max(2, _KEPT // vectors.shape[1])
    with_others = bound(decreasing[0], decreasing[keep]) if len(decreasing) > keep else 0
    decreasing = decreasing[:keep]
    best, work = int(found[i].max()), 0
    for at, norm in enumerate(decreasing[:-1], start=1):
        # Bounds decrease: compare only the vectors whose bound is above the best so far.
        last = bisect.bisect_left(decreasing, -best, lo=at, key=lambda other: -bound(norm, other))
        if last == at:
            break
        if work > _WORK:
            best = bound(norm, decreasing[at])
            break
        best = max(best, int(_distances(vectors[at:last], vectors[at - 1], power).max()))
        work += vectors[at:last].size
    return max(best, with_others)


def _distances(
    vectors: NDArray[np.integer[Any]],
    point: NDArray[np.integer[Any]] | int,
    power: int,
    times: int = 1,
) -> Codes:
    """(m,) L1 or squared L2 distances of a multiple of vectors from a point."""
    found = []
    for piece in in_pieces(len(vectors), max(1, _ENTRIES // vectors.shape[1])):
        moved = times * vectors[piece].astype(np.int64) - point
        found.append((np.abs(moved) if power == 1 else moved * moved).sum(axis=1))
    return np.concatenate(found)


def in_pieces(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `total`."""
    return (slice(first, min(first + size, total)) for first in range(0, total, size))


def _root(square: int) -> int:
    """Square root, rounded up."""
    return math.isqrt(square - 1) + 1 if square else 0


def codes_of(column: Column) -> Codes:
    """All codes of a column."""
    return column.all_codes if isinstance(column, Number) else np.arange(column.bins)


def _distinct(columns: Mapping[str, Codes]) -> tuple[dict[str, Codes], Codes]:
    """The distinct rows, by column, and how often each occurs, (m,) int64."""
    import pandas as pd

    rows = pd.DataFrame(dict(enumerate(columns.values())))
    counts = rows.groupby(list(rows), sort=False).size()
    levels = [counts.index.get_level_values(i).to_numpy() for i in range(len(columns))]
    return dict(zip(columns, levels, strict=True)), counts.to_numpy().astype(np.int64)


def grid_points(axes: Sequence[Axis]) -> Floats:
    """(d, p) the points of a grid, the last axis running first."""
    return np.array(list(itertools.product(*(axis.values for axis in axes))))
