"""Products of person totals of a weight of one that each row spreads over groups and sides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.features import rounded
from dpstats.families.persons.products import LARGEST_TOTAL, PersonProducts, steps_of
from dpstats.families.subgroups import EVERY_CELL, Subgroup, disjoint, require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import CellSet


@dataclass(frozen=True)
class PersonShares(PersonProducts):
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
    >>> from dpstats.families.persons.shares import PersonShares
    >>> PersonShares.of_all(age).names[1]
    'person totals of age low times age high'
    """

    number: Number | None
    groups: tuple[Subgroup, ...]
    second: Number | None = None

    kind: ClassVar[str] = "person_shares"

    def __post_init__(self) -> None:
        for number in self.coded:
            number.require_missing("person totals")
        for group in self.groups:
            require_answered(self.coded, group)
        if not self.groups or not disjoint(self.groups):
            raise RequestError(
                "person totals need groups of the same columns without a row in common, got "
                f"{[group.name for group in self.groups]}"
            )

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
    def columns(self) -> tuple[Column, ...]:
        """The numbers and the columns of the groups."""
        return tuple(dict.fromkeys((*self.coded, *self.groups[0].columns)))

    @property
    def coded(self) -> tuple[Number, ...]:
        """The numbers."""
        return tuple(number for number in (self.number, self.second) if number is not None)

    @property
    def totals(self) -> tuple[Hashable, ...]:
        """Group by group: low and high of the numbers, or the number of rows."""
        return tuple((self.coded, group, side) for group in self.groups for side in self._sides)

    @property
    def _sides(self) -> list[tuple[str, ...]]:
        return list(itertools.product(("low", "high"), repeat=len(self.coded)))

    @property
    def labels(self) -> list[str]:
        """Such as ``income low, region=north``."""
        if self.number is None:
            return [f"rows with {group.name}" if group.name else "rows" for group in self.groups]
        names = [number.measured_name for number in self.coded]
        return [
            ", ".join(f"{n} {side}" for n, side in zip(names, sides, strict=True))
            + (f", {group.name}" if group.name else "")
            for group in self.groups
            for sides in self._sides
        ]

    @property
    def _halves(self) -> list[int]:
        most = LARGEST_TOTAL if self.second is None else math.isqrt(LARGEST_TOTAL)
        return [steps_of(number, most // 2) for number in self.coded]

    @cached_property
    def units(self) -> Codes:
        """One, or the product of twice the steps of the numbers."""
        unit = math.prod(2 * half for half in self._halves)
        return np.full(len(self.totals), unit, dtype=np.int64)

    def of_rows(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (T, n) int64 that each row adds to its person's totals."""
        held = [group.holds(codes).astype(np.int64) for group in self.groups]
        sides = np.ones((1, len(held[0])), dtype=np.int64)
        for number, half in zip(self.coded, self._halves, strict=True):
            x = rounded(number, half, codes[number.name])
            sides = np.concatenate([side * np.array([half - x, half + x]) for side in sides])
        return np.concatenate([sides * inside for inside in held])

    @property
    def sets(self) -> Sequence[Sequence[int]]:
        """All together."""
        return [range(len(self.totals))]

    def of_rows_alone(self, unit: Unit) -> Sensitivity:
        """A row spreads a weight of one over its sums; of two sets of all rows one is measured."""
        whole = self.number is None and not self.groups[0].answered and len(self.groups) == 2
        one = whole and bool(np.all(sum(group.cells.array for group in self.groups)))
        times = Fraction(2 if unit == "replace" and not one else 1)
        return Sensitivity(times, times)

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
        if not all(isinstance(column, Number | None) for column in (number, second)):
            raise RequestError(f"{names!r} are not numbers")
        groups = tuple(Subgroup.from_dict(group, schema) for group in plain["groups"])
        return cls(number, groups, second)  # type: ignore[arg-type]
