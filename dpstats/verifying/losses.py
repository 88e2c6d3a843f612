"""Losses at the points of a grid of parameters, as whole numbers from 0 to 2^16."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Any

from dpstats.verifying.columns import Column
from dpstats.verifying.functions import Block, Feature, Row, Sums

LARGEST = 2**16
FEW_LOSSES = 4_000_000  # that are compared pair by pair
_KNOTS, _LAST = 64, 40
_MOST_WORK = 2_000_000  # losses that are compared

Box = dict[str, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class LinearLosses(Block):
    """A loss of a response and of a linear predictor, numbers taken from their middles."""

    loss: dict[str, Any]
    response: Feature
    regressors: tuple[Feature | None, ...]
    axes: tuple[tuple[float, float, int], ...]

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Columns by their names."""
        return {column.name: column for column in self.columns}

    @cached_property
    def along(self) -> list[list[float]]:
        """Values of every parameter."""
        return [
            [low + (high - low) * i / (points - 1) for i in range(points)]
            for low, high, points in self.axes
        ]

    @cached_property
    def bounds(self) -> Sequence[int]:
        """65536."""
        return [LARGEST] * math.prod(points for _, _, points in self.axes)

    @property
    def lipschitz(self) -> float:
        """Largest slope of the loss in the predictor, and in a response that is a number."""
        kind = self.loss["kind"]
        if kind == "pinball":
            p = float(self.loss.get("probability", 0.5))
            return max(p, 1 - p)
        return float(self.loss["k"]) if kind == "huber" else 1.0

    def loss_of(self, response: float, predictor: float) -> float:
        """The loss itself."""
        kind = self.loss["kind"]
        if kind == "logistic":
            wrong = -predictor if response > 0 else predictor
            knots = _softplus()
            place = min(abs(wrong), _LAST) * _KNOTS
            k = min(int(place), len(knots) - 2)
            return max(wrong, 0.0) + (knots[k] + (place - k) * (knots[k + 1] - knots[k]))
        residual = response - predictor
        if kind == "huber":
            inner = min(abs(residual), float(self.loss["k"]))
            return inner * (abs(residual) - inner / 2)
        p = float(self.loss.get("probability", 0.5))
        return max(p * residual, (p - 1) * residual)

    def _value(self, feature: Feature, code: int) -> float:
        column = self.by_name[feature[0]]
        if feature[1] is not None:
            return float(column.bin_of[code] == feature[1])
        low, high = column.ends
        found: float = column.values.get(code, low + (high - low) * (code / column.half + 1) / 2)
        return found

    def middle(self, feature: Feature | None) -> float:
        """What is taken off a regressor."""
        if feature is None or feature[1] is not None:
            return 0.0
        low, high = self.by_name[feature[0]].ends
        return (low + high) / 2

    @cached_property
    def unit(self) -> float:
        """The loss that is one: the largest one, at a corner of the box, over 65536."""
        sides = []
        for (low, high, _), feature in zip(self.axes, self.regressors, strict=True):
            span = (1.0, 1.0) if feature is None else (0.0, 1.0)
            if feature is not None and feature[1] is None:
                ends, middle = self.by_name[feature[0]].ends, self.middle(feature)
                span = ends[0] - middle, ends[1] - middle
            sides.append([b * x for b in (low, high) for x in span])
        predictors = sum(map(min, sides)), sum(map(max, sides))
        column = self.by_name[self.response[0]]
        responses = column.ends if column.is_number else (0.0, 1.0)
        largest = max(self.loss_of(y, t) for y in responses for t in predictors)
        return largest * (1 + 1e-9) / LARGEST

    def vector(self, row: Row) -> list[int]:
        """All losses of a row."""
        predictors = [0.0]
        for feature, values in zip(self.regressors, self.along, strict=True):
            own = 1.0
            if feature is not None:
                own = self._value(feature, row[feature[0]]) - self.middle(feature)
            steps = [own * value for value in values]
            predictors = [before + step for before in predictors for step in steps]
        response, unit, loss = (
            self._value(self.response, row[self.response[0]]),
            self.unit,
            self.loss_of,
        )
        return [math.floor(loss(response, t) / unit + 0.5) for t in predictors]

    def of(self, row: Row) -> Sums:
        """The losses of a row."""
        return dict(enumerate(self.vector(row)))

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of numbers that enter by their value, one of every bin of others."""
        used = (column.name, None) in (self.response, *self.regressors)
        return column.codes if used else self.one_of_each_bin(column)

    def ranges(self, box: Box) -> tuple[list[int], list[int]]:
        """Least and largest of every loss over a box of rows, or one beyond them, for rounding.

        The predictor is largest and least at ends of the box, and the loss, convex in the response
        less the predictor, is largest at an end and least at zero or an end.
        """
        low, high = [0.0], [0.0]
        for feature, values in zip(self.regressors, self.along, strict=True):
            ends = [1.0]
            if feature is not None:
                middle = self.middle(feature)
                ends = [self._value(feature, code) - middle for code in box[feature[0]]]
            steps = [sorted(end * value for end in ends) for value in values]
            low = [before + step[0] for before in low for step in steps]
            high = [before + step[-1] for before in high for step in steps]
        responses = sorted(self._value(self.response, code) for code in box[self.response[0]])
        least, most = [], []
        for t, u in zip(low, high, strict=True):
            ends = [self.loss_of(responses[0], u), self.loss_of(responses[-1], t)]
            inside = responses[0] - u <= 0 <= responses[-1] - t
            bottom = 0.0 if inside and self.loss["kind"] != "logistic" else min(ends)
            least.append(math.floor(bottom / self.unit + 0.5) - 1)
            most.append(math.floor(max(ends) / self.unit + 0.5) + 1)
        return least, most


@dataclass(frozen=True, eq=False)
class TabulatedLosses(Block):
    """Losses that the file lists: one line for every state of some columns."""

    @property
    def lines(self) -> list[list[int]]:
        """The table."""
        found: list[list[int]] = self.plain["loss"]["losses"]
        return found

    @cached_property
    def bounds(self) -> Sequence[int]:
        """65536."""
        return [LARGEST] * len(self.lines[0])

    def vector(self, row: Row) -> list[int]:
        """The line of a row: columns in the order of the table, the last one running first."""
        at = 0
        for column in self.columns:
            at = at * len(column.codes) + column.codes.index(row[column.name])
        return self.lines[at]

    def of(self, row: Row) -> Sums:
        """The losses of a row."""
        return dict(enumerate(self.vector(row)))


def vectors(block: LinearLosses | TabulatedLosses) -> list[tuple[int, ...]]:
    """The distinct losses of all rows."""
    return list(dict.fromkeys(tuple(block.vector(row)) for row in block.rows()))


@lru_cache(maxsize=1)
def _softplus() -> list[float]:
    """log(1 + exp(-u)) at u = 0, 1/64, .., 40: between them the loss is a straight line."""
    with localcontext() as context:
        context.prec = 20
        points = (Decimal(j) / _KNOTS for j in range(_LAST * _KNOTS + 1))
        return [float((1 + (-u).exp()).ln()) for u in points]


def grid_of(axes: Sequence[Sequence[Any]]) -> tuple[tuple[float, float, int], ...]:
    """The axes of a block of losses, as least value, largest value and number of points."""
    return tuple((float(low), float(high), int(points)) for _, low, high, points in axes)


Ends = tuple[tuple[int, int], ...]
_Pair = tuple["_Part", "_Part | None"]


@dataclass(frozen=True, order=True)
class _Part:
    """Rows with codes between two, by their places in the lists of codes."""

    ends: Ends

    @property
    def one(self) -> bool:
        """Whether it is a single row."""
        return all(last - first == 1 for first, last in self.ends)

    @property
    def width(self) -> int:
        """Codes along its widest side."""
        return max(last - first for first, last in self.ends)

    def halves(self) -> list[_Part]:
        """Two parts, divided along the widest side."""
        wide = max(range(len(self.ends)), key=lambda i: self.ends[i][1] - self.ends[i][0])
        first, last = self.ends[wide]
        middle = (first + last) // 2
        sides = (first, middle), (middle, last)
        return [_Part((*self.ends[:wide], side, *self.ends[wide + 1 :])) for side in sides]


def divided(block: LinearLosses, unit: str, power: int) -> tuple[int, int, int]:
    """Divide the rows until what is farthest apart is two rows: reached, a bound, and the parts."""
    names = [column.name for column in block.columns]
    codes = [list(block.codes(column)) for column in block.columns]
    used = [f for f in (block.response, *block.regressors) if f is not None]
    by_bin = {name for name, level in used if level is not None}
    start = [
        [(i, i + 1) for i in range(len(own))] if name in by_bin else [(0, len(own))]
        for name, own in zip(names, codes, strict=True)
    ]
    known: dict[_Part, tuple[list[int], list[int], tuple[int, ...]]] = {}

    def at(part: _Part) -> tuple[list[int], list[int], tuple[int, ...]]:
        if part not in known:
            box = {
                n: (own[a], own[b - 1])
                for n, own, (a, b) in zip(names, codes, part.ends, strict=True)
            }
            row = {
                n: own[a if part.one else b - 1]
                for n, own, (a, b) in zip(names, codes, part.ends, strict=True)
            }
            vector = tuple(block.vector(row))
            low, high = (list(vector), list(vector)) if part.one else block.ranges(box)
            known[part] = low, high, vector
        return known[part]

    def measured(one: _Part, other: _Part | None) -> tuple[int, int]:
        low, high, vector = at(one)
        if other is None:  # twice the losses, less the centre
            ends = zip(low, high, centre, strict=True)
            sizes = [max(2 * h - c, c - 2 * n) for n, h, c in ends]
            apart = [abs(2 * v - c) for v, c in zip(vector, centre, strict=True)]
        else:
            lower, higher, beside = at(other)
            both = zip(low, high, lower, higher, strict=True)
            sizes = [max(h - m, g - n) for n, h, m, g in both]
            apart = [abs(v - w) for v, w in zip(vector, beside, strict=True)]
        if power == 1:
            return sum(sizes), sum(apart)
        return sum([v * v for v in sizes]), sum([v * v for v in apart])

    def search(start: Sequence[_Pair], limit: int) -> tuple[int, int]:
        reached = work = 0
        heap: list[tuple[int, int, _Part, _Part | None]] = []
        pairs = list(start)
        while True:
            for one, other in pairs:
                work += block.size
                most, found = measured(one, other)
                reached = max(reached, found)
                if most > reached:
                    heapq.heappush(heap, (-most, work, one, other))
            if not heap or -heap[0][0] <= reached:
                return reached, reached
            if work > limit:
                return reached, -heap[0][0]
            _, _, first, second = heapq.heappop(heap)
            if second is not None and second.width > first.width:
                first, second = second, first
            halves = first.halves()
            pairs = [(half, second) for half in halves]
            if second == first:
                pairs = [(halves[i], halves[j]) for i, j in ((0, 0), (0, 1), (1, 1))]

    parts = [_Part(ends) for ends in itertools.product(*start)]
    centre = [0] * block.size
    if unit == "add_remove":
        reached, bound = search([(part, None) for part in parts], _MOST_WORK)
        return reached // 2**power, -(-bound // 2**power), len(known)
    pairs = [(one, other) for i, one in enumerate(parts) for other in parts[i:]]
    reached, bound = search(pairs, _MOST_WORK)
    if bound > reached:
        # no two rows are farther apart than twice the largest distance from any one point
        centre = _middle(block, codes, names, power)
        bound = min(bound, search([(part, None) for part in parts], _MOST_WORK)[1])
    return reached, bound, len(known)


def _middle(
    block: LinearLosses, codes: Sequence[Sequence[int]], names: Sequence[str], power: int
) -> list[int]:
    """Twice a point that is not far from any of some rows: their mean, or the middle of ranges."""
    few = [[own[i * (len(own) - 1) // 5] for i in range(6)] for own in codes]
    chosen = (dict(zip(names, row, strict=True)) for row in itertools.product(*few))
    some = list({tuple(block.vector(row)) for row in itertools.islice(chosen, 1_000)})
    by_loss = list(zip(*some, strict=True))
    mean = [2 * sum(own) // len(own) for own in by_loss]
    middle = [min(own) + max(own) for own in by_loss]

    def farthest(point: list[int]) -> int:
        pairs = (zip(vector, point, strict=True) for vector in some)
        sizes: list[int] = [sum(abs(2 * a - b) ** power for a, b in one) for one in pairs]
        return max(sizes)

    return min(mean, middle, key=farthest)
