"""Squares and products of person totals: what the variance of a sum over persons follows from.

A person total is the sum of a function over the rows of one person that are used. Totals are added
up row by row where rows are read, multiplied once all rows are in, and summed over persons. The
sensitivities are proved in ``docs/explanation/privacy/sensitivity.md``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.families.block import Block, noise_ratio
from dpstats.families.features import replacement
from dpstats.privacy.budget import Budget
from dpstats.privacy.laws import POWERS
from dpstats.privacy.neighbours import Neighbours, Sensitivity, Unit
from dpstats.schema import Number

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
        """Products of two sets (or of one), each pair of sets at its own worst."""
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

    def relative_price(self, budget: Budget, neighbours: Neighbours) -> Fraction:
        """At a scale k times `noise_factor` times as large, as in an equal split."""

        def compute() -> Fraction:
            factor = neighbours.rows_per_person * self.noise_factor(budget, neighbours.unit)
            cheaper: int = factor ** POWERS[budget.noise]
            return self.price(budget, neighbours) / cheaper

        return self._once((budget.kind, neighbours), compute)

    @property
    def keys(self) -> Sequence[frozenset[Hashable]]:  # type: ignore[override]
        """The two totals of each product."""
        totals = self.totals
        return [frozenset((totals[i], totals[j])) for i, j in zip(*self.pairs, strict=True)]


def steps_of(number: Number, most: int) -> int:
    """Steps from the middle of a number's range to its ends, at most so many."""
    return min(number.half_points, most)
