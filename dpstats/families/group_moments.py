"""Size, sum and sum of squares of a number in groups, in parts to which a row adds one in total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, Derivation
from dpstats.families.cells import DenseValues
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Column, Number, Schema

if TYPE_CHECKING:
    from dpstats.privacy.neighbours import Unit

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
        With `missing=`: the value that missing cells count as.
    group : column
        Another column, whose levels or bins make the groups.
    levels : tuple of int
        The groups, increasing indices of levels or bins.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> age, smoker = dps.Number("age", 0, 100, missing=40), dps.Boolean("smoker")
    >>> dps.GroupMoments(age, smoker, levels=(0, 1)).size
    6
    """

    number: Number
    group: Column
    levels: tuple[int, ...]

    kind: ClassVar[str] = "group_moments"

    def __post_init__(self) -> None:
        if not isinstance(self.number, Number):
            raise RequestError(f"{self.number.name!r} is not a number; it has no mean")
        self.number.require_missing("moments")
        if self.group.name == self.number.name:
            raise RequestError(f"{self.number.name!r} cannot define its own groups; name another")
        known, levels = range(self.group.bins), list(self.levels)
        if not levels or levels != sorted(set(levels)) or not set(levels) <= set(known):
            raise RequestError(
                f"groups of {self.group.name!r} must be increasing numbers below {len(known)}, "
                f"got {self.levels}"
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The number and the column of the groups."""
        return (self.number, self.group)

    @property
    def size(self) -> int:
        """Number of functions, three per group."""
        return len(PARTS) * len(self.levels)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero, and 4 K^2 for all (the middle ones reach half of it): one scale of noise."""
        top = 4 * self.number.half_points**2
        return np.zeros(self.size, np.int64), np.full(self.size, top, np.int64)

    @property
    def names(self) -> list[str]:
        """Such as ``income low, region=north``."""
        labels, name = self.group.bin_labels, f"{self.group.name}="
        return [f"{self.number.name} {p}, {name}{labels[i]}" for i in self.levels for p in PARTS]

    def _values(self, codes: Mapping[str, Codes]) -> tuple[Codes, Codes]:
        """Values (3, n) of the parts of each row, and its bin (n,)."""
        code, k = codes[self.number.name], self.number.half_points
        parts = np.stack([(k - code) ** 2, 2 * (k**2 - code**2), (k + code) ** 2])
        return parts, self.group.bins_of(codes[self.group.name])

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64."""
        parts, bins = self._values(codes)
        return np.concatenate([parts[:, bins == level].sum(axis=1) for level in self.levels])

    def evaluate(self, codes: Mapping[str, Codes]) -> DenseValues:
        """The functions at m points, in integer units."""
        parts, bins = self._values(codes)
        return DenseValues(np.concatenate([parts * (bins == i) for i in self.levels]).astype(float))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact: a row weighs one, in L1, and at most one in squared L2 (at x = 1 or -1).

        Replaced rows weigh at most two together; x = -1 to x = 1, in one group or from one to
        another, reaches it.
        """
        times = Fraction(2 if unit == "replace" else 1)
        return Sensitivity(times, times)

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """The groups that both hold."""
        if not isinstance(wanted, GroupMoments) or wanted.columns != self.columns:
            return None
        at = {level: len(PARTS) * i for i, level in enumerate(wanted.levels)}
        member = [at[i] + p if i in at else -1 for i in self.levels for p in range(len(PARTS))]
        if max(member) < 0:
            return None
        return Derivation(np.array(member, dtype=np.int64), wanted.size)

    def restrict(self, kept: NDArray[np.bool_]) -> GroupMoments:
        """Groups of which some function is marked in `kept`, (d,) bool."""
        marked = np.flatnonzero(kept.reshape(-1, len(PARTS)).any(axis=1))
        levels = tuple(self.levels[i] for i in marked.tolist())
        return GroupMoments(self.number, self.group, levels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = {"number": self.number.name, "group": self.group.name}
        return {"kind": self.kind, **names, "levels": list(self.levels)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> GroupMoments:
        """Inverse of `to_dict`."""
        number, group = schema[plain["number"]], schema[plain["group"]]
        return GroupMoments(number, group, tuple(plain["levels"]))  # type: ignore[arg-type]
