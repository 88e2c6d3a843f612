"""Every kind of block, from its keys: see "Functions and their bounds" of the file's reference.

The proofs that are cited are in ``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

from dpstats.verifying import blocks
from dpstats.verifying.blocks import SIGN, Argument, Block, Box, Feature, Ranges, Row, Sums, Term
from dpstats.verifying.columns import Column
from dpstats.verifying.products import bound_products
from dpstats.verifying.shapes import NUMBER, check, fraction, refuse

UNIT = 2**16
_KNOTS, _LAST = 64, 40
BALL = 2**13
COARSE = 64  # steps to either side of the numbers of coarse moments
_PERSON_STEPS = 2048
_MOST_PARTS = 4095  # of a number, that all parts of a pair add up to
_EVERY = 2**62
Columns = Mapping[str, Column]
Entries = Sequence[tuple[int, int]]  # of a vector, those that are not zero
Plain = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Axis:
    """One factor of products: a vector for each code of a column."""

    column: Column
    units: Sequence[int]  # B of its entries
    vector: Callable[[int], Entries]
    by_value: bool = True  # the vector depends on the code, and not on its bin alone

    @cached_property
    def norms(self) -> tuple[Fraction, Fraction, bool]:
        """Largest L1 and squared L2 norm of a vector, in units, and whether an entry is negative.

        Values of missing cells are in no group, or an entry of their own.
        """
        own, common = self.column, math.lcm(*self.units)
        codes = own.codes if self.by_value else own.one_of_each_bin
        vectors = [
            [v * (common // self.units[i]) for i, v in self.vector(code)]
            for code in codes
            if not (self.by_value and code == own.missing)
        ]
        l1, l2 = (max(sum(abs(v) ** p for v in vector) for vector in vectors) for p in (1, 2))
        negative = any(v < 0 for vector in vectors for v in vector)
        return Fraction(l1, common), Fraction(l2, common**2), negative


@dataclass(frozen=True)
class Group:
    """A subgroup: rows in listed cells of some columns that have a value of others."""

    columns: tuple[Column, ...]
    cells: frozenset[int]
    answered: tuple[Column, ...] = ()

    @property
    def names(self) -> set[str]:
        """Names of the columns that it depends on."""
        return {column.name for column in (*self.columns, *self.answered)}

    def holds(self, row: Row) -> bool:
        """True if a row is in it."""
        inside = cell_of(self.columns, row) in self.cells
        return inside and all(row[c.name] != c.missing for c in self.answered)


def cell_of(columns: Sequence[Column], row: Row) -> int:
    """The flat index of a row's cell, the last column running first."""
    index = 0
    for column in columns:
        index = index * column.bins + column.bin_of[row[column.name]]
    return index


def read_block(plain: Plain, columns: Columns, others: Plain | None = None) -> Block:
    """The functions of a block, from its keys; it may have others."""
    kind = str(plain.get("kind"))
    refuse(kind not in KINDS, f"has blocks of a kind that is not known: {kind!r}")
    check(plain, {"kind": str} | KINDS[kind].keys | (others or {}), kind)
    return KINDS[kind].read(plain, columns)


def multiply(
    plain: Plain, columns: Columns, axes: Sequence[Axis], groups: Sequence[Group] | None = None
) -> Block:
    """Products of one entry of each axis, in every group; the last axis runs first.

    No row is in two groups, and the norm of all products is the product of norms. Two rows are at
    most twice the largest norm apart; in squares, by the scalar product, twice its square where no
    entry is negative, and else four times.
    """
    tables = [(axis.column.name, len(axis.units), axis.vector) for axis in axes]
    names = {name for name, _, _ in tables}
    refuse(len(names) < len(axes), "has a block with a column twice")
    cells = [cell for group in groups or () for cell in group.cells]
    overlap = len({(g.columns, g.answered) for g in groups or ()}) > 1 or len({*cells}) < len(cells)
    refuse(overlap, "has groups of rows with a row in common")

    def of(row: Row) -> Sums:
        values = {0: 1}
        if groups is not None:
            values = {g: 1 for g, group in enumerate(groups) if group.holds(row)}
        for name, size, vector in tables if values else ():
            entries = vector(row[name])
            values = {f * size + i: v * x for f, v in values.items() for i, x in entries if x}
        return values

    bounds = [math.prod(units) for units in itertools.product(*(axis.units for axis in axes))]
    bounds *= 1 if groups is None else len(groups)
    signed = any(axis.norms[2] for axis in axes)

    def argue(unit: str, power: int) -> Fraction:
        norm = math.prod((axis.norms[power - 1] for axis in axes), start=Fraction(1))
        return norm * blocks.by_sets([(signed, len(bounds))], unit, power)

    own = _select(columns, names.union(*(group.names for group in groups or ())))
    by_value = {axis.column.name for axis in axes if axis.by_value}
    how = "rows are in one group, and their norm is the product of those of their columns"
    return Block(plain, own, bounds, of, argue, how, by_value, [True] * len(bounds) * signed)


def _indicate(column: Column) -> Axis:
    return Axis(column, [1] * column.bins, lambda code: [(column.bin_of[code], 1)], False)


def table(plain: Plain, columns: Columns) -> Block:
    """One function for every cell; of no columns, one that is 1 on every row."""
    return multiply(plain, columns, list(map(_indicate, _select(columns, plain["columns"]))))


def residuals_together(
    residuals: Sequence[tuple[tuple[Column, ...], Fraction]], unit: str
) -> Fraction:
    """Largest sum over residuals of weight times squared change, for one pair of rows.

    Where rows differ in the columns D, the scalar product of their functions is that of a row with
    itself times -1 / (n - 1) for every column of D. The sum over residuals is therefore linear in
    each of the indicators of D: its coefficients are added up over the subsets of every D (eq.
    residuals-together).
    """
    norms = (math.prod(c.bins * (c.bins - 1) for c in columns) for columns, _ in residuals)
    amounts = [weight * norm for norm, (_, weight) in zip(norms, residuals, strict=True)]
    names = list(dict.fromkeys(c.name for columns, _ in residuals for c in columns))
    if unit == "add_remove":
        return sum(amounts, Fraction(0))
    if len(names) > 16:  # each at its own worst
        return sum((residuals_together([one], unit) for one in residuals), Fraction(0))
    bins = {c.name: c.bins for columns, _ in residuals for c in columns}
    scale = math.lcm(*(a.denominator for a in amounts)) * math.prod(bins[n] - 1 for n in names)
    products = [0] * 2 ** len(names)
    for (columns, _), amount in zip(residuals, amounts, strict=True):
        for differ in itertools.product((False, True), repeat=len(columns)):
            some = [c.name for c in itertools.compress(columns, differ)]
            factor = math.prod((Fraction(-bins[n], bins[n] - 1) for n in some), start=scale)
            products[sum(1 << names.index(n) for n in some)] += int(amount * factor)
    for bit in range(len(names)):
        for place in range(len(products)):
            if place >> bit & 1:
                products[place] += products[place ^ 1 << bit]
    return 2 * Fraction(products[0] - min(products), scale)


def _residual(plain: Plain, columns: Columns) -> Block:
    def contrast(column: Column) -> Axis:
        n, at = column.bins, column.bin_of
        values = [[(j, n - 1 if i == j else -1) for j in range(n)] for i in range(n)]
        return Axis(column, [n - 1] * n, lambda code: values[at[code]], False)

    block = multiply(plain, columns, list(map(contrast, _select(columns, plain["columns"]))))
    weight = Fraction(1, block.bounds[0] ** 2)

    def argue(unit: str, power: int) -> Fraction:
        if power == 1 and block.argue is not None:
            return block.argue(unit, power)
        return residuals_together([(block.columns, weight)], unit)

    how = "every row has the same norm, and scalar products depend on which columns differ"
    return replace(block, argue=argue, how=how)


def _condition(plain: Plain, columns: Columns) -> Block:
    group = _group(plain, columns)  # its cells are in the order of its columns
    return replace(multiply(plain, columns, [], [group]), columns=group.columns)


def _partition(plain: Plain, columns: Columns) -> Block:
    """Counts of sets of cells; of two sets perhaps of both, and of the first less the second."""
    groups = [_group(one, columns) for one in plain["sets"]]
    block = multiply(plain, columns, [], groups)
    held = sum(len(group.cells) for group in groups)
    whole = math.prod(column.bins for column in block.columns)
    refuse("rest" in plain and held < whole, "has a last set of other rows than all that are left")
    if "rotated" not in plain:
        return block
    refuse(len(groups) != 2, "has other than two sets of cells that are rotated")

    def of(row: Row) -> Sums:
        return {f: 1 - 2 * f * g for g in (0, 1) if groups[g].holds(row) for f in (0, 1)}

    def argue(unit: str, power: int) -> Fraction:
        return Fraction(2 if unit == "add_remove" or power == 1 else 4)

    how = "rows are (1, 1), (1, -1) or (0, 0)"
    return replace(block, of=of, argue=argue, how=how, signed=[False, True])


def _contrasts(plain: Plain, columns: Columns) -> Block:
    """Sums of another block's functions over units of a survey, with the sign of each."""
    base, dealt = read_block(plain["base"], columns), [plain["pairs"], plain["triples"]]
    unlike = base.kind == "contrasts" or not (base.listed or base.kind == "pilot_score")
    refuse(unlike, "has contrasts of functions that have none")
    beyond = any(not (1 <= j <= p or p == j == 0) for p, j in dealt)
    refuse(beyond, "has pairs of units that cannot be dealt to its contrasts")
    bounds = list(base.bounds) * sum(j for _, j in dealt)
    return Block(plain, base.columns, bounds, None, by_value=base.by_value, base=base)


def _bin_offsets(plain: Plain, columns: Columns) -> Block:
    own, number = _select(columns, plain["columns"]), columns[plain["number"]]
    codes = [[c for c in number.codes if number.bin_of[c] == i] for i in range(number.bins)]
    ends = [(min(some), max(some)) for some in codes]
    widths = [max(last - first, 1) for first, last in ends]
    offsets = {c: [(i, 2 * c - sum(ends[i]))] for i, some in enumerate(codes) for c in some}
    axes = [Axis(c, widths, offsets.__getitem__) if c is number else _indicate(c) for c in own]
    return multiply(plain, columns, axes)


def _spline_table(plain: Plain, columns: Columns) -> Block:
    """Splines are rounded to the nearest unit (eq. three-splines); the middle one has the rest."""
    group = _group(plain["given"], columns) if "given" in plain else None
    knots_of = list(zip(plain["columns"], plain["knots"], strict=True))
    splined = [(name, knots) for name, knots in knots_of if knots is not None]
    check([knots for _, knots in splined], [[int]], "knots")
    lines = [min(k[1] - k[0], 2**10) for _, k in splined if len(k) == 2]
    bits = 23 - (math.prod(lines) - 1).bit_length()
    smooth = 2 ** max(2, min(12, bits // max(1, len(splined) - len(lines))))

    def spline(name: str, knots: list[int]) -> Axis:
        column, line = _number(name, columns, group), len(knots) == 2
        pairs = list(itertools.pairwise(knots))
        whole = pairs and (knots[0], knots[-1]) == (-column.half, column.half)
        refuse(not whole or any(b >= c for b, c in pairs), "has knots that are not of its column")
        unit = min(knots[1] - knots[0], 2**10) if line else smooth

        def vector(code: int) -> Entries:
            i = max(i for i, (b, _) in enumerate(pairs) if b <= code)
            b, c = pairs[i]
            if line:
                right = _nearest(unit * (code - b), c - b)
                return [(0, unit - right), (1, right)]
            a, d = knots[max(i - 1, 0)], knots[min(i + 2, len(pairs))]
            left = _nearest(unit * (c - code) ** 2, (c - a) * (c - b))
            right = _nearest(unit * (code - b) ** 2, (d - b) * (c - b))
            return [(i, left), (i + 1, unit - left - right), (i + 2, right)]

        return Axis(column, [unit] * (len(knots) + (not line)), vector)

    axes = [_indicate(columns[n]) if k is None else spline(n, k) for n, k in knots_of]
    return multiply(plain, columns, axes, None if group is None else [group])


def _nearest(value: int, of: int) -> int:
    return (2 * value + of) // (2 * of)


def _in_groups(
    plain: Plain, columns: Columns, axis: Callable[[Column], Axis], names: Sequence[str]
) -> Block:
    """Products of vectors of some numbers, in groups without a row in common."""
    groups = [_group(one, columns) for one in plain["groups"]]
    numbers = [[_number(name, columns, group) for name in names] for group in groups]
    return multiply(plain, columns, list(map(axis, numbers[0])), groups)


def _split(number: Column, s: int) -> Axis:
    """Three parts that add up to 2 s K, exact if s = 2 K, else rounded (eq. rounded-parts)."""
    k = number.half

    def vector(c: int) -> Entries:
        half = _nearest(s * (k - c) * (k + c), 2 * k)
        return [(0, s * (k - c) - half), (1, 2 * half), (2, s * (k + c) - half)]

    return Axis(number, [2 * s * k] * 3, vector)


def _group_moments(plain: Plain, columns: Columns) -> Block:
    return _in_groups(plain, columns, lambda c: _split(c, 2 * c.half), [plain["number"]])


def _pair_moments(plain: Plain, columns: Columns) -> Block:
    def split(number: Column) -> Axis:
        return _split(number, max(min(2 * number.half, _MOST_PARTS // (2 * number.half)), 1))

    return _in_groups(plain, columns, split, plain["numbers"])


def _kernel_lattice(plain: Plain, columns: Columns) -> Block:
    k, bandwidth = plain["k"], plain["bandwidth"]

    def smooth(column: Column) -> Axis:
        half, last = column.half, min(len(column.codes), 1025) - 1
        places = [_nearest((code + half) * last, 2 * half) for code in column.codes]
        at = dict(zip(column.codes, places, strict=True))
        kernels = [
            [(i, kernel(i, k, place / last, bandwidth)) for i in range(k + 1)]
            for place in range(last + 1)
        ]
        largest = max(value for entries in kernels for _, value in entries)
        return Axis(column, [largest] * (k + 1), lambda code: kernels[at[code]])

    return multiply(plain, columns, [smooth(_number(n, columns)) for n in plain["columns"]])


def kernel(i: int, k: int, t: float, bandwidth: float) -> int:
    """A reflected Gaussian kernel at a lattice point; the highest is 512, half of that on faces."""
    u = i / k
    parts = (math.exp(-0.5 * (d / bandwidth) ** 2) for d in (u - t, u + t, 2 - u - t))
    return round(512 * (0.5 if i in (0, k) else 1.0) * math.fsum(parts))


def step(column: Column, code: int, most: int) -> int:
    """The code of a number on at most so many steps to either side, halves away from the middle."""
    if column.half <= most:
        return code
    nearest = (2 * most * abs(code) + column.half) // (2 * column.half)
    return nearest if code > 0 else -nearest


def feature_value(column: Column, level: int | None, code: int, most: int) -> int:
    """A feature on a row: the step of a number, a sign, or the indicator of a level."""
    if level is None:
        return step(column, code, most)
    at = column.bin_of[code]
    return (1 if at == 1 else -1) if level == SIGN else int(at == level)


class _Terms:
    """Products of features, in a subgroup if there is one."""

    def __init__(self, plain: Plain, columns: Columns, most: int) -> None:
        self.given = _group(plain["given"], columns) if "given" in plain else None
        self.terms: list[Term] = [
            tuple(_feature(plain, columns, self.given) for plain in term) for term in plain["terms"]
        ]
        self.columns, self.most = columns, most
        features = {feature for term in self.terms for feature in term}
        # bounds count a product once: in another order, or with a level twice, it is a copy
        classes = [[name for name, level in term if level is not None] for term in self.terms]
        copies = any(len(set(names)) < len(names) for names in classes)
        refuse(copies, "has a term with two levels or signs of one column")
        distinct = {tuple(sorted(term, key=str)) for term in self.terms}
        refuse(len(distinct) < len(self.terms), "has a term twice")
        self.by_value = {name for name, level in features if level is None}
        self.names = {name for name, _ in features} | (self.given.names if self.given else set())
        steps = {name: min(column.half, most) for name, column in columns.items()}
        self.bounds = [math.prod(steps[n] for n, level in t if level is None) for t in self.terms]

    def of(self, row: Row) -> Sums:
        """The products that are not zero."""
        if self.given is not None and not self.given.holds(row):
            return {}
        value = cache(lambda f: feature_value(self.columns[f[0]], f[1], row[f[0]], self.most))
        products = ((t, math.prod(map(value, term))) for t, term in enumerate(self.terms))
        return {t: product for t, product in products if product}


def _moments(plain: Plain, columns: Columns) -> Block:
    of = _Terms(plain, columns, COARSE if plain.get("coarse") else _EVERY)
    refuse(() in of.terms and of.given is None, "has moments without features")

    def argue(unit: str, power: int) -> Fraction:
        return bound_products(of.terms, unit, power, of.given is not None)

    own, signed = _select(columns, of.names), [blocks.is_signed(term) for term in of.terms]
    how = "by how many features change, first and second moments and longer products each"
    return Block(plain, own, of.bounds, of.of, argue, how, of.by_value, signed)


def _pilot_score(plain: Plain, columns: Columns) -> Block:
    """Each set of alternatives is at most one in size, whatever the pilot.

    Without numbers in the terms, rows of the same levels differ in the response alone: by one. Rows
    of other levels have two different alternatives in the sets that a changed column is in (eq.
    score-without-numbers). Of a line residuals are cut off and divided by that, so that such rows
    may differ by two.
    """
    of, line = _Terms(plain, columns, _EVERY), plain["link"] == "identity"
    name, _ = _feature(plain["response"], columns, of.given, True)

    def argue(unit: str, power: int) -> Fraction:
        sets = blocks.alternatives(of.terms)
        levels = all(blocks.is_level(f) for term in of.terms for f in term)
        if unit == "replace" and levels and not line:
            some = ([(changed not in own, n) for (_, own), n in sets.items()]
                    for changed in {name for _, own in sets for name in own})  # fmt: skip
            return max([Fraction(len(sets)), *(blocks.by_sets(s, unit, power) for s in some)])
        return blocks.by_sets([(True, n) for n in sets.values()], unit, power)

    own, bounds = _select(columns, of.names | {name}), [UNIT] * len(of.terms)
    how = "each set of alternatives is from -1 to 1, whatever the pilot"
    return Block(plain, own, bounds, None, argue, how, listed=False)


def _ball_moments(plain: Plain, columns: Columns) -> Block:
    names, norm = plain["numbers"], fraction(plain["clip_norm"])
    centers = dict(zip(names, (fraction(v, sign=True) for v in plain["center"]), strict=True))
    scales = dict(zip(names, map(fraction, plain["scale"]), strict=True))
    own = _select(columns, [_number(name, columns).name for name in names])
    pairs = list(itertools.combinations_with_replacement(range(len(own)), 2))
    cross = math.isqrt(BALL**4 // 2) + 1

    @cache
    def coordinate(j: int, code: int) -> int:
        column, (low, high) = own[j], own[j].exact_ends
        x = (low + high) / 2 + (high - low) / 2 * code / column.half
        distance: Fraction = (x - centers[column.name]) * BALL / (scales[column.name] * norm)
        return math.floor(distance + Fraction(1, 2))

    def of(row: Row) -> Sums:
        point, outside = shrink([coordinate(j, row[c.name]) for j, c in enumerate(own)])
        values = [*point, *(point[i] * point[j] for i, j in pairs), int(outside)]
        return {f: value for f, value in enumerate(values) if value}

    bounds = [2 * BALL] * len(own) + [BALL**2 if i == j else cross for i, j in pairs] + [4]
    signed = [True] * len(own) + [i != j for i, j in pairs] + [False]
    how = "rows are whole numbers that never leave the unit ball"
    return Block(plain, own, bounds, of, _bound_ball(len(own), cross), how, set(names), signed)


def shrink(point: list[int]) -> tuple[list[int], bool]:
    """A row in the ball, and whether it was outside."""
    square = sum(c * c for c in point)
    if square <= BALL**2:
        return point, False
    length = math.isqrt(square - 1) + 1
    return [(abs(c) * BALL // length) * (1 if c > 0 else -1) for c in point], True


def _bound_ball(p: int, cross: int) -> Argument:
    """Bounds for rows w, v in the unit ball, D = ww' - vv', and 1/4 for the count of shrunk rows.

    Squares: means count (w - v)^2 / 4, all of D counts once. With c = w'v the sum is
    |w|^4 + |v|^4 + (|w|^2 + |v|^2) / 4 - 2 c^2 - c / 2 <= 2 + 1/2 + 1/32, as -2c^2 - c/2 <= 1/32.
    With a weight s on the means it is (2 + s/4)^2 / 2 likewise, and Cauchy's inequality with
    weights 1/s and 1 gives the sum of absolute values (eq. ball-l2, ball-l1 and ball-added).
    """
    quarter = Fraction(1, 4)

    def argue(unit: str, power: int) -> Fraction:
        if power == 2:
            added = unit == "add_remove"
            return (1 + quarter if added else (2 + quarter) ** 2 / 2) + quarter**2
        if unit == "add_remove":
            longest = _root(Fraction(p)) / 2 + 1 + Fraction((p - 1) * BALL**2, 2 * cross)
            return longest + quarter
        weights = (Fraction(i, 64) for i in range(1, 129))
        both = ((p * quarter / s + Fraction(p * (p + 1), 2)) * (2 + s) ** 2 / 2 for s in weights)
        return _root(min(both)) + quarter

    return argue


def _root(value: Fraction) -> Fraction:
    """Square root, rounded up to a multiple of 2^-40."""
    return Fraction(math.isqrt(math.ceil(value * 2**80) - 1) + 1, 2**40)


def _linear_losses(plain: Plain, columns: Columns) -> Block:
    """Losses at every point of the grid; numbers among regressors are taken from their middles."""
    loss, response = plain["loss"], _feature(plain["response"], columns, None, True)
    regressors = [None if f is None else _feature(f, columns) for f in plain["regressors"]]
    features = [response, *filter(None, regressors)]
    unlike = (loss["kind"] == "logistic") == (response[1] is None)
    refuse(unlike, "has a loss that does not fit its response")
    along = [
        [low + (high - low) * i / (points - 1) for i in range(points)]
        for _, low, high, points in plain["axes"]
    ]

    def read(feature: Feature | None, centred: bool) -> tuple[Callable[[int], float], list[float]]:
        """Values by code, and the least and largest."""
        if feature is None:
            return lambda code: 1.0, [1.0]
        column, level = columns[feature[0]], feature[1]
        if level is not None:
            return lambda code: float(column.bin_of[code] == level), [0.0, 1.0]
        middle = sum(column.ends) / 2 if centred else 0.0
        return lambda code: column.values[code] - middle, [end - middle for end in column.ends]

    answer, answers = read(response, False)
    values, spans = zip(*(read(feature, True) for feature in regressors), strict=True)
    sides = [
        [b * x for b in axis[1:3] for x in span]
        for axis, span in zip(plain["axes"], spans, strict=True)
    ]
    corners = itertools.product(answers, (sum(map(min, sides)), sum(map(max, sides))))
    unit = max(loss_of(loss, y, t) for y, t in corners) * (1 + 1e-9) / UNIT

    def ranges(ends: Box) -> Ranges:
        """Least and largest of every loss over a box of rows, or one beyond them, for rounding.

        The predictor is largest and least at ends of the box, and the loss, convex in the response
        less the predictor, is largest at an end and least at zero or an end.
        """
        low, high = [0.0], [0.0]
        for feature, value, parameters in zip(regressors, values, along, strict=True):
            first, last = map(value, (0, 0) if feature is None else ends[feature[0]])
            steps = [(first * b, last * b) for b in parameters]
            low = [before + min(step) for before in low for step in steps]
            high = [before + max(step) for before in high for step in steps]
        first, last = sorted(map(answer, ends[response[0]]))
        if all(a == b for a, b in ends.values()):
            single = [math.floor(loss_of(loss, first, t) / unit + 0.5) for t in low]
            return single, single
        least, most = [], []
        for t, u in zip(low, high, strict=True):
            at_ends = loss_of(loss, first, u), loss_of(loss, last, t)
            inside = first <= u and t <= last and loss["kind"] != "logistic"
            least.append(math.floor((0.0 if inside else min(at_ends)) / unit + 0.5) - 1)
            most.append(math.floor(max(at_ends) / unit + 0.5) + 1)
        return least, most

    def of(row: Row) -> Sums:
        return dict(enumerate(ranges({name: (code, code) for name, code in row.items()})[0]))

    own, bounds = _select(columns, {n for n, _ in features}), [UNIT] * math.prod(map(len, along))
    by_value = {name for name, level in features if level is None}
    # Over several codes of a number, its bins are not between those of the ends.
    mixed = any(level is not None and name in by_value for name, level in features)
    return Block(plain, own, bounds, of, by_value=by_value, ranges=None if mixed else ranges)


def loss_of(loss: Plain, response: float, predictor: float) -> float:
    """The loss itself."""
    kind = loss["kind"]
    if kind == "logistic":
        wrong = -predictor if response > 0 else predictor
        knots = _softplus()
        place = min(abs(wrong), _LAST) * _KNOTS
        k = min(int(place), len(knots) - 2)
        return max(wrong, 0.0) + (knots[k] + (place - k) * (knots[k + 1] - knots[k]))
    residual = response - predictor
    if kind == "huber":
        inner = min(abs(residual), float(loss["k"]))
        return inner * (abs(residual) - inner / 2)
    p = float(loss.get("probability", 0.5))
    return max(p * residual, (p - 1) * residual)


@cache
def _softplus() -> list[float]:
    """log(1 + exp(-u)) at u = 0, 1/64, .., 40: between them the loss is a straight line."""
    with localcontext() as context:
        context.prec = 20
        points = (Decimal(j) / _KNOTS for j in range(_LAST * _KNOTS + 1))
        return [float((1 + (-u).exp()).ln()) for u in points]


def _tabulated_losses(plain: Plain, columns: Columns) -> Block:
    own, lines = tuple(columns[name] for name in plain["loss"]["columns"]), plain["loss"]["losses"]
    states = math.prod(len(c.codes) for c in own)
    refuse(len(lines) != states or len({*map(len, lines)}) > 1, "has losses of other states")

    def of(row: Row) -> Sums:
        at = 0
        for column in own:
            at = at * len(column.codes) + column.codes.index(row[column.name])
        return dict(enumerate(lines[at]))

    by_value = {column.name for column in own}
    return Block(plain, own, [UNIT] * len(lines[0]), of, by_value=by_value)


def _person_products(
    plain: Plain, own: tuple[Column, ...], units: Sequence[int],
    totals: Callable[[Row], Sums], argue: Argument, by_value: Set[str],
) -> Block:  # fmt: skip
    pairs = list(itertools.combinations_with_replacement(range(len(units)), 2))
    place = {pair: f for f, pair in enumerate(pairs)}

    def of(row: Row) -> Sums:
        products = itertools.combinations_with_replacement(sorted(totals(row).items()), 2)
        return {place[i, j]: a * b for (i, a), (j, b) in products}

    bounds, how = [units[i] * units[j] for i, j in pairs], "totals are means of a person's rows"
    return Block(plain, own, bounds, of, argue, how, by_value, listed=False)


def _person_shares(plain: Plain, columns: Columns) -> Block:
    """In every group products of s - c and s + c for the steps c of numbers, or numbers of rows.

    A row spreads a weight of one over the totals, and so does the mean of a person's rows.
    """
    numbers = [name for name in (plain["number"], plain.get("second")) if name is not None]
    most = _PERSON_STEPS if len(numbers) < 2 else COARSE // 2

    def sides(number: Column) -> Axis:
        s = min(number.half, most)

        def vector(code: int) -> Entries:
            c = step(number, code, most)
            return [(0, s - c), (1, s + c)]

        return Axis(number, [2 * s] * 2, vector)

    totals = _in_groups(plain, columns, sides, numbers)
    assert totals.of is not None

    def argue(unit: str, power: int) -> Fraction:
        return blocks.by_sets([(False, math.comb(totals.size + 1, 2))], unit, power)

    return _person_products(plain, totals.columns, totals.bounds, totals.of, argue, totals.by_value)


def _person_moments(plain: Plain, columns: Columns) -> Block:
    """Products of totals of products of numbers, on at most 64 steps, and of levels.

    Let u be a person's totals over the number of rows, so a mean of rows: its C sets of
    alternatives have absolute values that add up to one at most. So have the products of two sets.
    With S the sum of |u_t| and Q that of squares, both at most C, absolute values of all products
    add up to (S^2 + Q) / 2 <= C (C + 1) / 2, and squares to no more (eq. person-products). For a
    person whose values are replaced, u becomes v; the scalar product of all products, ((u'v)^2 +
    sum u_t^2 v_t^2) / 2, is not negative, nor is that within one set (eq. persons-replaced). The
    number of rows does not change.
    """
    of = _Terms(plain, columns, COARSE)
    numbers_of = [sum(level is None for _, level in term) for term in of.terms]
    refuse(max(numbers_of) > 2, "has person totals of three numbers")

    def argue(unit: str, power: int) -> Fraction:
        sets: dict[object, list[Term]] = {}
        for term in of.terms:
            (key,) = blocks.alternatives([term])
            sets.setdefault(key, []).append(term)
        c, known = len(sets), [()] if of.given is None else None
        whole = Fraction(c * (c + 1), 2)
        if unit == "add_remove":
            return whole
        apart = [
            (a != b and any(map(blocks.is_signed, (*a, *b))), len(a) * len(b))
            for a, b in itertools.combinations_with_replacement(sets.values(), 2)
            if not a == b == known
        ]
        options = [2 * whole, blocks.by_sets(apart, unit, power)]
        if c == len(of.terms):
            numbers: list[Term] = [
                () if [term] == known else ((str(t), None),) for t, term in enumerate(of.terms)
            ]
            both = itertools.combinations_with_replacement(numbers, 2)
            products = [(*a, *b) for a, b in both if a or b]
            options.append(bound_products(products, unit, power, False))
        return min(options)

    own = _select(columns, of.names)
    return _person_products(plain, own, of.bounds, of.of, argue, of.by_value)


def _select(columns: Columns, names: Iterable[str]) -> tuple[Column, ...]:
    used = list(names)
    refuse(len(set(used)) < len(used), "has a block with a column twice")
    refuse(not set(used) <= set(columns), "has a block of columns that the schema does not have")
    return tuple(column for name, column in columns.items() if name in used)


def _feature(
    plain: Any, columns: Columns, group: Group | None = None, value: bool = False
) -> Feature:
    """A number, sign or level. Of missing cells no value counts: it is beyond the others' bound."""
    name, level = plain
    column = columns[name]
    if level is None:
        right = column.half > 0
    elif level == SIGN:
        right = column.bins - (column.missing is not None) == 2
    else:
        right = 0 <= level < column.bins
    refuse(not right or type(level) not in (int, type(None)), "has a feature of no column")
    value = value or level is None or level == SIGN
    answers = column.missing is None or (group is not None and column in group.answered)
    refuse(value and not answers, "has functions of the value of cells that may be missing")
    return name, level


def _number(name: str, columns: Columns, group: Group | None = None) -> Column:
    return columns[_feature([name, None], columns, group)[0]]


def _group(plain: Plain, columns: Columns) -> Group:
    own, answered = (tuple(columns[n] for n in plain.get(k, ())) for k in ("columns", "answered"))
    inside, every = plain["cells"], range(math.prod(column.bins for column in own))
    right = len(set(inside)) == len(inside) and all(cell in every for cell in inside)
    refuse(not right, "has a set of cells that its columns do not have")
    always = any(column.missing is None for column in answered)
    refuse(always, "has a group of answers to a column that always has one")
    return Group(own, frozenset(inside), answered)


@dataclass(frozen=True)
class Kind:
    """A kind of block: what its functions are, the keys that it has, and how it is read."""

    what: str
    keys: Plain
    read: Callable[[Plain, Columns], Block]


_CELLS = {"columns": [str], "cells": [int]}
_GROUP = {**_CELLS, "answered": [str], "label": str}
_GROUPS = {"groups": [_GROUP]}
_TERMS = {"terms": [[list]], "given?": _GROUP}  # a feature is a list: see `_feature`
_LINEAR = {"kind": ("logistic", "huber", "pinball"), "k?": NUMBER, "probability?": NUMBER}
_TABULATED = {
    "kind": "table", "columns": [str], "grid": {str: [NUMBER]}, "losses": [[int]], "unit": NUMBER,
    "lipschitz": {str: NUMBER}, "convex": bool,
}  # fmt: skip
KINDS = {
    "table": Kind("counts of all cells", {"columns": [str]}, table),
    "condition": Kind("the count of some cells", {**_CELLS, "label": str}, _condition),
    "partition": Kind("counts of sets of cells without a cell in common",
                      {"sets": [_CELLS], "labels": [str], "rotated?": True, "rest?": True},
                      _partition),
    "residual": Kind("products over columns of n 1{bin = i} - 1, n bins", {"columns": [str]},
                     _residual),
    "moments": Kind("products of values, signs and levels",
                    {**_TERMS, "coarse?": True, "robust?": True}, _moments),
    "group_moments": Kind("(1 - x)^2 / 4, (1 - x^2) / 2, (1 + x)^2 / 4 in groups",
                          {"number": str, **_GROUPS}, _group_moments),
    "pair_moments": Kind("products of those parts of two numbers in groups",
                         {"numbers": [str], **_GROUPS}, _pair_moments),
    "ball_moments": Kind("means and products of rows shrunk to a ball, and their number",
                         {"numbers": [str], "center": [str], "scale": [str], "clip_norm": str},
                         _ball_moments),
    "kernel_lattice": Kind("products of kernels at the points of a lattice",
                           {"columns": [str], "k": int, "bandwidth": NUMBER}, _kernel_lattice),
    "bin_offsets": Kind("distances from the middle of bins, by cell",
                        {"columns": [str], "number": str}, _bin_offsets),
    "spline_table": Kind("splines of numbers, by cell",
                         {"columns": [str], "knots": [(list, None)], "given?": _GROUP},
                         _spline_table),
    "linear_losses": Kind("losses at the points of a grid",
                          {"loss": _LINEAR, "response": list, "regressors": [(list, None)],
                           "axes": [list]}, _linear_losses),
    "tabulated_losses": Kind("losses that the file lists, at the points of a grid",
                             {"loss": _TABULATED}, _tabulated_losses),
    "pilot_score": Kind("terms times the residual of a response",
                        {**_TERMS, "response": list, "link": ("logit", "log", "identity"),
                         "pilot": (list, None), "clip?": int}, _pilot_score),
    "contrasts": Kind("the same over units, with the sign of each",
                      {"pairs": [int], "triples": [int], "base": dict}, _contrasts),
    "person_shares": Kind("products of person totals of a weight of one a row",
                          {"number": (str, None), "second?": str, **_GROUPS}, _person_shares),
    "person_moments": Kind("products of person totals of products", _TERMS, _person_moments),
}  # fmt: skip
