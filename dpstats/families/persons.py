"""Squares and products of person totals: what the variance of a sum over persons follows from.

A person total is the sum of a function over the rows of one person that are used. Totals are added
up row by row where rows are read, multiplied once all rows are in, and summed over persons. The
sensitivities are eq. person-products and persons-replaced of
``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, noise_ratio, of_weight_one
from dpstats.families.features import Term, alternatives, is_signed, replacement, rounded
from dpstats.families.group_moments import GroupBlock, groups_from_plain
from dpstats.families.moments import COARSE_STEPS, TermBlock, terms_and_given, used_columns
from dpstats.families.subgroups import EVERY_CELL, Subgroup, plain_given, require_answered
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import CellSet

MOST_ROWS_OF_PERSON = 63
"""At most: with more, sums of squares over 2^32 rows could pass 2^62."""
LARGEST_TOTAL = 2**12  # of a person of one row
_NOISE = 16  # at most, of that on others
_SHARE = Fraction(1, 7)  # of the cost of the sums over rows


class PersonProducts(Block):
    """Sums over persons of the products of every two of T person totals, squares among them.

    In unit scale a total of a person of one row is in [-1, 1]. Sensitivities are those of such a
    person; one of k rows has totals k times as large, so that L1 is k^2 and squared L2 k^4 times as
    large.
    """

    degree: ClassVar[int] = 2

    @property
    @abstractmethod
    def totals(self) -> tuple[Hashable, ...]:
        """Keys of the T totals."""

    @property
    @abstractmethod
    def units(self) -> Codes:
        """(T,) the largest absolute value of each total of a person of one row, in integers."""

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """A short name for each total."""

    @abstractmethod
    def of_rows(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (T, n) int64 that each row adds to its person's totals."""

    @property
    @abstractmethod
    def sets(self) -> Sequence[Sequence[int]]:
        """Numbers of the totals in sets whose absolute values add up to at most one on a row."""

    @property
    def signed(self) -> Sequence[bool]:
        """True for each total that may be negative."""
        return [False] * len(self.totals)

    @property
    def known(self) -> int | None:
        """Position of the total that is the number of rows, fixed under replaced values."""
        return None

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions of the two totals that each function (d,) is the product of."""
        return np.triu_indices(len(self.totals))

    @property
    def size(self) -> int:
        """T (T + 1) / 2."""
        return len(self.pairs[0])

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Least and largest value of each function for a person of one row."""
        i, j = self.pairs
        high, signed = self.units[i] * self.units[j], np.array(self.signed)
        return np.where((signed[i] | signed[j]) & (i != j), -high, 0), high

    @property
    def names(self) -> list[str]:
        """Such as ``person totals of rows times age``."""
        labels = self.labels
        return [
            f"person totals of {labels[i]}" + (" squared" if i == j else f" times {labels[j]}")
            for i, j in zip(*self.pairs, strict=True)
        ]

    @property
    def calibrates(self) -> bool:
        """They only estimate sampling variances."""
        return True

    def of_totals(self, totals: Codes) -> Codes:
        """Sums (d,) int64 over persons, totals (T, persons) int64; exact as `Strategy` checks."""
        return np.asarray((totals @ totals.T)[self.pairs])

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Sums (d,) int64 where every row is a person of its own."""
        return self.of_totals(self.of_rows(codes))

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64 of rows, each a person of its own."""
        values = self.of_rows(codes)
        i, j = self.pairs
        return values[i] * values[j]

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """To a person of one row, or of several rows whose totals are divided by their number."""
        return self._once(("sensitivity", unit), lambda: self._sensitivity(unit))

    def _sensitivity(self, unit: Unit) -> Sensitivity:
        c = len(self.sets)
        one = Fraction(c * (c + 1), 2)
        if unit == "add_remove":
            return Sensitivity(one, one)
        bounds = [Sensitivity(2 * one, 2 * one), self._set_by_set()]
        if c == len(self.totals):  # each total is a number in [-1, 1]
            features = [() if t == self.known else ((str(t), None),) for t in range(c)]
            terms = [(*a, *b) for a, b in combinations_with_replacement(features, 2)]
            bounds.append(replacement([term for term in terms if term]))
        return Sensitivity(min(b.l1 for b in bounds), min(b.l2_squared for b in bounds))

    def _set_by_set(self) -> Sensitivity:
        """Products of two sets (or of one, eq. persons-replaced), each pair at its own worst."""
        l1 = l2_squared = 0
        signed = [any(self.signed[t] for t in own) for own in self.sets]
        for a, b in combinations_with_replacement(range(len(self.sets)), 2):
            single = len(self.sets[a]) == len(self.sets[b]) == 1
            if single and self.sets[a][0] == self.sets[b][0] == self.known:
                continue
            positive = a == b or not (signed[a] or signed[b])
            l1 += 1 if single and positive else 2
            l2_squared += 4 if not positive else 1 if single else 2
        return Sensitivity(Fraction(l1), Fraction(l2_squared))

    @abstractmethod
    def of_rows_alone(self, unit: Unit) -> Sensitivity:
        """Sensitivity to a row of the sums over rows whose variance the products estimate."""

    def noise_factor(self, budget: Budget, unit: Unit) -> int:
        """Ratio of the noise on these functions, over the rows of a person, to that on others.

        16, or less where it costs at most a seventh of what the sums over rows cost.
        """
        allowed = budget.price(self.of_rows_alone(unit)) * _SHARE
        return min(noise_ratio(budget.price(self.sensitivity(unit)), allowed, budget), _NOISE)

    @property
    def keys(self) -> Sequence[frozenset[Hashable]]:  # type: ignore[override]
        """The two totals of each product."""
        totals = self.totals
        return [frozenset((totals[i], totals[j])) for i, j in zip(*self.pairs, strict=True)]


@dataclass(frozen=True)
class PersonShares(GroupBlock, PersonProducts):
    """Person totals over which each row spreads a weight of one.

    With a number x in [-1, 1] these are (1 - x) / 2 and (1 + x) / 2 in every group of rows, with a
    second one the products of both's, else the number of rows in each. Size and sums of a group
    follow from its totals, and so does the variance of a mean, of a share, of a difference of two,
    or of a ratio of sums.

    Attributes
    ----------
    number : Number or None
    groups : tuple of Subgroup
        Without a row in common; they exclude rows without a value of the numbers.
    second : Number, optional

    Examples
    --------
    >>> import dpstats as dps
    >>> age = dps.Number("age", 0, 100, missing=40)
    >>> from dpstats.families.persons import PersonShares
    >>> PersonShares.of_all(age).names[1]
    'person totals of age low times age high'
    """

    number: Number | None
    groups: tuple[Subgroup, ...]
    second: Number | None = None

    kind: ClassVar[str] = "person_shares"
    parts: ClassVar[tuple[str, ...]] = ("low", "high")

    @staticmethod
    def of_all(number: Number) -> PersonShares:
        """Totals of all rows, each of which has a value of the number."""
        return PersonShares(number, (Subgroup(EVERY_CELL),))

    @staticmethod
    def of_cells(
        columns: Sequence[Column], sets: Iterable[tuple[NDArray[np.bool_], str]]
    ) -> PersonShares:
        """Numbers of rows in sets of cells of some columns without a cell in common, labelled."""
        return PersonShares(None, tuple(
            Subgroup(CellSet(tuple(columns), np.ascontiguousarray(cells).tobytes()), label=label)
            for cells, label in sets
        ))  # fmt: skip

    @property
    def numbers(self) -> tuple[Number, ...]:
        """None, one or two."""
        return tuple(number for number in (self.number, self.second) if number is not None)

    @property
    def totals(self) -> tuple[Hashable, ...]:
        """Group by group: products of the parts of the numbers, or the number of rows."""
        return tuple(product([self.numbers], self.groups, self.products))

    @property
    def labels(self) -> list[str]:
        """Such as ``income low, region=north``."""
        if self.number is None:
            return [f"rows with {group.name}" if group.name else "rows" for group in self.groups]
        return super().labels

    def _half(self, number: Number) -> int:
        most = LARGEST_TOTAL if self.second is None else math.isqrt(LARGEST_TOTAL)
        return min(number.half_points, most // 2)

    def whole_of(self, number: Number) -> int:
        """Twice the steps to either side."""
        return 2 * self._half(number)

    def parts_of(self, number: Number, codes: Codes) -> Codes:
        """Steps to the upper and from the lower end."""
        half = self._half(number)
        x = rounded(number, half, codes)
        return np.stack([half - x, half + x])

    @property
    def sets(self) -> Sequence[Sequence[int]]:
        """All together."""
        return [range(len(self.totals))]

    def of_rows_alone(self, unit: Unit) -> Sensitivity:
        """A row spreads a weight of one over its sums; of two sets of all rows one is measured."""
        whole = self.number is None and not self.groups[0].answered and len(self.groups) == 2
        one = whole and bool(np.all(sum(group.cells.array for group in self.groups)))
        return of_weight_one("add_remove" if one else unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        number = None if self.number is None else self.number.name
        groups = [group.to_dict() for group in self.groups]
        more = {} if self.second is None else {"second": self.second.name}
        return {"kind": self.kind, "number": number, "groups": groups, **more}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PersonShares:
        """Inverse of `to_dict`."""
        names = [plain["number"], plain.get("second")]
        number, second = (None if name is None else schema[name] for name in names)
        return cls(number, groups_from_plain(plain["groups"], schema), second)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PersonMoments(PersonProducts, TermBlock):
    """Person totals of products of numbers and level indicators, such as regression scores.

    Attributes
    ----------
    columns : tuple of columns
    terms : tuple of terms
        As in `Moments`, of at most two numbers each; () is the number of rows.
    given : Subgroup, optional
        The rows that totals are over. It excludes rows without a value of some number.
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]
    given: Subgroup | None = None

    kind: ClassVar[str] = "person_moments"

    def __post_init__(self) -> None:
        if not self.has_terms() or any(
            sum(level is None for _, level in term) > 2 for term in self.terms
        ):
            raise RequestError(
                f"person totals of {[column.name for column in self.columns]} need distinct terms, "
                "each a sorted product of at most two numbers and of levels of different columns"
            )
        require_answered(self.numbers, self.given)

    @staticmethod
    def of(
        columns: Iterable[Column], terms: Iterable[Term], given: Subgroup | None = None
    ) -> PersonMoments:
        """Without the columns that do not occur."""
        terms = tuple(terms)
        return PersonMoments(used_columns(columns, terms, given), terms, given)

    def _steps(self, column: Number) -> int:
        """Few: totals may be of products of two numbers."""
        return min(column.half_points, COARSE_STEPS)

    @property
    def totals(self) -> tuple[Hashable, ...]:
        """The terms."""
        return tuple((term, self.given) for term in self.terms)

    @property
    def labels(self) -> list[str]:
        """Such as ``age*income``."""
        return self.named({})

    @cached_property
    def units(self) -> Codes:
        """Products of the steps of the numbers."""
        return np.array(self.largest_of(self.terms), dtype=np.int64)

    def of_rows(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (T, n) int64 that each row adds to its person's totals."""
        return np.asarray(self.values(codes, np.int64))

    @cached_property
    def sets(self) -> Sequence[Sequence[int]]:
        """Terms that share their numbers and their groups: a row has one of them at most."""
        found: dict[Hashable, list[int]] = {}
        for t, term in enumerate(self.terms):
            (key,) = alternatives([term])
            found.setdefault(key, []).append(t)
        return list(found.values())

    @property
    def signed(self) -> Sequence[bool]:
        """Where some number has an odd power."""
        return [is_signed(term) for term in self.terms]

    @property
    def known(self) -> int | None:
        """The number of rows, unless it is that of a subgroup."""
        return self.terms.index(()) if self.given is None and () in self.terms else None

    def of_rows_alone(self, unit: Unit) -> Sensitivity:
        """Sensitivity of the sums of the terms over rows."""
        count = Fraction(len(self.sets))
        if unit == "add_remove" or self.terms == ((),):
            return Sensitivity(count, count)
        return replacement([term for term in self.terms if term])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "terms": self.plain_terms, **plain_given(self.given)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PersonMoments:
        """Inverse of `to_dict`."""
        return cls.of(schema, *terms_and_given(plain, schema))
