"""Size, sums, squares and products of two numbers in groups, in parts that add up to one a row."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.group_moments import PARTS
from dpstats.families.subgroups import Subgroup, disjoint, require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema

_PAIRS = tuple(itertools.product(PARTS, PARTS))
_MOST = 2**12 - 1  # of the parts of one number, where it has no more steps


@dataclass(frozen=True)
class PairMoments(Block):
    """Sums over the rows of each group of products of the three parts of each of two numbers.

    The parts of a number are those of `GroupMoments`. All nine products are not negative and add up
    to one, so a row spreads a weight of one over them, however many groups there are. Size, sums,
    squares and the product of both numbers are sums of them with signs.

    On fine grids the middle part is a rounded one, by at most 1/2000, so that sums are exact: the
    sum of the parts and the sum of the number, last less first, stay as they are.

    Attributes
    ----------
    numbers : pair of Number
    groups : tuple of Subgroup
        Without a row in common; they exclude rows without a value of either number.
    """

    numbers: tuple[Number, Number]
    groups: tuple[Subgroup, ...]

    kind: ClassVar[str] = "pair_moments"

    def __post_init__(self) -> None:
        for number in self.numbers:
            number.require_missing("moments")
        for group in self.groups:
            require_answered(self.numbers, group)
        # The sensitivity is that of one group.
        if self.numbers[0] == self.numbers[1] or not self.groups or not disjoint(self.groups):
            raise RequestError(
                "products of two numbers need different ones, and groups of the same columns "
                f"without a row in common; got {[n.name for n in self.numbers]} and "
                f"{[group.name for group in self.groups]}"
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The numbers and the columns of the groups."""
        return tuple(dict.fromkeys((*self.numbers, *self.groups[0].columns)))

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers."""
        return self.numbers

    @property
    def size(self) -> int:
        """Number of functions, nine per group."""
        return len(_PAIRS) * len(self.groups)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero, and what all parts of a row add up to: one scale of noise."""
        first, second = self.numbers
        top = 4 * first.half_points * _steps(first) * second.half_points * _steps(second)
        return np.zeros(self.size, np.int64), np.full(self.size, top, np.int64)

    @property
    def names(self) -> list[str]:
        """Such as ``cost low, income high, region=north``."""
        first, second = (number.measured_name for number in self.numbers)
        return [
            f"{first} {a}, {second} {b}" + (f", {group.name}" if group.name else "")
            for group in self.groups
            for a, b in _PAIRS
        ]

    def _of_both(self, codes: Mapping[str, Codes]) -> list[Codes]:
        """Parts (3, n) of either number."""
        return [_parts(number, codes[number.name]) for number in self.numbers]

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        first, second = self._of_both(codes)
        inside = [group.holds(codes) for group in self.groups]
        return np.concatenate([(first[:, own] @ second[:, own].T).ravel() for own in inside])

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        first, second = self._of_both(codes)
        products = (first[:, np.newaxis] * second).reshape(len(_PAIRS), -1)
        return np.concatenate([products * group.holds(codes) for group in self.groups])

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact, as that of `GroupMoments`: a row has weight one, two replaced ones at most two."""
        times = Fraction(2 if unit == "replace" else 1)
        return Sensitivity(times, times)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        groups = [group.to_dict() for group in self.groups]
        names = [number.name for number in self.numbers]
        return {"kind": self.kind, "numbers": names, "groups": groups}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PairMoments:
        """Inverse of `to_dict`."""
        numbers = [schema[name] for name in plain["numbers"]]
        if len(numbers) != 2 or not all(isinstance(number, Number) for number in numbers):
            raise RequestError(f"{plain['numbers']!r} are not two numbers")
        groups = tuple(Subgroup.from_dict(group, schema) for group in plain["groups"])
        return cls(tuple(numbers), groups)  # type: ignore[arg-type]


def _steps(number: Number) -> int:
    """The parts of a number with K steps to either side add up to 2 K times so many."""
    return max(min(2 * number.half_points, _MOST // (2 * number.half_points)), 1)


def _parts(number: Number, codes: Codes) -> Codes:
    """Parts (3, n) of a number with codes (n,): (K-x)^2, 2 (K^2-x^2) and (K+x)^2 on a coarse grid.

    Others are s (K-x) - r, 2 r and s (K+x) - r with s `_steps` and r = s (K^2-x^2) / 2K, rounded.
    As r is at most s (K-x) (K+x) / 2K before, which is at most s (K-x), none is negative.
    """
    k, steps = number.half_points, _steps(number)
    middle = (steps * (k**2 - codes**2) + k) // (2 * k)
    return np.stack([steps * (k - codes) - middle, 2 * middle, steps * (k + codes) - middle])
