"""Size, sum and sum of squares of a number in groups of rows, in parts that add up to one a row."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.subgroups import EVERY_CELL, Subgroup, disjoint, require_answered
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Number, Schema
from dpstats.schema.conditions import MAX_CELLS, cell_set

PARTS = ("low", "middle", "high")
TO_MOMENTS = np.array([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 1.0]])
"""Size, sum and sum of squares (unit scale) of a group from its three parts."""


@dataclass(frozen=True)
class GroupMoments(Block):
    """Sums over the rows of each group of (1-x)^2/4, (1-x^2)/2 and (1+x)^2/4, x in [-1, 1].

    The three are not negative and add up to one, so a row spreads a weight of one over the
    functions of its group and touches no other. They add up to the size of the group; the last
    minus the first is the sum of x; see `TO_MOMENTS`. Measured as size, sum and sum of squares they
    would have three times the sensitivity.

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

    def __post_init__(self) -> None:
        if not isinstance(self.number, Number):
            raise RequestError(f"{self.number.name!r} is not a number; it has no mean")
        self.number.require_missing("moments")
        for group in self.groups:
            require_answered([self.number], group)
        if not self.groups or not disjoint(self.groups):  # the sensitivity is that of one group
            raise RequestError(
                f"moments of {self.number.name!r} need groups of the same columns without a row in "
                f"common, got {[group.name for group in self.groups]}"
            )

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
    def columns(self) -> tuple[Column, ...]:
        """The number and the columns of the groups."""
        return tuple(dict.fromkeys((self.number, *self.groups[0].columns)))

    @property
    def coded(self) -> tuple[Column, ...]:
        """The number."""
        return (self.number,)

    @property
    def size(self) -> int:
        """Number of functions, three per group."""
        return len(PARTS) * len(self.groups)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero, and 4 K^2 for all (the middle ones reach half of it): one scale of noise."""
        top = 4 * self.number.half_points**2
        return np.zeros(self.size, np.int64), np.full(self.size, top, np.int64)

    @property
    def names(self) -> list[str]:
        """Such as ``income low, region=north``."""
        name = self.number.measured_name
        groups = [f", {group.name}" if group.name else "" for group in self.groups]
        return [f"{name} {part}{group}" for group in groups for part in PARTS]

    def _parts(self, codes: Codes) -> Codes:
        """Values (3, n) of the parts of rows that have a value."""
        k = self.number.half_points
        return np.stack([(k - codes) ** 2, 2 * (k**2 - codes**2), (k + codes) ** 2])

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        of_number = codes[self.number.name]
        inside = [group.holds(codes) for group in self.groups]
        return np.concatenate([self._parts(of_number[held]).sum(axis=1) for held in inside])

    def functions(self, codes: Mapping[str, Codes]) -> Codes:
        """Values (d, n) int64."""
        parts = self._parts(codes[self.number.name])
        return np.concatenate([parts * group.holds(codes) for group in self.groups])

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact: a row weighs one, in L1, and at most one in squared L2 (at x = 1 or -1).

        Replaced rows weigh at most two together; x = -1 to x = 1, in one group or from one to
        another, reaches it.
        """
        times = Fraction(2 if unit == "replace" else 1)
        return Sensitivity(times, times)

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
        groups = tuple(Subgroup.from_dict(group, schema) for group in plain["groups"])
        return GroupMoments(schema[plain["number"]], groups)  # type: ignore[arg-type]


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
