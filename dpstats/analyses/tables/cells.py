"""The cells of tables that results are about: their levels as columns, and cross tabulations."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.checks import first_few, short
from dpstats.errors import RequestError
from dpstats.schema import Column

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TableOfCells:
    """The cells of one table, in C order."""

    columns: tuple[str, ...]  # names of its columns
    labels: tuple[tuple[str, ...], ...]  # levels or bins of each column, in their declared order

    @classmethod
    def of(cls, columns: Iterable[Column]) -> TableOfCells:
        """All cells of some columns of a schema."""
        chosen = tuple(columns)
        return cls(tuple(c.name for c in chosen), tuple(c.bin_labels for c in chosen))

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(np.prod([len(labels) for labels in self.labels]))

    def levels(self) -> dict[str, list[str]]:
        """The level of every cell, column by column."""
        cells = zip(*itertools.product(*self.labels), strict=True)
        return dict(zip(self.columns, map(list, cells), strict=True))


def with_levels(frame: pd.DataFrame, tables: Sequence[TableOfCells], first: str) -> pd.DataFrame:
    """A frame with one row per cell, and the level of each column of the tables after `first`."""
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    found: dict[str, list[Any]] = {name: [] for name in names}
    for table in tables:
        levels = table.levels()
        for name in names:
            found[name] += levels.get(name, [None] * table.size)
    place = list(frame.columns).index(first) + 1
    for i, name in enumerate(names):
        shown = level_name(name, {*frame.columns, *names[:i], *names[i + 1 :]})
        frame.insert(place + i, shown, np.array(found[name][: len(frame)], dtype=object))
    return frame


def level_name(name: str, taken: Collection[Any]) -> str:
    """A column of levels in a frame, where a column of results may have its name."""
    while name in taken:
        name += " (level)"
    return name


def crosstab(
    tables: Sequence[TableOfCells], columns: Sequence[str], values: Iterable[float]
) -> pd.DataFrame:
    """Values of all cells of one table: the last column across, the others down."""
    import pandas as pd

    start = 0
    every = np.asarray(list(values), dtype=np.float64)
    names = {name for name in columns if isinstance(name, str)}
    distinct = len(names) == len(columns)
    for table in tables:
        if distinct and names == set(table.columns):
            break
        start += table.size
    else:
        known = [table.columns for table in tables]
        if distinct and any(set() < names < set(table.columns) for table in tables):
            advice = f"; for a margin infer dps.Marginals({list(columns)}, degree={len(columns)})"
        elif known:
            advice = f"; name each column, as in crosstab({', '.join(map(repr, known[0]))})"
        else:
            advice = ""
        raise RequestError(
            f"crosstab({', '.join(map(short, columns))}): there is no table of exactly these "
            f"columns; tables: {first_few(known)}{advice}"
        )
    shape = [len(labels) for labels in table.labels]
    axes = [table.columns.index(name) for name in columns]
    array = every[start : start + table.size].reshape(shape).transpose(axes)
    labels = [table.labels[axis] for axis in axes]
    across = pd.Index(labels[-1], name=columns[-1])
    if len(columns) == 1:
        return pd.DataFrame([array], columns=across)
    if len(columns) == 2:
        down = pd.Index(labels[0], name=columns[0])
    else:
        down = pd.MultiIndex.from_product(labels[:-1], names=list(columns[:-1]))
    return pd.DataFrame(array.reshape(-1, shape[axes[-1]]), index=down, columns=across)
