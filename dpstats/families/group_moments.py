"""Functions of numbers in groups of rows, over which a row spreads a weight of one."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, of_weight_one
from dpstats.families.subgroups import EVERY_CELL, Subgroup, disjoint, require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import MAX_CELLS, cell_set

PARTS = ("low", "middle", "high")
TO_MOMENTS = np.array([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 1.0]])
"""Size, sum and sum of squares (unit scale) of a group from its three parts."""

_MOST = 2**12 - 1  # of the parts of one of two numbers, where it has no more steps


class GroupBlock(Block):
    """Parts of some numbers, or products of their parts, in groups without a row in common.

    In unit scale the parts of a number are not negative and add up to one, so a row spreads a
    weight of one over the products of parts in its group, and touches no other group.
    """

    parts: ClassVar[tuple[str, ...]] = PARTS

    groups: tuple[Subgroup, ...]

    if TYPE_CHECKING:  # a field of some blocks, a property of others

        @property
        def numbers(self) -> tuple[Number, ...]:
            """Different numbers."""

    @abstractmethod
    def parts_of(self, number: Number, codes: Codes) -> Codes:
        """Values (parts, n) of the parts of a number, for codes (n,) of values."""

    @abstractmethod
    def whole_of(self, number: Number) -> int:
        """Sum of the parts of a number, in integer units."""

    def __post_init__(self) -> None:
        for number in self.numbers:
            if not isinstance(number, Number):
                raise RequestError(f"{number.name!r} is not a number; it has no mean")
            number.require_missing("moments")
        for group in self.groups:
            require_answered(self.numbers, group)
        names = [number.name for number in self.numbers]
        # The sensitivity is that of one group.
        if len(set(names)) < len(names) or not self.groups or not disjoint(self.groups):
            raise RequestError(
                "sums in groups need different numbers, and groups of the same columns without a "
                f"row in common; got {names} and {[group.name for group in self.groups]}"
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
    def products(self) -> list[tuple[str, ...]]:
        """Which part of every number a function of a group is the product of."""
        return list(itertools.product(self.parts, repeat=len(self.numbers)))

    @property
    def labels(self) -> list[str]:
        """Such as ``cost low, income high, region=north``."""
        numbers = [number.measured_name for number in self.numbers]
        return [
            ", ".join([*(f"{n} {p}" for n, p in zip(numbers, parts, strict=True)), *label])
            for label in ([group.name] if group.name else [] for group in self.groups)
            for parts in self.products
        ]

    @cached_property
    def units(self) -> Codes:
        """(d,) the sum of all functions of a row, as the scale of each."""
        whole = math.prod(map(self.whole_of, self.numbers))
        return np.full(len(self.groups) * len(self.products), whole, dtype=np.int64)

    def in_any_group(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (products, n) of rows, of whatever group."""
        n = len(next(iter(codes.values())))
        values = np.ones((1, n), dtype=np.int64)
        for number in self.numbers:
            parts = self.parts_of(number, codes[number.name])
            values = (values[:, np.newaxis] * parts).reshape(len(values) * len(parts), n)
        return values

    def of_rows(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (products in groups, n) int64 of rows."""
        values = self.in_any_group(codes)
        return np.concatenate([values * group.holds(codes) for group in self.groups])


class PartsBlock(GroupBlock):
    """Sums over the rows of each group."""

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.groups) * len(self.products)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero, and what all functions of a row add up to: one scale of noise."""
        return np.zeros(self.size, np.int64), self.units

    @property
    def names(self) -> list[str]:
        """Such as ``income low, region=north``."""
        return self.labels

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        values = self.in_any_group(codes)
        inside = [group.holds(codes) for group in self.groups]
        return np.concatenate([values[:, held].sum(axis=1) for held in inside])

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        return self.of_rows(codes)

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact: numbers go from one end to the other, in one group or from one to another."""
        return of_weight_one(unit)


@dataclass(frozen=True)
class GroupMoments(PartsBlock):
    """Sums over the rows of each group of (1-x)^2/4, (1-x^2)/2 and (1+x)^2/4, x in [-1, 1].

    They add up to the size of the group; the last minus the first is the sum of x; see
    `TO_MOMENTS`. Measured as size, sum and sum of squares they would have three times the
    sensitivity.

    Parameters
    ----------
    number : Number
        With `missing=`, the value that missing cells count as, or `allow_missing=True`.
    groups : tuple of Subgroup
        Without a row in common; they exclude rows without a value of the number.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> age, smoker = dps.Number("age", 0, 100, missing=40), dps.Boolean("smoker")
    >>> dps.GroupMoments.by(age, smoker, levels=(0, 1)).size
    6
    """

    number: Number
    groups: tuple[Subgroup, ...]

    kind: ClassVar[str] = "group_moments"

    @staticmethod
    def by(
        number: Number, column: Column, levels: Sequence[int], given: Subgroup | None = None
    ) -> GroupMoments:
        """Groups by another column: increasing indices of its levels or bins.

        Of all rows, or of those in a subgroup `given` by other columns.

        Raises
        ------
        RequestError
        """
        return GroupMoments(number, groups_by((number,), column, levels, given))

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The number."""
        return (self.number,)

    def parts_of(self, number: Number, codes: Codes) -> Codes:
        """(K - x)^2, 2 (K^2 - x^2) and (K + x)^2 (eq. three-parts)."""
        k = number.half_points
        return np.stack([(k - codes) ** 2, 2 * (k**2 - codes**2), (k + codes) ** 2])

    def whole_of(self, number: Number) -> int:
        """4 K^2."""
        return 4 * number.half_points**2

    @property
    def keys(self) -> Sequence[tuple[Subgroup, str]]:  # type: ignore[override]
        """Group and part of each function."""
        return list(itertools.product(self.groups, PARTS))

    @property
    def scope(self) -> Number:  # type: ignore[override]
        """The number."""
        return self.number

    def restrict(self, kept: NDArray[np.bool_]) -> GroupMoments:
        """Groups of which some function is marked in `kept`, (d,) bool."""
        marked = np.flatnonzero(kept.reshape(-1, len(PARTS)).any(axis=1))
        return GroupMoments(self.number, tuple(self.groups[i] for i in marked.tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        groups = [group.to_dict() for group in self.groups]
        return {"kind": self.kind, "number": self.number.name, "groups": groups}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> GroupMoments:
        """Inverse of `to_dict`."""
        groups = groups_from_plain(plain["groups"], schema)
        return GroupMoments(schema[plain["number"]], groups)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PairMoments(PartsBlock):
    """Sums over the rows of each group of products of the three parts of each of two numbers.

    Size, sums, squares and the product of both numbers are sums of them with signs. On fine grids
    the middle part is a rounded one, by at most 1/2000, so that sums are exact: the sum of the
    parts and the sum of the number, last less first, stay as they are.

    Attributes
    ----------
    numbers : pair of Number
    groups : tuple of Subgroup
        Without a row in common; they exclude rows without a value of either number.
    """

    numbers: tuple[Number, Number]
    groups: tuple[Subgroup, ...]

    kind: ClassVar[str] = "pair_moments"

    def parts_of(self, number: Number, codes: Codes) -> Codes:
        """(K - x)^2, 2 (K^2 - x^2) and (K + x)^2 on a coarse grid.

        Others are s (K - x) - r, 2 r and s (K + x) - r with s `_steps` and r = s (K^2 - x^2) / 2K,
        rounded (eq. rounded-parts of ``docs/explanation/privacy/sensitivity.md``).
        """
        k, steps = number.half_points, _steps(number)
        middle = (steps * (k**2 - codes**2) + k) // (2 * k)
        return np.stack([steps * (k - codes) - middle, 2 * middle, steps * (k + codes) - middle])

    def whole_of(self, number: Number) -> int:
        """2 K times the steps."""
        return 2 * number.half_points * _steps(number)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        groups = [group.to_dict() for group in self.groups]
        names = [number.name for number in self.numbers]
        return {"kind": self.kind, "numbers": names, "groups": groups}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> PairMoments:
        """Inverse of `to_dict`."""
        first, second = (schema[name] for name in plain["numbers"])
        return cls((first, second), groups_from_plain(plain["groups"], schema))  # type: ignore[arg-type]


def _steps(number: Number) -> int:
    """The parts of a number with K steps to either side add up to 2 K times so many."""
    return max(min(2 * number.half_points, _MOST // (2 * number.half_points)), 1)


def groups_from_plain(plain: Sequence[Mapping[str, Any]], schema: Schema) -> tuple[Subgroup, ...]:
    """Groups as `to_dict` of blocks writes them."""
    return tuple(Subgroup.from_dict(group, schema) for group in plain)


def groups_by(
    numbers: Sequence[Number], column: Column, levels: Sequence[int], given: Subgroup | None = None
) -> tuple[Subgroup, ...]:
    """Groups of rows with a value of all numbers: increasing indices of levels of a column."""
    if column in numbers:
        raise RequestError(f"{column.name!r} cannot define its own groups; name another")
    chosen, known = list(levels), range(column.bins)
    if not chosen or chosen != sorted(set(chosen)) or not set(chosen) <= set(known):
        raise RequestError(
            f"groups of {column.name!r} must be increasing numbers below {len(known)}, got {levels}"
        )
    rows = EVERY_CELL if given is None else given.cells
    if column in rows.columns:
        raise RequestError(
            f"the condition of the rows involves {column.name!r}, which makes the groups; "
            "leave it out of given= and name the levels in groups="
        )
    if len(rows.mask) * column.bins > MAX_CELLS:
        raise RequestError(
            f"the condition and {column.name!r} span more than {MAX_CELLS} cells; use a "
            "condition on fewer columns"
        )
    answered = tuple(n for n in numbers if isinstance(n, Number) and n.allow_missing)
    within = f", {given.label}" if given is not None and given.label else ""
    groups = []
    for level in chosen:
        full = np.multiply.outer(rows.array, np.arange(column.bins) == level)
        label = f"{column.name}={column.bin_labels[level]}{within}"
        groups.append(Subgroup(cell_set((*rows.columns, column), full), answered, label))
    return tuple(groups)
