"""Products of person totals: the functions, and how much one person changes them.

Let u be the totals of a person over the number of rows that a person may have: a mean of as many
rows, or of fewer and of zeros. Totals are in sets of which a row has absolute values that add up to
one at most, and so has u. With C sets, S the sum of |u_t| and Q that of u_t^2, both at most C,

    sum over t <= s of |u_t u_s| = (S^2 + Q) / 2 <= C (C + 1) / 2

and the sum of squares, (Q^2 + sum u_t^4) / 2, is at most the same. For a person whose values are
replaced, u becomes v. The sum over t <= s of u_t u_s v_t v_s is ((u'v)^2 + sum u_t^2 v_t^2) / 2,
not negative, so that squared changes add up to C (C + 1) at most, and absolute ones do by the
triangle inequality. Where every total is a set of its own, it is a number in [-1, 1] like any
other, and products of totals change as products of numbers do. The number of rows does not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpstats.verifying import monomials
from dpstats.verifying.columns import Column
from dpstats.verifying.enumeration import change, climb, corners, enter
from dpstats.verifying.functions import (
    COARSE,
    Block,
    Feature,
    Group,
    Row,
    Sums,
    Term,
    alternatives,
)

LARGEST = 4096  # total of a person of one row
MOST_ROWS = 63  # of a person


@dataclass(frozen=True, eq=False)
class PersonProducts(Block):
    """Products of every two totals, of a person of one row."""

    @property
    def units(self) -> list[int]:
        """The largest absolute value of each total."""
        raise NotImplementedError

    def totals(self, row: Row) -> Sums:
        """Those that are not zero on a row."""
        raise NotImplementedError

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Which totals each function is the product of."""
        return list(itertools.combinations_with_replacement(range(len(self.units)), 2))

    @cached_property
    def bounds(self) -> Sequence[int]:
        """Products of the largest values."""
        return [self.units[i] * self.units[j] for i, j in self.pairs]

    @cached_property
    def _place(self) -> dict[tuple[int, int], int]:
        return {pair: f for f, pair in enumerate(self.pairs)}

    def of(self, row: Row) -> Sums:
        """The products that are not zero."""
        own = sorted(self.totals(row).items())
        pairs = itertools.combinations_with_replacement(own, 2)
        return {self._place[i, j]: a * b for (i, a), (j, b) in pairs}


def _step(code: int, half: int, steps: int) -> int:
    if steps == half:
        return code
    nearest = (2 * steps * abs(code) + half) // (2 * half)
    return nearest if code > 0 else -nearest


@dataclass(frozen=True, eq=False)
class PersonShares(PersonProducts):
    """In every group s - c and s + c for the step c of a number, or the number of rows."""

    number: Column | None = None
    groups: tuple[Group, ...] = ()

    @property
    def steps(self) -> int:
        """S."""
        return 0 if self.number is None else min(self.number.half, LARGEST // 2)

    @cached_property
    def units(self) -> list[int]:
        """2 s, or one."""
        sides, unit = (1, 1) if self.number is None else (2, 2 * self.steps)
        return [unit] * (sides * len(self.groups))

    def totals(self, row: Row) -> Sums:
        """Of the groups that hold the row."""
        held = [g for g, group in enumerate(self.groups) if group.holds(row)]
        if self.number is None:
            return dict.fromkeys(held, 1)
        c, s = _step(row[self.number.name], self.number.half, self.steps), self.steps
        both = {2 * g + side: part for g in held for side, part in enumerate((s - c, s + c))}
        return {t: value for t, value in both.items() if value}

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of the number, one of every bin of others."""
        own = self.number is not None and column.name == self.number.name
        return column.codes if own else self.one_of_each_bin(column)


@dataclass(frozen=True, eq=False)
class PersonMoments(PersonProducts):
    """Totals of products of numbers, on at most 64 steps to either side, and of levels."""

    terms: tuple[Term, ...] = ()
    given: Group | None = None

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def units(self) -> list[int]:
        """Products of the steps of the numbers."""
        by_name = self._by_name
        return [math.prod(min(by_name[n].half, COARSE) for n, level in t if level is None)
                for t in self.terms]  # fmt: skip

    def totals(self, row: Row) -> Sums:
        """The products."""
        if self.given is not None and not self.given.holds(row):
            return {}

        def value(feature: Feature) -> int:
            column, code = self._by_name[feature[0]], row[feature[0]]
            if feature[1] is not None:
                return int(column.bin_of[code] == feature[1])
            return _step(code, column.half, min(column.half, COARSE))

        found = {t: math.prod(map(value, term)) for t, term in enumerate(self.terms)}
        return {t: product for t, product in found.items() if product}

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of numbers, one of every bin of others."""
        number = any((column.name, None) in term for term in self.terms)
        return column.codes if number else self.one_of_each_bin(column)


def of_shares(block: PersonShares, unit: str, power: int) -> tuple[Fraction, Fraction, str]:
    """What two persons of equal rows change, a bound, and the argument."""
    cells = [cell for group in block.groups for cell in group.cells]
    alike = len({(g.columns, g.answered) for g in block.groups}) == 1
    if not alike or len(set(cells)) < len(cells):
        raise ValueError("groups of rows with a row in common")
    one = {column.name: column.codes[0] for column in block.columns}
    other = dict(one)
    enter(block.groups[0], one)
    enter(block.groups[-1], other)
    if block.number is not None:
        codes = [code for code in block.number.codes if code != block.number.missing]
        one[block.number.name], other[block.number.name] = codes[0], codes[-1]
    reached = change(block, one, other if unit == "replace" else None, power)
    how = "a row spreads a weight of one over the totals, and so does the mean of a person's rows"
    return reached, Fraction(2 if unit == "replace" else 1), how


def of_moments(block: PersonMoments, unit: str, power: int) -> tuple[Fraction, Fraction, str]:
    """The same."""
    top, low = corners(block, block.terms, {})
    start = (top, None if unit == "add_remove" else low)
    reached = climb(block, start, power, max(20, 50_000 // block.size))[0]
    c = len(alternatives(block.terms))
    whole = Fraction(c * (c + 1), 2)
    if unit == "add_remove":
        return reached, whole, f"{c} sets of totals, each at most 1 on the mean of a person's rows"
    known = block.terms.index(()) if block.given is None and () in block.terms else None
    options = [
        (2 * whole, f"{c} sets of totals, twice what one person has"),
        (_apart(block, known, power), "each product of two sets of totals at its own worst"),
    ]
    if c == len(block.terms):
        features: list[Term] = [() if t == known else ((str(t), None),) for t in range(c)]
        pairs = itertools.combinations_with_replacement(features, 2)
        bound, how, _ = monomials.replaced([(*a, *b) for a, b in pairs if a or b], power)
        options.append((bound, f"totals are numbers in [-1, 1]; {how}"))
    bound, how = min(options, key=lambda option: option[0])
    return reached, bound, how


def _apart(block: PersonMoments, known: int | None, power: int) -> Fraction:
    """A product of two sets has absolute values that add up to one at most, for one person.

    Two persons differ by 2 in it, or by 1 if it is one product that is not negative. Squares add up
    to 4, or 2 if nothing is negative or the two sets are the same, by the scalar product above.
    """
    sets: dict[object, list[int]] = {}
    for t, term in enumerate(block.terms):
        (key,) = alternatives([term])
        sets.setdefault(key, []).append(t)
    total = 0
    for one, other in itertools.combinations_with_replacement(list(sets.values()), 2):
        if one == other == [known]:
            continue
        signed = one != other and any(
            block.terms[t].count(feature) % 2
            for t in (*one, *other) for feature in block.terms[t] if feature[1] is None
        )  # fmt: skip
        if len(one) == len(other) == 1 and not signed:
            total += 1
        else:
            total += 2 if power == 1 else 4 if signed else 2
    return Fraction(total)
