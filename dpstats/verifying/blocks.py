"""Blocks of test functions, and how much one row moves their sums.

A row is a mapping of column name to code. A sensitivity is in units of the functions' bounds B: for
power 1 the sum of absolute changes, for power 2 that of squared changes, as Laplace and Gaussian
noise need them. Neighbours replace a row, or add one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from dpstats.verifying.columns import Column

Row = Mapping[str, int]
Sums = dict[int, int]  # values that are not zero, by function
Feature = tuple[str, int | None]
Term = tuple[Feature, ...]
Argument = Callable[[str, int], Fraction]  # a bound for a neighbour relation and a power
Box = dict[str, tuple[int, int]]  # first and last code of every column
Ranges = tuple[list[int], list[int]]
Part = tuple[tuple[int, int], ...]  # places of the first and last code of every column
SIGN = -1
_MOST = 2_000_000  # functions times pairs of rows, where there is another argument
_MOST_COMPARED = 3_000_000  # values that are subtracted
_ROWS = 32  # of a search, and fewer where there are many functions
_SEARCHED = 20_000


@dataclass(frozen=True)
class Finding:
    """Knowledge of a sensitivity: what some rows reach, what none exceeds, and why."""

    reached: Fraction
    bound: Fraction
    how: str


@dataclass(frozen=True, eq=False)
class Block:
    """Functions that are measured together."""

    plain: dict[str, Any]  # as the file writes it
    columns: tuple[Column, ...]
    bounds: Sequence[int]  # B of every function
    of: Callable[[Row], Sums] | None  # of a row; None where no published row is evaluated
    argue: Argument | None = None  # a bound on the sensitivity for any number of rows
    how: str = ""  # it is argued
    by_value: Set[str] = frozenset()  # columns of which every code matters, and not the bin alone
    signed: Sequence[bool] = ()  # functions that can be negative, where some can
    listed: bool = True  # rows tell all: no person has a mean of rows
    ranges: Callable[[Box], Ranges] | None = None  # of functions over a box of rows, if it is known
    base: Block | None = None  # whose functions are summed with a sign and in one of several sums

    @property
    def kind(self) -> str:
        """As the file names it."""
        return str(self.plain["kind"])

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.bounds)

    def codes(self) -> list[Sequence[int]]:
        """Codes of every column that functions tell apart."""
        return [c.codes if c.name in self.by_value else c.one_of_each_bin for c in self.columns]


def by_sets(sets: Iterable[tuple[bool, int]], unit: str, power: int) -> Fraction:
    """A bound from sets of functions of which a row has absolute values that add up to one at most.

    A set is (whether it can be negative, its number of functions). An added row changes it by one.
    A replaced one changes a single function that is not negative by one; others by two; and squares
    by two where no product of the values of two rows is negative, else by four (eq. set-by-set of
    ``docs/explanation/privacy/sensitivity.md``).
    """
    changes = [2**power if signed else min(2, count) for signed, count in sets]
    return Fraction(len(changes) if unit == "add_remove" else sum(changes))


def alternatives(terms: Iterable[Term]) -> Counter[tuple[Term, tuple[str, ...]]]:
    """How many terms share all but their levels: a row has a value at one of them at most."""
    return Counter(
        (tuple(f for f in t if not is_level(f)), tuple(f[0] for f in t if is_level(f)))
        for t in terms
    )


def sets_of(terms: Iterable[Term]) -> list[tuple[bool, int]]:
    """Alternatives, as `by_sets` takes them."""
    return [(is_signed(values), count) for (values, _), count in alternatives(terms).items()]


def is_level(feature: Feature) -> bool:
    """True if a feature is the indicator of a level, and not a number or a sign."""
    return feature[1] is not None and feature[1] != SIGN


def is_signed(term: Term) -> bool:
    """True if a product can be negative: some number or sign has an odd power."""
    return any(n % 2 for f, n in Counter(term).items() if not is_level(f))


def find(block: Block, unit: str, power: int) -> Finding:
    """The sensitivity of a block: by all of its rows where these are few, else by an argument."""
    if block.base is not None:
        added = find(block.base, "add_remove", power)
        times = 2**power if unit == "replace" else 1
        how = f"a row has one sign in one contrast; of the functions, {added.how}"
        return Finding(times * added.reached, times * added.bound, how)
    states = math.prod(map(len, block.codes()))
    if block.argue is not None and not (block.listed and states**2 * block.size <= _MOST):
        argued = block.argue(unit, power)
        exact = block.kind == "residual" and power == 2
        return Finding(argued if exact else search(block, unit, power), argued, block.how)
    common = math.lcm(*set(block.bounds))
    reached, bound = divide(block, unit, power, [common // bound for bound in block.bounds])
    how = f"all {states:,} rows, in boxes that were divided while two could be farther apart"
    return Finding(Fraction(reached, common**power), Fraction(bound, common**power), how)


def find_weighted(block: Block, unit: str, power: int) -> Finding:
    """Sensitivity of a block to rows whose weights, from 0 to 1 here, change if rows are replaced.

    A norm of u f(x) - v f(y) is convex in the weights u and v, so that it is largest where each is
    0 or 1: the rows x and y are exchanged, or one of them is added.
    """
    found = [find(block, each, power) for each in dict.fromkeys((unit, "add_remove"))]
    most = max(found, key=lambda one: one.bound)
    return Finding(max(one.reached for one in found), most.bound, most.how)


def divide(block: Block, unit: str, power: int, weights: Sequence[int]) -> tuple[int, int]:
    """Divide boxes of rows until the two farthest apart are rows: what is reached, and a bound.

    A row that is added is compared with none, on which every function is zero.
    """
    names, codes, values_of = [c.name for c in block.columns], block.codes(), block.of
    assert values_of is not None

    def halves(part: Part) -> list[Part]:
        wide = max(range(len(part)), key=lambda i: part[i][1] - part[i][0])
        first, last = part[wide]
        middle = (first + last) // 2
        sides = (first, middle), (middle + 1, last)
        return [(*part[:wide], side, *part[wide + 1 :]) for side in sides]

    @cache
    def at(part: Part | None) -> Ranges:
        if part is None:
            return [0] * block.size, [0] * block.size
        ends = zip(codes, part, strict=True)
        box = dict(zip(names, [(own[a], own[b]) for own, (a, b) in ends], strict=True))
        if all(a == b for a, b in part):
            values = values_of({name: code for name, (code, _) in box.items()})
            row = [values.get(f, 0) * weight for f, weight in enumerate(weights)]
            return row, row
        if block.ranges is not None:
            return block.ranges(box)
        (low, high), (least, most) = map(at, halves(part))
        return list(map(min, low, least)), list(map(max, high, most))

    def measure(one: Part, other: Part | None) -> int:
        (low, high), (least, most) = at(one), at(other)
        sizes = [max(h - m, g - n) for n, h, m, g in zip(low, high, least, most, strict=True)]
        return sum(size**power for size in sizes)

    starts = []
    for column, own in zip(block.columns, codes, strict=True):
        apart = column.name not in block.by_value
        starts.append([(i, i) for i in range(len(own))] if apart else [(0, len(own) - 1)])
    parts = list(itertools.product(*starts))
    pairs: list[tuple[Part, Part | None]] = [(part, None) for part in parts]
    if unit == "replace":
        pairs = list(itertools.combinations_with_replacement(parts, 2))
    heap: list[tuple[int, int, Part, Part | None]] = []
    reached = work = 0
    while True:
        for one, other in pairs:
            work += block.size
            if (bound := measure(one, other)) > reached:
                last = tuple((b, b) for _, b in one)
                reached = max(reached, measure(last, other and tuple((a, a) for a, _ in other)))
                heapq.heappush(heap, (-bound, work, one, other))
        if not heap or -heap[0][0] <= reached:
            return reached, reached
        if work > _MOST_COMPARED:
            return reached, -heap[0][0]
        _, _, one, other = heapq.heappop(heap)
        widths = [max((b - a for a, b in part or ()), default=0) for part in (one, other)]
        if one == other:
            first, last = halves(one)
            pairs = [(first, first), (first, last), (last, last)]
        elif widths[1] > widths[0]:
            pairs = [(one, half) for half in halves(other or ())]
        else:
            pairs = [(half, other) for half in halves(one)]


def search(block: Block, unit: str, power: int) -> Fraction:
    """The largest change between some rows whose cells have the first, middle or last code."""
    if block.of is None:
        return Fraction(0)
    rows, common = list[Sums](), math.lcm(*set(block.bounds))
    present = [[code for code in c.codes if code != c.missing] or c.codes for c in block.columns]
    ends = [(own[0], own[len(own) // 2], own[-1]) for own in present]
    names = [column.name for column in block.columns]
    for r in range(
        min(_ROWS, 3 + _SEARCHED // block.size)
    ):  # three alike, and then as if at random
        places = [r if r < 3 else pow(3, r * (i + 1), 127) % 3 for i in range(len(names))]
        cells = {name: own[at] for name, own, at in zip(names, ends, places, strict=True)}
        values = block.of(cells).items()
        rows.append({f: value * (common // block.bounds[f]) for f, value in values})

    def change(one: Sums, other: Sums) -> int:
        return sum(abs(one.get(f, 0) - other.get(f, 0)) ** power for f in {*one, *other})

    pairs = itertools.combinations(rows, 2) if unit == "replace" else ((row, {}) for row in rows)
    return Fraction(max(itertools.starmap(change, pairs)), common**power)
