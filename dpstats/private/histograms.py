"""Few histograms from which the tables and conditions of a plan follow as margins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Codes
from dpstats.families.block import Block
from dpstats.families.conditions import cell_index
from dpstats.families.tables.cells import Table
from dpstats.schema import Column

MOST_CELLS = 2**17  # of one histogram
_ALL_CELLS = 2**22  # of all: every thread has its own


@dataclass(frozen=True)
class Histograms:
    """Tables over unions of groups of columns.

    A row's cell is found once for each group, then combined for each table: p columns in groups of
    g need (p / g)^2 / 2 tables instead of p^2 / 2 for all pairs.

    Attributes
    ----------
    groups : tuple of tuples of columns
        Without a column in common.
    unions : tuple of tuples of int
        Numbers of the groups that each table is over.
    """

    groups: tuple[tuple[Column, ...], ...] = ()
    unions: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(blocks: Sequence[Block]) -> Histograms:
        """For blocks that do not need codes: one table if it is small, else few that are.

        A block with more than `MOST_CELLS` cells may follow from none.
        """
        columns = tuple(dict.fromkeys(c for block in blocks for c in block.columns))
        if not columns:
            return Histograms()
        most_cells = MOST_CELLS
        if _cells(columns) <= most_cells:
            return Histograms((columns,), ((0,),))
        widest = max(len(block.columns) for block in blocks)
        while most_cells > 1:
            groups = _packed(columns, int(most_cells ** (1 / widest) + 1e-9))
            sizes = [_cells(group) for group in groups]
            at = {column.name: i for i, group in enumerate(groups) for column in group}
            wanted = (tuple(sorted({at[c.name] for c in block.columns})) for block in blocks)
            unions = [
                union
                for union in dict.fromkeys(wanted)
                if math.prod(sizes[i] for i in union) <= most_cells
            ]
            if sum(math.prod(sizes[i] for i in union) for union in unions) <= _ALL_CELLS:
                return Histograms(groups, _largest(unions))
            most_cells //= 8
        return Histograms()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, with the columns of their groups in turn."""
        return tuple(
            Table(tuple(itertools.chain.from_iterable(self.groups[i] for i in union)))
            for union in self.unions
        )

    def counts(self, codes: Mapping[str, Codes]) -> list[Codes]:
        """Counts of every table over rows, given as column name -> (n,) codes."""
        used = set(itertools.chain.from_iterable(self.unions))
        index = {i: cell_index(self.groups[i], codes) for i in used}
        sizes = [_cells(group) for group in self.groups]
        counts = []
        for union in self.unions:
            cell = index[union[0]]
            for i in union[1:]:
                cell = cell * sizes[i]
                cell += index[i]
            counts.append(np.bincount(cell, minlength=math.prod(sizes[i] for i in union)))
        return counts


def _cells(columns: Iterable[Column]) -> int:
    return math.prod(column.bins for column in columns)


def _packed(columns: Sequence[Column], most: int) -> tuple[tuple[Column, ...], ...]:
    """Groups of at most `most` cells, or of one column: each column goes to the first that fits."""
    groups: list[list[Column]] = []
    for column in sorted(columns, key=lambda c: -c.bins):
        fits = (group for group in groups if _cells(group) * column.bins <= most)
        group = next(fits, None)
        if group is None:
            groups.append([column])
        else:
            group.append(column)
    return tuple(map(tuple, groups))


def _largest(unions: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Those that are no part of another."""
    kept: list[tuple[int, ...]] = []
    for union in sorted(unions, key=len, reverse=True):
        larger = itertools.takewhile(lambda one: len(one) > len(union), kept)  # noqa: B023
        if not any(set(union) <= set(one) for one in larger):
            kept.append(union)
    return tuple(kept)
