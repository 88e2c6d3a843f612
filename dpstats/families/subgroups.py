"""Subgroups of rows: those that satisfy a condition and have a value of some columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.errors import RequestError
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import CellSet, cell_index, read_condition

EVERY_CELL = CellSet((), b"\x01")


@dataclass(frozen=True)
class Subgroup:
    """The rows in a set of cells that have a value of some columns.

    The second part is written as a list of columns, since cells of many columns are too many.
    """

    cells: CellSet
    # with ``allow_missing=True``; a row of the subgroup has a value in all of them
    answered: tuple[Column, ...] = ()
    label: str = field(default="", compare=False)  # the condition as it was written

    def __post_init__(self) -> None:
        for column in self.answered:
            if not column.allow_missing:
                raise RequestError(f"{column.name!r} has a value in every row")
        mask = self.cells.array
        for axis, column in enumerate(self.cells.columns):
            if column in self.answered:
                mask = np.delete(mask, column.bins - 1, axis)
        if not mask.any():
            raise RequestError(
                f"no row with {self.label!r} has a value of "
                f"{', '.join(repr(column.name) for column in self.answered)}"
            )

    @staticmethod
    def of(schema: Schema, given: str | None, names: Iterable[str]) -> Subgroup | None:
        """Rows with a condition and a value of the named columns; None for all rows."""
        named = set(names)
        answered = tuple(c for c in schema if c.name in named and c.allow_missing)
        if given is None:
            return Subgroup(EVERY_CELL, answered) if answered else None
        return Subgroup(read_condition(given, schema), answered, " ".join(given.split()))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that it depends on."""
        return tuple(dict.fromkeys((*self.cells.columns, *self.answered)))

    @property
    def described(self) -> str:
        """Which rows these are, such as "rows with age >= 65 and a value of income"."""
        names = [column.name for column in self.answered]
        values = f"a value of {', '.join(names)}" if names else ""
        return "rows with " + " and ".join(part for part in (self.label, values) if part)

    @property
    def name(self) -> str:
        """In names of functions, such as "age >= 65 and income answered"."""
        answered = [f"{column.name} answered" for column in self.answered]
        return " and ".join(part for part in (self.label, *answered) if part)

    def over(self, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
        """Cells of the subgroup in a table, True or False; `columns` must include its own."""
        cells = self.cells.over(columns).copy()
        for column in self.answered:
            np.moveaxis(cells, columns.index(column), 0)[-1] = False
        return cells

    def holds(self, codes: Mapping[str, Codes]) -> NDArray[np.bool_]:
        """(n,) True for each row in the subgroup; `codes` maps column names to (n,) codes."""
        in_cells = self.cells.array.ravel()[cell_index(self.cells.columns, codes)]
        inside = np.broadcast_to(in_cells, len(next(iter(codes.values())))).copy()
        for column in self.answered:
            inside &= column.bins_of(codes[column.name]) < column.bins - 1
        return inside

    def holds_by_bin(self, name: str, bins: Mapping[str, Codes]) -> NDArray[np.bool_]:
        """(n, bins) True where a row with that bin of one column would be in the subgroup.

        `bins` maps the other columns to (n,) bins. The shape is (n, 1) if the named column does
        not matter.
        """
        index: Codes | int = 0
        mask = self.cells.array
        axis = next((i for i, c in enumerate(self.cells.columns) if c.name == name), None)
        for column in self.cells.columns:
            if column.name != name:
                index = index * column.bins + bins[column.name]
        last = 1 if axis is None else self.cells.columns[axis].bins
        mask = mask if axis is None else np.moveaxis(mask, axis, -1)
        inside = mask.reshape(-1, last)[np.broadcast_to(index, len(bins[name]))]
        for column in self.answered:
            if column.name == name:
                inside = inside & (np.arange(column.bins) < column.bins - 1)
            else:
                inside = inside & (bins[column.name] < column.bins - 1)[:, None]
        return np.asarray(inside)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        answered = [column.name for column in self.answered]
        return {**self.cells.to_dict(), "answered": answered, "label": self.label}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> Subgroup:
        """Inverse of `to_dict`."""
        answered = tuple(schema[name] for name in plain["answered"])
        return cls(CellSet.from_dict(plain, schema), answered, str(plain["label"]))


def suffix_of(given: Subgroup | None) -> str:
    """End of the names of functions, such as ", age >= 65"; "" for all rows."""
    return f", {given.name}" if given is not None and given.name else ""


def plain_given(given: Subgroup | None) -> dict[str, Any]:
    """Plain data of a block's subgroup; nothing for all rows."""
    return {} if given is None else {"given": given.to_dict()}


def given_from_plain(plain: Mapping[str, Any], schema: Schema) -> Subgroup | None:
    """Inverse of `plain_given`."""
    return Subgroup.from_dict(plain["given"], schema) if "given" in plain else None


def disjoint(groups: Iterable[Subgroup]) -> bool:
    """True if subgroups are sets of cells of the same columns, and no cell is in two of them."""
    groups = tuple(groups)
    alike = len({(g.cells.columns, g.answered) for g in groups}) <= 1
    return alike and bool(np.all(sum(g.cells.array.astype(np.int64) for g in groups) <= 1))


def require_answered(columns: Iterable[Column], group: Subgroup | None) -> None:
    """Refuse columns that may be missing in a subgroup: the code of a missing cell is no value."""
    known = () if group is None else group.answered
    for column in columns:
        if column.allow_missing and column not in known:
            raise RequestError(
                f"{column.name!r} has allow_missing=True in the schema, and these functions need a "
                "value in every row; declare missing= instead, the value that missing cells count "
                "as, or use an analysis of the rows that have a value, such as dps.Mean"
            )
