"""Sets of cells of some columns without a cell in common, measured together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.families.block import Block, Derivation, of_weight_one
from dpstats.families.tables.cells import ROWS, Indicator
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import CellSet, cell_index


@dataclass(frozen=True)
class Partition(Block):
    """Counts of rows in d sets of cells over the same columns, without a cell in common.

    A row is in one set at most, so that the sensitivity is that of a table with d cells. Two sets
    may be measured as their union and their difference (`rotated`): replaced rows move these by no
    more in L1, and a share of the union that follows from them has half the variance.
    """

    columns: tuple[Column, ...]  # all that the sets depend on
    # one byte (0 or 1) for each cell of the table over `columns`, in C order
    sets: tuple[bytes, ...]
    labels: tuple[str, ...] = field(compare=False)  # the conditions as they are written
    # whether the two functions are the sum of both indicators and the first less the second
    rotated: bool = False

    kind: ClassVar[str] = "partition"
    needs_codes: ClassVar[bool] = False
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.sets or np.any(self._masks.sum(axis=0) > 1):
            raise RequestError(f"the sets of cells {list(self.labels)} have cells in common")
        if self.rotated and len(self.sets) != 2:
            raise RequestError("the union and the difference are those of two sets of cells")

    @cached_property
    def _masks(self) -> Codes:
        """(d, cells) indicators of the sets."""
        return np.stack([np.frombuffer(cells, np.bool_) for cells in self.sets]).astype(np.int64)

    @cached_property
    def basis(self) -> Codes:
        """(d, d) the functions as sums of the indicators of the sets."""
        return np.array([[1, 1], [1, -1]]) if self.rotated else np.eye(len(self.sets), dtype=int)

    @property
    def size(self) -> int:
        """Number of sets."""
        return len(self.sets)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero and one; the difference reaches minus one."""
        return np.minimum(self.basis.min(axis=1), 0), np.ones(self.size, np.int64)

    @property
    def names(self) -> list[str]:
        """The conditions."""
        if self.rotated:
            return [f"{self.labels[0]} or {self.labels[1]}", f"{self.labels[0]} less the other"]
        return list(self.labels)

    def functions(self, codes: Mapping[str, Codes]) -> NDArray[Any]:
        """Values (d, n) int64 of rows."""
        return (self.basis @ self._masks)[:, cell_index(self.columns, codes)]

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Exact sums (d,) int64 over rows, from a count of every set."""
        at = self.member_of(self.columns)[cell_index(self.columns, codes)]
        return np.asarray(self.basis @ np.bincount(at + 1, minlength=self.size + 1)[1:])

    def member_of(self, columns: Sequence[Column]) -> Codes:
        """Number of the set of every cell (C order) over columns that hold all; -1 outside."""
        number = np.where(self._masks.any(axis=0), self._masks.argmax(axis=0), -1)
        own = [column for column in columns if column in self.columns]
        number = number.reshape([column.bins for column in self.columns])
        number = number.transpose([self.columns.index(column) for column in own])
        number = number.reshape([column.bins if column in own else 1 for column in columns])
        return np.broadcast_to(number, [column.bins for column in columns]).ravel()

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact but for replaced rows in a single set; of the union see eq. rotated-basis."""
        if not self.rotated:
            return of_weight_one(unit)
        return Sensitivity(Fraction(2), Fraction(2 if unit == "add_remove" else 4))

    @property
    def keys(self) -> Sequence[Hashable]:  # type: ignore[override]
        """The sets, unless their functions are rotated."""
        return self.sets

    @property
    def scope(self) -> Hashable:  # type: ignore[override]
        """The columns, and the basis."""
        return self.columns, self.rotated

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """Derive unions of these sets, an indicator, or the number of rows if they hold all."""
        if wanted == ROWS:
            if not np.all(self._masks.sum(axis=0)):
                return None
            return Derivation(np.array([0, -1]) if self.rotated else np.zeros(self.size, int), 1)
        if isinstance(wanted, Indicator) and not self.rotated:
            if not set(wanted.columns) <= set(self.columns):
                return None
            cells = wanted.cells.over(self.columns).ravel()
            same = [np.array_equal(cells, mask) for mask in self._masks.astype(np.bool_)]
            return Derivation(np.where(same, 0, -1), 1) if any(same) else None
        if isinstance(wanted, Partition) and not self.rotated and not wanted.rotated:
            return self._unions(wanted)
        return super().derive(wanted, complements=complements)

    def _unions(self, wanted: Partition) -> Derivation | None:
        """Sets of another partition that are unions of these."""
        if not set(wanted.columns) <= set(self.columns):
            return None
        at, own = wanted.member_of(self.columns), self.member_of(self.columns)
        inside = own >= 0
        both = np.zeros((self.size, wanted.size + 1), np.int64)  # cells in a set of each; last none
        np.add.at(both, (own[inside], at[inside]), 1)
        whole = np.count_nonzero(both, axis=1) == 1
        member = np.where(whole, both.argmax(axis=1), wanted.size)
        covered = np.bincount(member, both.sum(axis=1), wanted.size + 1)
        complete = covered[:-1] == np.bincount(at + 1, minlength=wanted.size + 1)[1:]
        member = np.where(np.append(complete, False)[member], member, -1)
        return Derivation(member, wanted.size) if np.any(member >= 0) else None

    def settles(self, wanted: Block) -> bool:
        """True of sets that follow from the two that were rotated."""
        if not (self.rotated and isinstance(wanted, Partition)) or wanted.rotated:
            return False
        derivation = self.plain.derive(wanted)
        return derivation is not None and bool(np.all(derivation.terms))

    @property
    def plain(self) -> Partition:
        """The sets themselves."""
        return replace(self, rotated=False)

    def rotate(self) -> Partition:
        """Partition of the union and difference of both sets."""
        return Partition(self.columns, self.sets, self.labels, rotated=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: each set as flat indices of its cells."""
        sets = [CellSet(self.columns, cells).to_dict() for cells in self.sets]
        plain = {"kind": self.kind, "sets": sets, "labels": list(self.labels)}
        return plain | ({"rotated": True} if self.rotated else {})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Partition:
        """Inverse of `to_dict`."""
        sets = [CellSet.from_dict(cells, schema) for cells in plain["sets"]]
        labels, rotated = tuple(map(str, plain["labels"])), plain.get("rotated", False) is True
        return cls(sets[0].columns, tuple(cells.mask for cells in sets), labels, rotated)

    @staticmethod
    def of(columns: Sequence[Column], sets: Mapping[str, NDArray[np.bool_]]) -> Partition:
        """Sets of cells over some columns, by their labels."""
        masks = (np.ascontiguousarray(cells).tobytes() for cells in sets.values())
        return Partition(tuple(columns), tuple(masks), tuple(sets))
