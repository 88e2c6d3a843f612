"""Every kind of block, from its keys: see "Functions and their bounds" of the file's reference.

The proofs that are cited are in ``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

from dpstats.verifying import blocks
from dpstats.verifying.blocks import SIGN, Argument, Block, Box, Feature, Ranges, Row, Sums, Term
from dpstats.verifying.columns import Column
from dpstats.verifying.products import bound_products
from dpstats.verifying.shapes import BLOCKS, NotReadError, check, fraction

UNIT = 2**16
_KNOTS, _LAST = 64, 40
BALL = 2**13
COARSE = 64  # steps to either side of the numbers of coarse moments
_PERSON_STEPS = 2048
_MOST_PARTS = 4095  # of a number, that all parts of a pair add up to
_EVERY = 2**62
OF_UNIT = "(unit)"  # the code of the unit of a row, beside those of its columns
Columns = Mapping[str, Column]
Vector = Callable[[int], Iterable[tuple[int, int]]]  # the entries of a code that are not zero


def linear_losses(
    plain: dict[str, Any],
    columns: tuple[Column, ...],
    response: Feature,
    regressors: Sequence[Feature | None],
) -> Block:
    """Losses at every point of the grid; numbers among regressors are taken from their middles."""
    loss, by_name = plain["loss"], {column.name: column for column in columns}
    along = [
        [low + (high - low) * i / (points - 1) for i in range(points)]
        for _, low, high, points in plain["axes"]
    ]

    def value(feature: Feature | None, code: int) -> float:
        if feature is None:
            return 1.0
        column = by_name[feature[0]]
        if feature[1] is not None:
            return float(column.bin_of[code] == feature[1])
        low, high = column.ends
        return float(column.values.get(code, low + (high - low) * (code / column.half + 1) / 2))

    def from_middle(feature: Feature | None, code: int) -> float:
        low, high = by_name[feature[0]].ends if feature and feature[1] is None else (0.0, 0.0)
        return value(feature, code) - (low + high) / 2

    sides = []
    for (_, low, high, _), feature in zip(plain["axes"], regressors, strict=True):
        span = [1.0] if feature is None else [0.0, 1.0]
        if feature is not None and feature[1] is None:
            ends = by_name[feature[0]].ends
            span = [end - (ends[0] + ends[1]) / 2 for end in ends]
        sides.append([b * x for b in (low, high) for x in span])
    answers = by_name[response[0]]
    corners = itertools.product(
        answers.ends if answers.half else (0.0, 1.0), (sum(map(min, sides)), sum(map(max, sides)))
    )
    unit = max(loss_of(loss, y, t) for y, t in corners) * (1 + 1e-9) / UNIT

    def ranges(ends: Box) -> Ranges:
        """Least and largest of every loss over a box of rows, or one beyond them, for rounding.

        The predictor is largest and least at ends of the box, and the loss, convex in the response
        less the predictor, is largest at an end and least at zero or an end.
        """
        low, high = [0.0], [0.0]
        for feature, parameters in zip(regressors, along, strict=True):
            codes = (0, 0) if feature is None else ends[feature[0]]
            first, last = (from_middle(feature, code) for code in codes)
            steps = [(first * b, last * b) for b in parameters]
            low = [before + min(step) for before in low for step in steps]
            high = [before + max(step) for before in high for step in steps]
        first, last = sorted(value(response, code) for code in ends[response[0]])
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

    def of(row: Row) -> dict[int, int]:
        return dict(enumerate(ranges({name: (code, code) for name, code in row.items()})[0]))

    bounds = [UNIT] * math.prod(map(len, along))
    features = (response, *filter(None, regressors))
    by_value = {name for name, level in features if level is None}
    # Over several codes of a number, its bins are not between those of the ends.
    mixed = any(level is not None and name in by_value for name, level in features)
    return Block(plain, columns, bounds, of, None, by_value, ranges=None if mixed else ranges)


def loss_of(loss: dict[str, Any], response: float, predictor: float) -> float:
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


@dataclass(frozen=True)
class Group:
    """A subgroup: rows in listed cells of some columns that have a value of others."""

    columns: tuple[Column, ...]
    cells: frozenset[int]
    answered: tuple[Column, ...] = ()

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


def check_block(plain: dict[str, Any]) -> dict[str, Any]:
    """Refuse what are not the keys of a block's functions."""
    if plain.get("kind") not in BLOCKS:
        raise NotReadError(f"has blocks of a kind that is not known: {plain.get('kind')!r}")
    check(plain, {"kind": str} | BLOCKS[plain["kind"]], plain["kind"])
    return plain


def read_block(plain: dict[str, Any], columns: Columns) -> Block:
    """The functions of a block, from its keys."""
    return _KINDS[plain["kind"]](plain, columns)


def of_vectors(columns: Sequence[Column], sizes: Sequence[int], vectors: Sequence[Vector]) -> Any:
    """The product over columns of a vector for each code, the last column running first."""

    def of(row: Row) -> Sums:
        values = {0: 1}
        for column, size, vector in zip(columns, sizes, vectors, strict=True):
            entries = list(vector(row[column.name]))
            values = {f * size + i: v * x for f, v in values.items() for i, x in entries}
        return values

    return of


def _indicator(column: Column) -> Vector:
    return lambda code: [(column.bin_of[code], 1)]


def table(columns: Sequence[Column], plain: dict[str, Any] | None = None) -> Block:
    """One function for every cell; of no columns, one that is 1 on every row."""
    bins, own = [column.bins for column in columns], tuple(columns)
    cells = math.prod(bins)
    of = of_vectors(own, bins, [_indicator(column) for column in own])
    argue = blocks.one_set(False, cells, f"a row is in one of {cells:,} cells")
    return Block(plain or {"kind": "table"}, own, [1] * cells, of, argue)


def residuals_together(
    residuals: Sequence[tuple[tuple[Column, ...], Fraction]], unit: str
) -> Fraction:
    """Largest sum over residuals of weight times squared change, for one pair of rows.

    Where rows differ in the columns D, the scalar product of their functions is that of a row with
    itself times -1 / (n - 1) for every column of D. The sum over residuals is therefore linear in
    each of the indicators of D: its coefficients are added up over the subsets of every D.
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


def _residual(plain: dict[str, Any], columns: Columns) -> Block:
    own = _select(columns, plain["columns"])
    bins = [column.bins for column in own]
    largest = math.prod(n - 1 for n in bins)

    def vector(column: Column) -> Vector:
        at, every = column.bin_of, range(column.bins)
        return lambda code: [(i, column.bins - 1 if i == at[code] else -1) for i in every]

    of = of_vectors(own, bins, list(map(vector, own)))

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        how = "every row has the same norm, and scalar products depend on which columns differ"
        if power == 2:
            return residuals_together([(own, Fraction(1, largest**2))], unit), how
        return Fraction(2 ** len(bins) * (1 if unit == "add_remove" else 2)), how

    return Block(plain, own, [largest] * math.prod(bins), of, argue)


def _condition(plain: dict[str, Any], columns: Columns) -> Block:
    group = _group({**plain, "answered": []}, columns)
    argue = blocks.one_set(False, 1, "a row counts once or not")
    return Block(plain, group.columns, [1], lambda row: {0: 1} if group.holds(row) else {}, argue)


def _partition(plain: dict[str, Any], columns: Columns) -> Block:
    """Counts of sets of cells; of two sets perhaps of both, and of the first less the second."""
    groups = [_group({**one, "answered": []}, columns) for one in plain["sets"]]
    cells = [cell for group in groups for cell in group.cells]
    rotated = "rotated" in plain
    if len({group.columns for group in groups}) != 1 or len(set(cells)) < len(cells):
        raise NotReadError("has sets of cells with a cell in common")
    if len(plain["labels"]) != len(groups) or (rotated and len(groups) != 2):
        raise NotReadError("has sets of cells that do not fit their labels")

    def of(row: Row) -> Sums:
        inside = [g for g, group in enumerate(groups) if group.holds(row)]
        if rotated:
            return {f: 1 - 2 * f * g for g in inside for f in (0, 1)}
        return dict.fromkeys(inside, 1)

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        if not rotated:
            how = f"a row is in one of {len(groups)} sets of cells, or in none"
            return blocks.by_sets([(False, len(groups))], unit, power), how
        return Fraction(2 if unit == "add_remove" or power == 1 else 4), (
            "rows are (1, 1), (1, -1) or (0, 0)"
        )

    signed = [False, rotated] if rotated else [False] * len(groups)
    return Block(plain, groups[0].columns, [1] * len(groups), of, argue, signed=signed)


def _contrasts(plain: dict[str, Any], columns: Columns) -> Block:
    """Sums of another block's functions over units of a survey, with the sign of each."""
    base = read_block(check_block(plain["base"]), columns)
    (pairs, dealt), (triples, own) = plain["pairs"], plain["triples"]
    if base.kind == "contrasts" or not (base.listed or base.kind == "pilot_score"):
        raise NotReadError("has contrasts of functions that have none")
    if any(not (1 <= j <= p or p == j == 0) for p, j in ((pairs, dealt), (triples, own))):
        raise NotReadError("has pairs of units that cannot be dealt to its contrasts")

    def of(row: Row) -> Sums:
        pair, second = divmod(row[OF_UNIT], 2)
        if row[OF_UNIT] < 0:
            return {}
        j = pair % dealt if pair < pairs else dealt + (pair - pairs) % own
        return {j * base.size + f: -v if second else v for f, v in base.of(row).items()}

    bounds = list(base.bounds) * (dealt + own)
    signed = [True] * len(bounds)
    return Block(plain, base.columns, bounds, of, None, base.by_value, signed, base=base)


def _bin_offsets(plain: dict[str, Any], columns: Columns) -> Block:
    own, number = _select(columns, plain["columns"]), columns[plain["number"]]
    codes = [[c for c in number.codes if number.bin_of[c] == i] for i in range(number.bins)]
    ends = [(min(some), max(some)) for some in codes]

    def vector(column: Column) -> Vector:
        if column is not number:
            return _indicator(column)
        offsets = {c: [(i, 2 * c - sum(ends[i]))] for i, some in enumerate(codes) for c in some}
        return lambda code: [(i, offset) for i, offset in offsets[code] if offset]

    bins, at = [column.bins for column in own], own.index(number)
    widths = [max(last - first, 1) for first, last in ends]
    bounds = [widths[cell[at]] for cell in itertools.product(*map(range, bins))]
    of = of_vectors(own, bins, list(map(vector, own)))
    argue = blocks.one_set(True, len(bounds), "a row is in one cell, within the ends of its bin")
    return Block(plain, own, bounds, of, argue, {number.name}, [True] * len(bounds))


def _spline_table(plain: dict[str, Any], columns: Columns) -> Block:
    """Splines are rounded to the nearest unit, and the middle one has the rest."""
    axes, given = [columns[name] for name in plain["columns"]], plain.get("given")
    group = None if given is None else _group(given, columns)
    if len(plain["knots"]) != len(axes):
        raise NotReadError("has a table of splines without knots for each of its columns")
    check([knots for knots in plain["knots"] if knots is not None], [[int]], "knots")
    splined = {c.name: k for c, k in zip(axes, plain["knots"], strict=True) if k is not None}
    _check_features([(name, None) for name in splined], columns, group)
    lines = [min(k[1] - k[0], 2**10) for k in splined.values() if len(k) == 2]
    curves = len(splined) - len(lines)
    bits = 23 - (math.prod(lines) - 1).bit_length()
    smooth = 2 ** max(2, min(12, bits // max(1, curves)))

    def vector(column: Column, knots: list[int]) -> Vector:
        pairs = list(itertools.pairwise(knots))
        ends = (*knots[:1], *knots[1:][-1:])
        if ends != (-column.half, column.half) or any(b >= c for b, c in pairs):
            raise NotReadError("has knots that do not increase from the first code to the last")

        def of_code(code: int) -> Iterable[tuple[int, int]]:
            i = max(i for i, (b, _) in enumerate(pairs) if b <= code)
            b, c = pairs[i]
            if len(knots) == 2:
                one = min(c - b, 2**10)
                right = math.floor(Fraction(one * (code - b), c - b) + Fraction(1, 2))
                return [(0, one - right), (1, right)]
            a, d = knots[max(i - 1, 0)], knots[min(i + 2, len(pairs))]
            left = Fraction(smooth * (c - code) ** 2, (c - a) * (c - b)) + Fraction(1, 2)
            right = math.floor(
                Fraction(smooth * (code - b) ** 2, (d - b) * (c - b)) + Fraction(1, 2)
            )
            rest = smooth - math.floor(left) - right
            return [(i, math.floor(left)), (i + 1, rest), (i + 2, right)]

        return of_code

    sizes, vectors = [], []
    for column, knots in zip(axes, plain["knots"], strict=True):
        count = column.bins if knots is None else len(knots) + (len(knots) > 2)
        sizes.append(count)
        vectors.append(_indicator(column) if knots is None else vector(column, knots))
    product = of_vectors(axes, sizes, vectors)

    def of(row: Row) -> Sums:
        inside = group is None or group.holds(row)
        return {f: value for f, value in product(row).items() if value} if inside else {}

    names = set(plain["columns"])
    if group is not None:
        names |= {column.name for column in (*group.columns, *group.answered)}
    bounds = [math.prod(lines) * smooth**curves] * math.prod(sizes)
    how = "the splines of a row are not negative and add up to 1 in its cells"
    argue = blocks.one_set(False, len(bounds), how)
    return Block(plain, _select(columns, names), bounds, of, argue, set(splined))


def _in_groups(
    plain: dict[str, Any], columns: Columns
) -> tuple[list[Column], list[Group], tuple[Column, ...], Set[str]]:
    """The numbers, if any, groups without a row in common, all columns, and those by value."""
    listed = plain["numbers"] if "numbers" in plain else [plain["number"], plain.get("second")]
    names = set(listed) - {None}
    if len(names) < len(listed) - listed.count(None):
        raise NotReadError("has products of a number with itself")
    groups = [_group(one, columns) for one in plain["groups"]]
    for group in groups:
        _check_features([(name, None) for name in names], columns, group)
    cells = [cell for group in groups for cell in group.cells]
    if len({(g.columns, g.answered) for g in groups}) > 1 or len(set(cells)) < len(cells):
        raise NotReadError("has groups of rows with a row in common")
    used = names | {c.name for g in groups for c in (*g.columns, *g.answered)}
    numbers = [columns[name] for name in listed if name is not None]
    return numbers, groups, _select(columns, used), names


def _group_moments(plain: dict[str, Any], columns: Columns) -> Block:
    (number,), groups, own, names = _in_groups(plain, columns)
    k, name = number.half, number.name

    def of(row: Row) -> Sums:
        c = row[name]
        parts = list(enumerate(((k - c) ** 2, 2 * (k * k - c * c), (k + c) ** 2)))
        inside = [g for g, group in enumerate(groups) if group.holds(row)]
        return {3 * g + i: part for g in inside for i, part in parts if part}

    how = "the parts of a row are not negative and add up to 1, and no two groups share a row"
    bounds = [4 * k * k] * (3 * len(groups))
    return Block(plain, own, bounds, of, blocks.one_set(False, len(bounds), how), names)


def _pair_moments(plain: dict[str, Any], columns: Columns) -> Block:
    """Products of three parts of each of two numbers, that add up to 2 s K; the middle rounded."""
    numbers, groups, own, names = _in_groups(plain, columns)
    if len(numbers) != 2:
        raise NotReadError("has products of other than two numbers")
    steps = [max(min(2 * n.half, _MOST_PARTS // (2 * n.half)), 1) for n in numbers]

    def parts(number: Column, s: int, c: int) -> tuple[int, int, int]:
        k = number.half
        half = (2 * s * (k - c) * (k + c) + 2 * k) // (4 * k)
        return s * (k - c) - half, 2 * half, s * (k + c) - half

    def of(row: Row) -> Sums:
        first, second = (parts(n, s, row[n.name]) for n, s in zip(numbers, steps, strict=True))
        inside = [g for g, group in enumerate(groups) if group.holds(row)]
        products = [
            (i, a * b) for i, (a, b) in enumerate(itertools.product(first, second)) if a * b
        ]
        return {9 * g + i: product for g in inside for i, product in products}

    how = "the parts of a row are not negative and add up to 1, and no two groups share a row"
    bounds = [math.prod(2 * s * n.half for n, s in zip(numbers, steps, strict=True))]
    bounds *= 9 * len(groups)
    return Block(plain, own, bounds, of, blocks.one_set(False, len(bounds), how), names)


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

    def __init__(self, plain: dict[str, Any], columns: Columns, most: int) -> None:
        self.terms: list[Term] = [tuple(map(_feature, term)) for term in plain["terms"]]
        self.given = _group(plain["given"], columns) if "given" in plain else None
        self.columns, self.most = columns, most
        features = {feature for term in self.terms for feature in term}
        _check_features(features, columns, self.given)
        # bounds count a product once: in another order, or with a level twice, it is a copy
        classes = [[name for name, level in term if level is not None] for term in self.terms]
        if any(len(set(names)) < len(names) for names in classes):
            raise NotReadError("has a term with two levels or signs of one column")
        if len({tuple(sorted(term, key=str)) for term in self.terms}) < len(self.terms):
            raise NotReadError("has a term twice")
        self.by_value = {name for name, level in features if level is None}
        group = () if self.given is None else (*self.given.columns, *self.given.answered)
        self.names = {name for name, _ in features} | {column.name for column in group}
        steps = {name: min(column.half, most) for name, column in columns.items()}
        self.bounds = [math.prod(steps[n] for n, level in t if level is None) for t in self.terms]

    def of(self, row: Row) -> Sums:
        """The products that are not zero."""
        if self.given is not None and not self.given.holds(row):
            return {}
        value = cache(lambda f: feature_value(self.columns[f[0]], f[1], row[f[0]], self.most))
        products = ((t, math.prod(map(value, term))) for t, term in enumerate(self.terms))
        return {t: product for t, product in products if product}


def _moments(plain: dict[str, Any], columns: Columns) -> Block:
    of = _Terms(plain, columns, COARSE if plain.get("coarse") else _EVERY)
    if () in of.terms and of.given is None:
        raise NotReadError("has moments without features")

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        return bound_products(of.terms, unit, power, of.given is not None)

    own, signed = _select(columns, of.names), [blocks.is_signed(term) for term in of.terms]
    return Block(plain, own, of.bounds, of.of, argue, of.by_value, signed)


def _pilot_score(plain: dict[str, Any], columns: Columns) -> Block:
    """Each set of alternatives is at most one in size, whatever the pilot.

    Without numbers in the terms, rows of the same levels differ in the response alone: by one. Rows
    of other levels have two different alternatives in the sets that a changed column is in. Of a
    line residuals are cut off and divided by that, so that such rows may differ by two.
    """
    of = _Terms(plain, columns, _EVERY)
    line, clip = plain["link"] == "identity", plain.get("clip")
    name, level = response = _feature(plain["response"])
    _check_features([response], columns, of.given)
    _refuse_missing([columns[name]], of.given)
    check(plain["pilot"] or [], [int], "pilot")
    if plain["pilot"] and len(plain["pilot"]) != len(of.terms):
        raise NotReadError("has a pilot without one coefficient for each term")
    if (clip is not None) != (line and plain["pilot"] is not None) or not (clip or 1) >= 1:
        raise NotReadError("has no residual at which a score at a pilot is cut off, or a wrong one")
    pilot, column, (low, high) = plain["pilot"], columns[name], columns[name].ends
    top = 1.0 if level is not None else (low + high) / 2 + (high - low) / 2
    mean = cache(lambda steps: mean_response(steps, plain["link"], top))

    def score(row: Row) -> Sums:
        values = of.of(row)
        predictor = sum(x * pilot[t] // of.bounds[t] for t, x in values.items()) if pilot else 0
        if level is None:
            unit = row[name] / column.half
            value = unit if line else ((low + high) / 2 + (high - low) / 2 * unit) / top
            seen = round(value * UNIT)
        else:
            seen = UNIT * (column.bin_of[row[name]] == level)
        if line:
            most = clip or UNIT
            residual = max(-most, min(most, seen - predictor))
            residual = abs(residual) * UNIT // most * (1 if residual > 0 else -1)
        else:
            residual = seen - mean(max(-(2**15), min(2**15, predictor // 64)))
        sizes = {t: min(abs(x * residual) // of.bounds[t], UNIT) for t, x in values.items()}
        return {t: v if (values[t] > 0) == (residual > 0) else -v for t, v in sizes.items() if v}

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        sets = blocks.alternatives(of.terms)
        bound = blocks.by_sets([(True, n) for n in sets.values()], unit, power)
        levels = all(blocks.is_level(f) for term in of.terms for f in term)
        if unit == "replace" and levels and not line:
            some = ([(changed not in own, n) for (_, own), n in sets.items()]
                    for changed in {name for _, own in sets for name in own})  # fmt: skip
            bound = max([Fraction(len(sets)), *(blocks.by_sets(s, unit, power) for s in some)])
        return bound, f"{len(sets)} sets of alternatives, each from -1 to 1, whatever the pilot"

    by_value = of.by_value | ({name} if level is None else set())
    own, bounds = _select(columns, of.names | {name}), [UNIT] * len(of.terms)
    return Block(plain, own, bounds, score, argue, by_value, listed=False)


def mean_response(at: int, link: str, top: float) -> int:
    """The mean of the response at a predictor of so many steps of 1/1024."""
    odds = math.exp(at / 1024)
    return round((odds / (1 + odds) if link == "logit" else min(odds / top, 1.0)) * UNIT)


def _ball_moments(plain: dict[str, Any], columns: Columns) -> Block:
    names, norm = plain["numbers"], fraction(plain["clip_norm"])
    _check_features([(name, None) for name in names], columns, None)
    centers = dict(zip(names, (fraction(v, sign=True) for v in plain["center"]), strict=True))
    scales = dict(zip(names, map(fraction, plain["scale"]), strict=True))
    own = _select(columns, names)
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
    signed = [True] * len(own) + [i != j for i, j in pairs] + [True]
    return Block(plain, own, bounds, of, _bound_ball(len(own), cross), set(names), signed)


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
    weights 1/s and 1 gives the sum of absolute values.
    """
    quarter = Fraction(1, 4)

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        how = "rows are whole numbers that never leave the unit ball"
        if power == 2:
            added = unit == "add_remove"
            return (1 + quarter if added else (2 + quarter) ** 2 / 2) + quarter**2, how
        if unit == "add_remove":
            longest = _root(Fraction(p)) / 2 + 1 + Fraction((p - 1) * BALL**2, 2 * cross)
            return longest + quarter, how
        weights = (Fraction(i, 64) for i in range(1, 129))
        both = ((p * quarter / s + Fraction(p * (p + 1), 2)) * (2 + s) ** 2 / 2 for s in weights)
        return _root(min(both)) + quarter, how

    return argue


def _root(value: Fraction) -> Fraction:
    """Square root, rounded up to a multiple of 2^-40."""
    return Fraction(math.isqrt(math.ceil(value * 2**80) - 1) + 1, 2**40)


def _kernel_lattice(plain: dict[str, Any], columns: Columns) -> Block:
    own, k = tuple(columns[name] for name in plain["columns"]), plain["k"]
    _check_features([(column.name, None) for column in own], columns, None)
    tables = []
    for column in own:
        last = min(len(column.codes), 1025) - 1
        kernels = [[kernel(i, k, at / last, plain["bandwidth"]) for i in range(k + 1)]
                   for at in range(last + 1)]  # fmt: skip
        tables.append(kernels)
    largest = math.prod(max(map(max, kernels)) for kernels in tables)

    def vector(column: Column, kernels: list[list[int]]) -> Vector:
        half, last = column.half, len(kernels) - 1
        return lambda code: enumerate(kernels[((code + half) * last + half) // (2 * half)])

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        norms = (max(sum(v**power for v in at) for at in kernels) for kernels in tables)
        longest = Fraction(math.prod(norms), largest**power)
        how = "no kernel is negative, and a row's norm is the product of those of its columns"
        return longest if unit == "add_remove" else 2 * longest, how

    bounds = [largest] * (k + 1) ** len(own)
    of = of_vectors(own, [k + 1] * len(own), list(map(vector, own, tables)))
    return Block(plain, own, bounds, of, argue, set(plain["columns"]))


def kernel(i: int, k: int, t: float, bandwidth: float) -> int:
    """A reflected Gaussian kernel at a lattice point; the highest is 512, half of that on faces."""
    u = i / k
    parts = (math.exp(-0.5 * (d / bandwidth) ** 2) for d in (u - t, u + t, 2 - u - t))
    return round(512 * (0.5 if i in (0, k) else 1.0) * math.fsum(parts))


def _linear_losses(plain: dict[str, Any], columns: Columns) -> Block:
    regressors = [None if f is None else _feature(f) for f in plain["regressors"]]
    response = _feature(plain["response"])
    used = [response, *(f for f in regressors if f is not None)]
    check([axis[1:3] for axis in plain["axes"]], [[(int, float)]], "axes")
    check([axis[3] for axis in plain["axes"]], [int], "axes")
    _check_features(used, columns, None)
    _refuse_missing([columns[response[0]]], None)
    if (plain["loss"]["kind"] == "logistic") == (response[1] is None):
        raise NotReadError("has a loss that does not fit its response")
    own = _select(columns, {name for name, _ in used})
    return linear_losses(plain, own, response, regressors)


def _tabulated_losses(plain: dict[str, Any], columns: Columns) -> Block:
    own, lines = tuple(columns[name] for name in plain["loss"]["columns"]), plain["loss"]["losses"]
    if len(lines) != math.prod(len(c.codes) for c in own) or len({*map(len, lines)}) > 1:
        raise NotReadError("has a table of losses without one line for each state of its columns")

    def of(row: Row) -> Sums:
        at = 0
        for column in own:
            at = at * len(column.codes) + column.codes.index(row[column.name])
        return dict(enumerate(lines[at]))

    return Block(plain, own, [UNIT] * len(lines[0]), of, None, {column.name for column in own})


def _person_products(
    plain: dict[str, Any], own: tuple[Column, ...], units: Sequence[int],
    totals: Callable[[Row], Sums], argue: Argument, by_value: Set[str],
) -> Block:  # fmt: skip
    pairs = list(itertools.combinations_with_replacement(range(len(units)), 2))
    place = {pair: f for f, pair in enumerate(pairs)}

    def of(row: Row) -> Sums:
        products = itertools.combinations_with_replacement(sorted(totals(row).items()), 2)
        return {place[i, j]: a * b for (i, a), (j, b) in products}

    bounds = [units[i] * units[j] for i, j in pairs]
    return Block(plain, own, bounds, of, argue, by_value, listed=False)


def _person_shares(plain: dict[str, Any], columns: Columns) -> Block:
    """In every group products of s - c and s + c for the steps c of numbers, or numbers of rows."""
    numbers, groups, own, names = _in_groups(plain, columns)
    most = _PERSON_STEPS if len(numbers) < 2 else COARSE // 2
    steps = [min(number.half, most) for number in numbers]
    sides = 2 ** len(numbers)
    units = [math.prod(2 * s for s in steps)] * (sides * len(groups))

    def totals(row: Row) -> Sums:
        inside = [g for g, group in enumerate(groups) if group.holds(row)]
        codes = [step(number, row[number.name], most) for number in numbers]
        pairs = [(s - c, s + c) for s, c in zip(steps, codes, strict=True)]
        parts = [(i, math.prod(of)) for i, of in enumerate(itertools.product(*pairs))]
        return {sides * g + i: part for g in inside for i, part in parts if part}

    how = "a row spreads a weight of one over the totals, and so does the mean of a person's rows"
    argue = blocks.one_set(False, math.comb(len(units) + 1, 2), how)
    return _person_products(plain, own, units, totals, argue, names)


def _person_moments(plain: dict[str, Any], columns: Columns) -> Block:
    """Products of totals of products of numbers, on at most 64 steps, and of levels.

    Let u be a person's totals over the number of rows, so a mean of rows: its C sets of
    alternatives have absolute values that add up to one at most. So have the products of two sets.
    With S the sum of |u_t| and Q that of squares, both at most C, absolute values of all products
    add up to (S^2 + Q) / 2 <= C (C + 1) / 2, and squares to no more. For a person whose values are
    replaced, u becomes v; the scalar product of all products, ((u'v)^2 + sum u_t^2 v_t^2) / 2, is
    not negative, nor is that within one set. The number of rows does not change.
    """
    of = _Terms(plain, columns, COARSE)
    if any(sum(level is None for _, level in term) > 2 for term in of.terms):
        raise NotReadError("has person totals of three numbers")

    def argue(unit: str, power: int) -> tuple[Fraction, str]:
        sets: dict[object, list[Term]] = {}
        for term in of.terms:
            (key,) = blocks.alternatives([term])
            sets.setdefault(key, []).append(term)
        c, known = len(sets), [()] if of.given is None else None
        whole = Fraction(c * (c + 1), 2)
        if unit == "add_remove":
            return whole, f"{c} sets of totals, each at most 1 on the mean of a person's rows"
        apart = [
            (a != b and any(map(blocks.is_signed, (*a, *b))), len(a) * len(b))
            for a, b in itertools.combinations_with_replacement(sets.values(), 2)
            if not a == b == known
        ]
        options = [
            (2 * whole, f"{c} sets of totals, twice what one person has"),
            (blocks.by_sets(apart, unit, power), "each product of two sets at its own worst"),
        ]
        if c == len(of.terms):
            numbers: list[Term] = [
                () if [term] == known else ((str(t), None),) for t, term in enumerate(of.terms)
            ]
            both = itertools.combinations_with_replacement(numbers, 2)
            products = [(*a, *b) for a, b in both if a or b]
            bound, how = bound_products(products, unit, power, False)
            options.append((bound, f"totals are numbers in [-1, 1]; {how}"))
        return min(options)

    own = _select(columns, of.names)
    return _person_products(plain, own, of.bounds, of.of, argue, of.by_value)


def _select(columns: Columns, names: Iterable[str]) -> tuple[Column, ...]:
    used = set(names)
    if isinstance(names, str) or (isinstance(names, list) and len(used) < len(names)):
        raise NotReadError("has a block with a column twice")
    if not used <= set(columns):
        raise NotReadError("has a block of columns that the schema does not have")
    return tuple(column for name, column in columns.items() if name in used)


def _feature(plain: Any) -> Feature:
    name, level = plain
    if not isinstance(name, str) or not (level is None or type(level) is int):
        raise NotReadError("has a feature that is no column with a level")
    return name, level


def _refuse_missing(used: Iterable[Column], group: Group | None) -> None:
    """Refuse values of cells that may be missing: their code is beyond the bound of the others."""
    answered = () if group is None else group.answered
    if any(column.missing is not None and column not in answered for column in used):
        raise NotReadError("has functions of the value of cells that may be missing")


def _check_features(features: Iterable[Feature], columns: Columns, group: Group | None) -> None:
    by_value = []
    for name, level in features:
        column = columns[name]
        if level is None or level == SIGN:
            by_value.append(column)
        signs = level == SIGN and column.bins - (column.missing is not None) == 2
        if not (column.half > 0 if level is None else 0 <= level < column.bins or signs):
            raise NotReadError("has a feature that its column does not have")
    _refuse_missing(by_value, group)


def _group(plain: Mapping[str, Any], columns: Columns) -> Group:
    own, answered = (tuple(columns[n] for n in plain[key]) for key in ("columns", "answered"))
    inside, every = plain["cells"], range(math.prod(column.bins for column in own))
    if len(set(inside)) < len(inside) or not all(cell in every for cell in inside):
        raise NotReadError("has a set of cells that its columns do not have")
    if any(column.missing is None for column in answered):
        raise NotReadError("has a group of answers to a column that always has one")
    return Group(own, frozenset(inside), answered)


_KINDS: dict[str, Callable[[dict[str, Any], Columns], Block]] = {
    "table": lambda plain, columns: table(_select(columns, plain["columns"]), plain),
    "condition": _condition,
    "residual": _residual,
    "partition": _partition,
    "moments": _moments,
    "group_moments": _group_moments,
    "pair_moments": _pair_moments,
    "ball_moments": _ball_moments,
    "kernel_lattice": _kernel_lattice,
    "bin_offsets": _bin_offsets,
    "spline_table": _spline_table,
    "linear_losses": _linear_losses,
    "tabulated_losses": _tabulated_losses,
    "pilot_score": _pilot_score,
    "person_shares": _person_shares,
    "person_moments": _person_moments,
    "contrasts": _contrasts,
}
