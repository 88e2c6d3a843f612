"""The largest change of a vector of functions between two rows: every row, or every pair of them.

For power 1 the change is the sum of absolute differences, for power 2 that of their squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from dpstats.verifying.functions import SIGN, Block, Row, Sums, Term

MOST_PAIRS = 1_000_000  # functions times pairs of rows that are subtracted
MOST_ENTRIES = 200_000  # functions times rows that are computed, one by one

Vector = tuple[int, ...]


def weights_of(bounds: Sequence[int], power: int) -> tuple[list[int], int]:
    """Whole weights of the changes of functions with bounds B, and what their sum is divided by."""
    common = math.lcm(*set(bounds))
    return [(common // bound) ** power for bound in bounds], common**power


def change(block: Block, one: Row, other: Row | None, power: int) -> Fraction:
    """The change when one row replaces another, or is added (None), in units of B."""
    before: Sums = {} if other is None else block.of(other)
    after, bounds = block.of(one), block.bounds
    moved = {f: after.get(f, 0) - before.get(f, 0) for f in {*after, *before}}
    by_bound: dict[int, int] = {}
    for f, difference in moved.items():
        by_bound[bounds[f]] = by_bound.get(bounds[f], 0) + abs(difference) ** power
    return sum((Fraction(v, b**power) for b, v in by_bound.items()), Fraction(0))


def every_row(block: Block, unit: str, power: int) -> tuple[Fraction, int] | None:
    """The largest change over all rows, or all pairs of rows, and how many; None for too many."""
    size, states = block.size, block.states
    if states * size > MOST_ENTRIES:
        return None
    if unit == "replace" and states * states * size > 2 * MOST_PAIRS:
        return None
    values = {tuple(sorted(block.of(row).items())) for row in block.rows()}
    weights, divisor = weights_of(block.bounds, power)
    if unit == "add_remove":
        largest = max(sum(weights[f] * abs(v) ** power for f, v in one) for one in values)
        return Fraction(largest, divisor), states
    sparse, largest = [dict(one) for one in values], 0
    for i, one in enumerate(sparse):
        for other in sparse[i + 1 :]:
            moved = 0
            for f, value in one.items():
                moved += weights[f] * abs(value - other.get(f, 0)) ** power
            for f, value in other.items():
                if f not in one:
                    moved += weights[f] * abs(value) ** power
            largest = max(largest, moved)
    return Fraction(largest, divisor), states


def farthest(vectors: Sequence[Vector], power: int) -> tuple[int, int]:
    """Largest distance of two vectors: one that is reached, and a bound on it.

    With c any point, two vectors u and v are at most |u - c| + |v - c| apart, in both norms. Pairs
    are compared in decreasing order of these norms, until no pair that is left can be farther.
    """
    centre = _centre(vectors, power)
    norm = _sum_of_absolutes if power == 1 else _length
    far = [norm(tuple(2 * a - b for a, b in zip(v, centre, strict=True))) / 2 for v in vectors]
    order = sorted(range(len(vectors)), key=lambda i: -far[i])
    reached, limit, work = 0, 0.0, 0
    for place, i in enumerate(order[:-1]):
        most = far[i] + far[order[place + 1]]
        if most <= limit:
            break
        if work > 20 * MOST_PAIRS:
            return reached, math.ceil(most**power * (1 + 1e-12))
        one = vectors[i]
        for j in order[place + 1 :]:
            if far[i] + far[j] <= limit:
                break
            work += len(one)
            reached = max(reached, distance(one, vectors[j], power))
            limit = float(reached) if power == 1 else math.sqrt(reached)
    return reached, reached


def largest_norm(vectors: Iterable[Vector], power: int) -> int:
    """Largest sum of absolute values, or of squares."""
    largest: int = max(sum(abs(a) ** power for a in vector) for vector in vectors)
    return largest


def _centre(vectors: Sequence[Vector], power: int) -> Vector:
    """Twice a point in the middle: a vector and the one farthest from it, found twice."""
    far = vectors[0]
    for _ in range(2):
        start, far = far, max(vectors, key=lambda v: distance(v, far, power))
    return tuple(a + b for a, b in zip(start, far, strict=True))


def distance(one: Vector, other: Vector, power: int) -> int:
    """Sum of absolute, or of squared, differences."""
    pairs = zip(one, other, strict=True)
    if power == 1:
        return sum([abs(a - b) for a, b in pairs])
    squares: int = sum([(a - b) * (a - b) for a, b in pairs])
    return squares


def _sum_of_absolutes(vector: Vector) -> float:
    return float(sum(map(abs, vector)))


def _length(vector: Vector) -> float:
    return math.sqrt(sum(a * a for a in vector))


def climb(
    block: Block, start: tuple[Row, Row | None], power: int, tries: int = 400
) -> tuple[Fraction, tuple[Row, Row | None]]:
    """The largest change that a search finds: one cell of one row after another is changed."""
    rows = [dict(start[0]), None if start[1] is None else dict(start[1])]
    best = change(block, rows[0] or {}, rows[1], power)
    moves: list[Callable[[Sequence[int]], int]] = [min, max, lambda codes: codes[len(codes) // 2]]
    for _ in range(2):
        before = best
        for column in block.columns:
            codes = list(block.codes(column))
            few = codes if len(codes) <= 8 else [move(codes) for move in moves]
            for row in rows:
                if row is None:
                    continue
                for code in few:
                    kept, row[column.name] = row[column.name], code
                    found, tries = change(block, rows[0] or {}, rows[1], power), tries - 1
                    if found > best:
                        best = found
                    else:
                        row[column.name] = kept
                    if tries <= 0:
                        return best, (rows[0] or {}, rows[1])
        if best == before:
            break
    return best, (rows[0] or {}, rows[1])


def corners(block: Block, terms: Sequence[Term], at: dict[str, Fraction]) -> tuple[Row, Row]:
    """A row at the upper ends with used levels, and one at t, by default the lower ends."""
    levels: dict[str, list[int]] = {}
    for term in terms:
        for name, level in term:
            if level is not None and level != SIGN and level not in levels.setdefault(name, []):
                levels[name].append(level)
    one, other = {}, {}
    given = getattr(block, "given", None)
    for column in block.columns:
        codes = [code for code in column.codes if code != column.missing] or list(column.codes)
        one[column.name], other[column.name] = codes[-1], codes[0]
        if column.name in at:
            wanted = at[column.name] * (codes[-1] if column.is_number else 1)
            if column.is_number:
                other[column.name] = min(codes, key=lambda code: abs(code - wanted))
            else:
                other[column.name] = column.a_code_of(1 if wanted > 0 else 0)
        elif column.name in levels:
            own = levels[column.name]
            one[column.name] = column.a_code_of(own[0])
            spare = next((i for i in range(column.bins) if i != own[0]), own[0])
            other[column.name] = column.a_code_of(own[1] if len(own) > 1 else spare)
    if given is not None and not (given.holds(one) and given.holds(other)):
        enter(given, one)
        enter(given, other)
    return one, other


def enter(given: object, row: dict[str, int]) -> None:
    """Move a row into the first cell of a subgroup that it can be in."""
    columns, cells = given.columns, given.cells  # type: ignore[attr-defined]
    for cell in sorted(cells):
        rest = cell
        for column in reversed(columns):
            row[column.name] = column.a_code_of(rest % column.bins)
            rest //= column.bins
        if given.holds(row):  # type: ignore[attr-defined]
            return
