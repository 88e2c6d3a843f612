"""The sensitivity of every kind of block: what pairs of rows reach, and a bound with its argument.

Power 1 is the sum of absolute changes, power 2 that of squared changes, both in units of the bounds
B, as Laplace and Gaussian noise need them. Neighbours replace a row, or add one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpstats.verifying import monomials
from dpstats.verifying.enumeration import (
    change,
    climb,
    corners,
    enter,
    every_row,
    farthest,
    largest_norm,
)
from dpstats.verifying.functions import (
    BinOffsets,
    Block,
    Condition,
    GroupMoments,
    Moments,
    Residual,
    Row,
    Table,
    alternatives,
)
from dpstats.verifying.losses import (
    FEW_LOSSES,
    LARGEST,
    LinearLosses,
    TabulatedLosses,
    divided,
    vectors,
)
from dpstats.verifying.numeric_functions import BALL, BallMoments, KernelLattice, PilotScore
from dpstats.verifying.persons import (
    PersonMoments,
    PersonProducts,
    PersonShares,
    of_moments,
    of_shares,
)

_MOST_COLUMNS = 16


@dataclass(frozen=True)
class Finding:
    """What is known of a sensitivity.

    Attributes
    ----------
    reached : Fraction
        What some pair of rows (or some row) changes.
    bound : Fraction
        What no pair of rows exceeds.
    how : str
        The argument for the bound.
    """

    reached: Fraction
    bound: Fraction
    how: str


def find(block: Block, unit: str, power: int) -> Finding:
    """The sensitivity of a block under a neighbour relation."""
    # A pilot may still come, and persons have means of rows.
    by_argument = Table | Condition | PilotScore | PersonProducts
    exact = None if isinstance(block, by_argument) else every_row(block, unit, power)
    if exact is not None:
        largest, states = exact
        what = "pairs of them" if unit == "replace" else "of them one by one"
        return Finding(largest, largest, f"all {states:,} rows were enumerated, and all {what}")
    return _BOUNDS[type(block)](block, unit, power)


def _table(block: Block, unit: str, power: int) -> Finding:
    if isinstance(block, Residual):
        return _residual(block, unit, power)
    if isinstance(block, Condition):
        cells = math.prod(column.bins for column in block.columns)
        inside = len({cell for cell in block.group.cells if 0 <= cell < cells})
        one = Fraction(int(inside > 0 and (unit == "add_remove" or inside < cells)))
        how = f"{inside} of {cells:,} cells are in it, so a row counts once or not"
        return Finding(one, one, how)
    cells = block.size
    for column in block.columns:
        if {column.bin_of[code] for code in column.codes} != set(range(column.bins)):
            raise ValueError(f"{column.name} has a bin without codes")
    moved = Fraction(1 if unit == "add_remove" else 2 * (cells > 1))
    how = f"each of the rows that can be is in one of {cells:,} cells, and all cells have rows"
    if not block.columns:
        how = "it is 1 on every row"
    return Finding(moved, moved, how)


def _residual(block: Residual, unit: str, power: int) -> Finding:
    bound = Fraction(block.bounds[0]) ** power
    if power == 2:
        found = joint_residuals([block], [1 / bound], unit)
        how = "the change depends on the columns that differ alone: all sets of them"
        return Finding(found, found, how)
    # One function of each column has its other sign, and the larger size, at the row's own bin.
    one = Fraction(math.prod(2 * (column.bins - 1) for column in block.columns)) / bound
    start = {c.name: block.one_of_each_bin(c)[0] for c in block.columns}
    other = {c.name: block.one_of_each_bin(c)[1] for c in block.columns}
    if unit == "add_remove":
        return Finding(change(block, start, None, 1), one, "every row has the same functions")
    reached, _ = climb(block, (start, other), 1, 50)
    return Finding(reached, 2 * one, "twice the sum of absolute values on one row")


def joint_residuals(blocks: Sequence[Residual], weights: Sequence[Fraction], unit: str) -> Fraction:
    """Largest sum over residuals of weight times squared change, for one pair of rows.

    Where rows differ in the columns D, the scalar product of their functions is that of a row with
    itself times -1 / (n - 1) for every column of D. The sum over residuals is therefore linear in
    each of the indicators of D: its coefficients are added up over the subsets of every D.
    """
    lengths = [math.prod(c.bins * (c.bins - 1) for c in block.columns) for block in blocks]
    amounts = [w * length for w, length in zip(weights, lengths, strict=True)]
    if unit == "add_remove":
        return sum(amounts, Fraction(0))
    columns = list(dict.fromkeys(column.name for block in blocks for column in block.columns))
    if len(columns) > _MOST_COLUMNS:
        own = (joint_residuals([b], [w], unit) for b, w in zip(blocks, weights, strict=True))
        return sum(own, Fraction(0))
    bins = {c.name: c.bins for block in blocks for c in block.columns}
    common = math.lcm(*(a.denominator for a in amounts))
    scale = math.prod(bins[name] - 1 for name in columns)
    total = [0] * (1 << len(columns))
    for block, amount in zip(blocks, amounts, strict=True):
        names = [column.name for column in block.columns]
        for size in range(len(names) + 1):
            for some in itertools.combinations(names, size):
                factor = Fraction(scale)
                for name in some:
                    factor *= Fraction(-bins[name], bins[name] - 1)
                place = sum(1 << columns.index(name) for name in some)
                total[place] += int(factor * amount * common)
    for bit in range(len(columns)):
        step = 1 << bit
        for place in range(len(total)):
            if place & step:
                total[place] += total[place ^ step]
    return 2 * (total[0] - min(total)) / Fraction(common * scale)


def _moments(block: Moments, unit: str, power: int) -> Finding:
    sets = len(alternatives(block.terms))
    top, low = corners(block, block.terms, {})
    if unit == "add_remove":
        reached = change(block, top, None, power) if block.size <= 20_000 else Fraction(0)
        how = f"{sets:,} sets of terms that share all but their levels; a row has 1 in each at most"
        return Finding(reached, Fraction(sets), how)
    bound, how, at = monomials.replaced([term for term in block.terms if term], power)
    if block.given is not None and sets > bound:
        bound, how = Fraction(sets), f"a row that enters the group has 1 in each of {sets} sets"
    if block.size > 20_000:
        return Finding(Fraction(0), bound, how)
    starts: list[tuple[Row, Row | None]] = [(top, corners(block, block.terms, at)[1]), (top, low)]
    if block.given is not None:
        starts.append((top, _outside(block, top)))
    tries = max(20, 150_000 // block.size)
    reached = max(climb(block, start, power, tries)[0] for start in starts)
    return Finding(reached, bound, how)


def _outside(block: Moments, row: Row) -> Row | None:
    """A row out of the subgroup, where one cell of it makes it so."""
    for column in block.columns:
        for code in block.one_of_each_bin(column):
            other = {**row, column.name: code}
            if block.given is not None and not block.given.holds(other):
                return other
    return row


def _group_moments(block: GroupMoments, unit: str, power: int) -> Finding:
    groups = block.groups
    cells = [cell for group in groups for cell in group.cells]
    alike = len({(g.columns, g.answered) for g in groups}) == 1 and len(set(cells)) == len(cells)
    k, times = block.half, 2 if unit == "replace" else 1
    number = next(column for column in block.columns if column.name == block.number)
    codes = [code for code in number.codes if code != number.missing]
    parts = (((k - c) ** 2, 2 * (k * k - c * c), (k + c) ** 2) for c in codes)
    if not all(min(three) >= 0 and sum(three) == 4 * k * k for three in parts):
        raise ValueError("parts of a row that do not add up to one")
    most = Fraction(times) if alike else Fraction(times * len(groups))
    one = {column.name: column.codes[0] for column in block.columns}
    enter(groups[0], one)
    low, high = {**one, block.number: codes[0]}, {**one, block.number: codes[-1]}
    reached = change(block, low, high if unit == "replace" else None, power)
    where = "no two groups share a row" if alike else "a row may be in every group"
    how = f"at each of {len(codes):,} codes the parts are not negative and add up to 1; {where}"
    return Finding(reached, most, how)


def _ball(block: BallMoments, unit: str, power: int) -> Finding:
    """Bounds for rows w, v in the unit ball, D = ww' - vv', and 1/4 for the count of shrunk rows.

    Squares: means count (w - v)^2 / 4, all of D counts once. With c = w'v the sum is
    |w|^4 + |v|^4 + (|w|^2 + |v|^2) / 4 - 2 c^2 - c / 2 <= 2 + 1/2 + 1/32, as -2c^2 - c/2 <= 1/32.
    With a weight s on the means it is (2 + s/4)^2 / 2 likewise, and Cauchy's inequality with
    weights 1/s and 1 gives the sum of absolute values.
    """
    p, quarter = len(block.columns), Fraction(1, 4)
    cross = Fraction(BALL**2, math.isqrt(BALL**4 // 2) + 1)  # of w_i w_j: at most root two
    if unit == "add_remove":
        longest = root(Fraction(p)) / 2 + 1 + Fraction(p - 1, 2) * cross
        bound = longest + quarter if power == 1 else quarter + 1 + quarter**2
        how = "a row in the unit ball: |w| <= 1, so |w_1| + .. + |w_p| <= root p"
    elif power == 2:
        bound = (2 + quarter) ** 2 / 2 + quarter**2
        how = "rows in the unit ball: -2c^2 - c/2 <= 1/32 for their scalar product c"
    else:
        weighted = (
            (p * quarter / s + Fraction(p * (p + 1), 2)) * (2 + s) ** 2 / 2
            for s in (Fraction(i, 256) for i in range(1, 513))
        )
        bound = root(min(weighted)) + quarter
        how = "rows in the unit ball: Cauchy's inequality on the bound of squares"
    ends = [(min(column.codes), max(column.codes)) for column in block.columns]
    one = {c.name: high for c, (_, high) in zip(block.columns, ends, strict=True)}
    other = {}
    for i, (column, end) in enumerate(zip(block.columns, ends, strict=True)):
        other[column.name] = end[i % 2]
    reached, _ = climb(block, (one, other if unit == "replace" else None), power, 200)
    return Finding(reached, bound, how + "; rows are whole numbers that never leave it")


def root(value: Fraction) -> Fraction:
    """Square root, rounded up to a multiple of 2^-40."""
    scaled = math.ceil(value * 2**80)
    return Fraction(math.isqrt(scaled - 1) + 1, 2**40)


def _lattice(block: KernelLattice, unit: str, power: int) -> Finding:
    unit_of = Fraction(block.bounds[0]) ** power
    heights = [[sum(v**power for v in column) for column in table] for table in block.tables]
    longest = Fraction(math.prod(map(max, heights))) / unit_of
    if unit == "add_remove":
        how = "no kernel is negative: a row's norm is the product of the columns' norms"
        return Finding(longest, longest, how)
    if len(block.columns) == 1:
        columns = list(dict.fromkeys(map(tuple, block.tables[0])))
        reached, bound = farthest(columns, power)
        how = f"all pairs of {len(columns):,} positions"
        return Finding(Fraction(reached) / unit_of, Fraction(bound) / unit_of, how)
    best = [max(range(len(h)), key=h.__getitem__) for h in heights]
    rows = []
    for flip in (False, True):
        codes = {}
        for column, place, own in zip(block.columns, best, heights, strict=True):
            at = len(own) - 1 - place if flip else place
            codes[column.name] = column.codes[round(at * (len(column.codes) - 1) / (len(own) - 1))]
        rows.append(codes)
    reached_by = change(block, rows[0], rows[1], power)
    how = "twice the largest norm of a row: no kernel is negative"
    return Finding(reached_by, 2 * longest, how)


def _offsets(block: BinOffsets, unit: str, power: int) -> Finding:
    largest, within = Fraction(0), Fraction(0)
    for first, last in block.ends.values():
        width = max(last - first, 1)
        own = [c for c in block.column.codes if first <= c <= last]
        values = [Fraction(2 * c - first - last, width) for c in own]
        largest = max(largest, *map(abs, values))
        within = max(within, max(values) - min(values))
    several = any(c.bins > 1 for c in block.columns)
    apart = 2 * largest**power if several else Fraction(0)
    found = largest**power if unit == "add_remove" else max(apart, within**power)
    how = f"all {len(block.column.codes):,} codes of {block.number}, in one cell or in two"
    return Finding(found, found, how)


def _score(block: PilotScore, unit: str, power: int) -> Finding:
    """Each set of alternatives is at most one in size, whatever the pilot.

    Without numbers in the terms, rows of the same levels differ in the response alone: by one. Rows
    of other levels have two different alternatives in the sets that a changed column is in.
    """
    sets = alternatives(block.terms)
    k = len(sets)
    top, low = corners(block, block.terms, {})
    start = (top, None if unit == "add_remove" else low)
    pilots = [block.pilot] if block.pilot is not None else [
        tuple(sign * 2**24 * (i < 1 or every) for i in range(block.size))
        for sign in (-1, 1) for every in (False, True)
    ]  # fmt: skip
    some = [replace(block, pilot=pilot, _means={}) for pilot in pilots]
    tries = max(20, 50_000 // block.size)
    reached = max(climb(one, start, power, tries)[0] for one in some)
    if unit == "add_remove":
        how = f"{k} sets of alternatives, each at most 1 in size, whatever the pilot"
        return Finding(reached, Fraction(k), how)
    bound, each = 2**power * k, 2**power
    if all(level is not None for term in block.terms for _, level in term):
        names = {name for _, own in sets for name in own}
        touched = [[min(2, n) for (_, own), n in sets.items() if name in own] for name in names]
        bound = max([k, *(each * (k - len(own)) + sum(own) for own in touched)])
    how = f"{k} sets of alternatives, each from -1 to 1, whatever the pilot"
    return Finding(reached, Fraction(bound), how)


def _losses(block: LinearLosses | TabulatedLosses, unit: str, power: int) -> Finding:
    divisor = Fraction(LARGEST) ** power
    if isinstance(block, TabulatedLosses) or block.states**2 * block.size <= FEW_LOSSES:
        listed = vectors(block)
        if unit == "add_remove":
            reached = bound = largest_norm(listed, power)
        else:
            reached, bound = farthest(listed, power)
        how = f"the losses of all {block.states:,} rows, {len(listed):,} of them different"
        return Finding(reached / divisor, bound / divisor, how)
    assert isinstance(block, LinearLosses)
    reached, bound, boxes = divided(block, unit, power)
    how = (
        f"{block.states:,} rows in {boxes:,} boxes, with the range of every loss over each: the "
        "boxes that could be farthest apart were divided"
    )
    return Finding(reached / divisor, bound / divisor, how)


def _shares(block: PersonShares, unit: str, power: int) -> Finding:
    return Finding(*of_shares(block, unit, power))


def _person_moments(block: PersonMoments, unit: str, power: int) -> Finding:
    return Finding(*of_moments(block, unit, power))


_BOUNDS: dict[type[Block], Callable[..., Finding]] = {
    Table: _table,
    Condition: _table,
    Residual: _table,
    Moments: _moments,
    GroupMoments: _group_moments,
    BallMoments: _ball,
    KernelLattice: _lattice,
    BinOffsets: _offsets,
    PilotScore: _score,
    PersonShares: _shares,
    PersonMoments: _person_moments,
    LinearLosses: _losses,
    TabulatedLosses: _losses,
}
