"""Counts of cells: contingency tables, conditions, monomials of Boolean columns, partitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_whole, counted, short
from dpstats.errors import RequestError
from dpstats.families.block import Block, Derivation, of_weight_one
from dpstats.privacy.neighbours import Sensitivity, Unit
from dpstats.schema import Boolean, Column, Number, Schema
from dpstats.schema.conditions import (
    CellSet,
    cell_index,
    cell_set,
    read_condition,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_TABLE_CELLS = 2**26


class Cells:
    """Families of cell counts; the three kinds are built from a schema.

    - `Cells.table`: all cells of a contingency table (numbers by their declared bins);
    - `Cells.condition`: one condition;
    - `Cells.monomials`: products of Boolean columns up to a degree, the family of BL24, Section II.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> dps.Cells.table(schema, ["smoker", "region"]).names
    ['smoker=False, region=north', 'smoker=False, region=south',
     'smoker=True, region=north', 'smoker=True, region=south']
    >>> dps.Cells.condition(schema, "smoker and region == 'north'").size
    1
    """

    @staticmethod
    def table(schema: Schema, columns: Sequence[str]) -> Table:
        """All cells of the contingency table of some columns.

        Parameters
        ----------
        schema : Schema
        columns : sequence of str

        Returns
        -------
        Table

        Raises
        ------
        RequestError
            For columns that are unknown or named twice.
        """
        return Table(_chosen(schema, columns))

    @staticmethod
    def condition(schema: Schema, text: str) -> Indicator:
        """The count of rows for which a condition holds.

        Parameters
        ----------
        schema : Schema
        text : str
            Such as ``"smoker and region == 'north'"``.

        Returns
        -------
        Indicator

        Raises
        ------
        ConditionError
            For a condition that cannot be read or measured.
        """
        return Indicator(read_condition(text, schema), " ".join(text.split()))

    @staticmethod
    def monomials(schema: Schema, columns: Sequence[str], degree: int) -> list[Indicator]:
        """All products of 1 to `degree` distinct Boolean columns.

        One block per function: a row moves each of M functions by at most one and can move all of
        them together, so M single blocks claim exactly the sensitivity of the whole, M.

        Parameters
        ----------
        schema : Schema
        columns : sequence of str
        degree : int

        Returns
        -------
        list of Indicator

        Raises
        ------
        RequestError
            For columns that are not Boolean or have a missing level, or a degree out of range.
        """
        chosen = _chosen(schema, columns)
        check_degree(degree, chosen)
        for column in chosen:
            if not isinstance(column, Boolean) or column.bins != 2:
                raise RequestError(
                    f"monomials need Boolean columns without a missing level; {column.name!r} "
                    "is not one; use form='cells'"
                )
        return [
            Indicator(_all_true(subset), " and ".join(c.name for c in subset))
            for size in range(1, degree + 1)
            for subset in itertools.combinations(chosen, size)
        ]


def tables_of_degree(schema: Schema, columns: Sequence[str], degree: int) -> list[Table]:
    """All contingency tables of exactly `degree` of the columns; smaller ones are margins."""
    chosen = _chosen(schema, columns)
    check_degree(degree, chosen)
    return [Table(subset) for subset in itertools.combinations(chosen, degree)]


def check_degree(degree: int, columns: Sequence[Column]) -> None:
    """Refuse a degree below one or above the number of columns."""
    check_whole(f"degree for {counted(len(columns), 'column')}", degree, 1, len(columns))


def _chosen(schema: Schema, names: Sequence[str]) -> tuple[Column, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise RequestError(f"columns must be a non-empty list of names, got {short(names)}")
    for name in names:
        if not isinstance(name, str):
            raise RequestError(
                f"a column is given by its name, such as 'age'; got {type(name).__name__}"
            )
    if len(set(names)) < len(names):
        raise RequestError("a column is named twice")
    chosen = [schema[name] for name in names]
    return tuple(sorted(chosen, key=lambda column: schema.names.index(column.name)))


def _all_true(columns: tuple[Column, ...]) -> CellSet:
    mask = np.zeros([c.bins for c in columns], dtype=np.bool_)
    mask[(1,) * len(columns)] = True
    return cell_set(columns, mask)


@dataclass(frozen=True)
class Table(Block):
    """All cells of the contingency table over `columns`, in C order.

    A table over no columns has one cell, all rows; `ROWS` is that table.

    Replacing a row takes one from a cell and adds one to another: L1 = squared L2 = 2. Adding or
    removing a row changes one cell by one.
    """

    columns: tuple[Column, ...]

    kind: ClassVar[str] = "table"
    needs_codes: ClassVar[bool] = False
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for column in self.columns:
            if isinstance(column, Number) and column.bins == 1:
                raise RequestError(
                    f"{column.name!r} has a single bin; add edges=[...] to the schema to count it"
                )
        if self.size > MAX_TABLE_CELLS:
            raise RequestError(
                f"the table of {[c.name for c in self.columns]} has {self.size} cells, more than "
                f"{MAX_TABLE_CELLS}; use fewer columns or coarser bins"
            )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return tuple(column.bins for column in self.columns)

    @cached_property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero and one."""
        return np.zeros(self.size, np.int64), np.ones(self.size, np.int64)

    @cached_property
    def bounds(self) -> Codes:
        """One of every cell, (d,) int64, in the memory of a single number."""
        return np.broadcast_to(np.int64(1), self.size)

    @property
    def names(self) -> list[str]:
        """One name per cell, ``column=level, ...``."""
        labels = [[f"{c.name}={label}" for label in c.bin_labels] for c in self.columns]
        return [", ".join(cell) or "rows" for cell in itertools.product(*labels)]

    def functions(self, codes: Mapping[str, Codes]) -> NDArray[Any]:
        """Indicators of the cells, (d, n) bool."""
        return np.equal.outer(np.arange(self.size), cell_index(self.columns, codes))

    def sums(self, codes: Mapping[str, Codes]) -> Codes:
        """Counts (d,) int64."""
        index = (
            cell_index(self.columns, codes) if self.columns else np.zeros(_rows(codes), np.int64)
        )
        return np.bincount(index, minlength=self.size).astype(np.int64)

    def evaluate(self, codes: Mapping[str, Codes]) -> TableValues:
        """The indicator functions of the cells at m points."""
        index = cell_index(self.columns, codes).astype(np.min_scalar_type(self.size))
        return TableValues(index, self.shape, tuple(column.name for column in self.columns))

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact, for two or more cells; of no columns, that of a row whose weight changes."""
        moved = Fraction(2 if unit == "replace" and self.columns else 1)
        return Sensitivity(moved, moved)

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """A margin, or a condition as a sum of cells (or one minus the sum of the others)."""
        if not set(wanted.columns) <= set(self.columns):
            return None
        if isinstance(wanted, Table):
            member = np.zeros([1] * len(self.columns), np.int64)  # of no columns: all rows
            for column in wanted.columns:
                axis = [-1 if c == column else 1 for c in self.columns]
                member = member * column.bins + np.arange(column.bins).reshape(axis)
            return Derivation(np.broadcast_to(member, self.shape).ravel(), wanted.size)
        if isinstance(wanted, Indicator):
            mask = wanted.cells.over(self.columns).ravel()
            if 2 * int(mask.sum()) <= mask.size or not complements:
                return Derivation(np.where(mask, 0, -1), 1)
            return Derivation(np.where(mask, -1, 0), 1, sign=-1, offset=1)
        if isinstance(wanted, Partition) and not wanted.rotated:
            return Derivation(wanted.member_of(self.columns), wanted.size)
        return None

    def terms_of(self, wanted: Block, *, complements: bool = True) -> Codes | None:
        """All cells of a margin have the same number, without a pass over the cells here."""
        if isinstance(wanted, Table) and set(wanted.columns) <= set(self.columns):
            return np.full(wanted.size, self.size // wanted.size)
        return super().terms_of(wanted, complements=complements)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Table:
        """Inverse of `to_dict`."""
        return Cells.table(schema, plain["columns"])


def _rows(codes: Mapping[str, Codes]) -> int:
    return len(next(iter(codes.values())))


ROWS = Table(())  # the constant function, whose sum is the number of rows


@dataclass(frozen=True)
class Indicator(Block):
    """The count of rows in a set of cells: one condition.

    One row changes the count by at most one under both neighbour relations. Two conditions with
    the same set of cells are equal, however they are spelled.
    """

    cells: CellSet
    label: str = field(compare=False)

    kind: ClassVar[str] = "condition"
    needs_codes: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    size = 1

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that the condition depends on."""
        return self.cells.columns

    @property
    def ranges(self) -> tuple[Codes, Codes]:
        """Zero and one."""
        return np.zeros(1, np.int64), np.ones(1, np.int64)

    @property
    def names(self) -> list[str]:
        """The condition as it was written."""
        return [self.label]

    @cached_property
    def _mask(self) -> Codes:
        return self.cells.array.ravel().astype(np.int64)

    def functions(self, codes: Mapping[str, Codes]) -> NDArray[Any]:
        """Indicator of the cells, (1, n) int64."""
        return self._mask[cell_index(self.columns, codes)][np.newaxis]

    def sensitivity(self, unit: Unit) -> Sensitivity:
        """Exact."""
        return Sensitivity(Fraction(1), Fraction(1))

    def derive(self, wanted: Block, *, complements: bool = True) -> Derivation | None:
        """The condition itself, or its complement (n is public)."""
        if not isinstance(wanted, Indicator) or wanted.columns != self.columns:
            return None
        if complements and not np.any(wanted.cells.array == self.cells.array):
            return Derivation(np.zeros(1, np.int64), 1, sign=-1, offset=1)
        return super().derive(wanted)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the set of cells as flat indices, and the text of the request."""
        return {"kind": self.kind, **self.cells.to_dict(), "label": self.label}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Indicator:
        """Inverse of `to_dict`."""
        return Indicator(CellSet.from_dict(plain, schema), plain["label"])


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
    # whether the last set, of all other rows, only adds up with them to the number of rows
    rest: bool = False

    kind: ClassVar[str] = "partition"
    needs_codes: ClassVar[bool] = False
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.sets or np.any(self._masks.sum(axis=0) > 1):
            raise RequestError(f"the sets of cells {list(self.labels)} have cells in common")
        if self.rotated and (len(self.sets) != 2 or self.rest):
            raise RequestError("the union and the difference are those of two sets of cells")
        if self.rest and not self._masks.any(axis=0).all():
            raise RequestError("the last set of cells holds not all that are in no other")

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
        """Derive unions of these sets, conditions too, or the number of rows if they hold all."""
        if wanted == ROWS:
            if not np.all(self._masks.sum(axis=0)):
                return None
            return Derivation(np.array([0, -1]) if self.rotated else np.zeros(self.size, int), 1)
        if isinstance(wanted, Indicator) and not self.rotated:
            if not set(wanted.columns) <= set(self.columns):
                return None
            cells = wanted.cells.over(self.columns).ravel()
            inside = self._masks.any(axis=1) & ~np.any(self._masks[:, ~cells], axis=1)
            complete = np.array_equal(self._masks[inside].sum(axis=0), cells)
            return Derivation(np.where(inside, 0, -1), 1) if complete and inside.any() else None
        if isinstance(wanted, Partition) and not self.rotated and not wanted.rotated:
            return self._unions(wanted)
        return super().derive(wanted, complements=complements)

    def _unions(self, wanted: Partition) -> Derivation | None:
        """Sets of another partition that are unions of these."""
        if wanted == self:  # also of sets without a cell, which hold no row
            return Derivation(np.arange(self.size), self.size)
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

    @property
    def asked(self) -> int:
        """Number of the sets but that of all other rows."""
        return self.size - self.rest

    def are_conditions(self, schema: Schema) -> bool:
        """True if the sets stand for conditions: those of a survey are totals of weights."""
        return schema.design is None and not self.rotated

    @cached_property
    def conditions(self) -> tuple[Indicator, ...]:
        """The sets as conditions, in their order."""
        shape = [column.bins for column in self.columns]
        masks = self._masks.astype(np.bool_).reshape(-1, *shape)
        return tuple(
            Indicator(cell_set(self.columns, mask), label)
            for mask, label in zip(masks, self.labels, strict=True)
        )

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
        flags = {"rotated": self.rotated, "rest": self.rest}
        return plain | {name: True for name, given in flags.items() if given}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Partition:
        """Inverse of `to_dict`."""
        sets = [CellSet.from_dict(cells, schema) for cells in plain["sets"]]
        flags = (plain.get(name, False) is True for name in ("rotated", "rest"))
        labels = tuple(map(str, plain["labels"]))
        return cls(sets[0].columns, tuple(cells.mask for cells in sets), labels, *flags)

    @staticmethod
    def of(columns: Sequence[Column], sets: Mapping[str, NDArray[np.bool_]]) -> Partition:
        """Sets of cells over some columns, by their labels."""
        masks = (np.ascontiguousarray(cells).tobytes() for cells in sets.values())
        return Partition(tuple(columns), tuple(masks), tuple(sets))


@dataclass(frozen=True)
class TableValues:
    """Cell indicators at m points, stored as one cell index per point."""

    # (m,) unsigned integers: the cell of each point, in the smallest type that holds them
    index: NDArray[np.unsignedinteger[Any]]
    shape: tuple[int, ...]  # number of bins of each column
    columns: tuple[str, ...]  # names of the columns, distinct

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def at(self, points: NDArray[np.intp]) -> TableValues:
        """Indicators at the chosen points alone."""
        return TableValues(self.index[points], self.shape, self.columns)

    def average(self, weights: Floats) -> Floats:
        """(d,) weight in each cell."""
        sums = np.bincount(self.index, weights, minlength=self.size)
        return np.asarray(sums, dtype=np.float64)

    def combine(self, coefficients: Floats) -> Floats:
        """(m,) coefficient of the cell of each point."""
        return np.asarray(coefficients[self.index])

    def matrix(self) -> csr_array[Any]:
        """(d, m) sparse matrix with one entry per point."""
        from scipy import sparse

        m = len(self.index)
        entries = (np.ones(m), (self.index.astype(np.int64), np.arange(m)))
        return sparse.csr_array(entries, shape=(self.size, m))
