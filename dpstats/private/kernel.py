"""One Arrow record batch to exact int64 sums, for every kind of table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.residuals import Residual
from dpstats.private.design_rows import DesignRows
from dpstats.schema import Column, Schema
from dpstats.schema.conditions import cell_index
from dpstats.schema.design import STEPS

if TYPE_CHECKING:
    import pyarrow as pa

SAFE_TOTAL = 2**62
MOST_CELLS = 2**17  # of one histogram
_ALL_CELLS = 2**22  # of all: every thread has its own


class Kernel:
    """Sums of all functions of some blocks over record batches.

    Tables, their residuals and conditions are read off a few histograms when all rows are in; a
    block that does not follow from one is summed by its own ``sums``. The running sums are those of
    the histograms, then of these blocks.
    """

    def __init__(self, schema: Schema, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        used = {column.name for block in self.blocks for column in block.columns}
        self._repairs = schema.repairs(used)
        self.raw = self._repairs.schema.raw
        self._design = None if schema.design is None else DesignRows(schema.design)
        counted = [
            block for block in self.blocks if isinstance(block, Table | Indicator | Residual)
        ]
        self._histograms = Histograms.of(counted)
        self._tables = self._histograms.tables
        sources = BlockIndex(self._tables)
        self._table_of: dict[Block, int | None] = {
            block: next(sources.of(block), None) for block in counted
        }
        self._alone = [block for block in self.blocks if self._table_of.get(block) is None]
        self.largest = max(int(block.bounds.max()) for block in self.blocks)
        self.largest *= 1 if self._design is None else STEPS

    def zeros(self) -> list[Codes]:
        """Running sums of no rows."""
        return [np.zeros(b.size, dtype=np.int64) for b in (*self._tables, *self._alone)]

    def add(
        self, running: Sequence[Codes], batch: pa.RecordBatch, times: Codes | None = None
    ) -> None:
        """Add the rows of one batch to running sums; row i counts as times[i] >= 0 rows.

        A sum with these weights is that of the rows of every binary digit, times 1, 2, 4 and so on.
        """
        codes = self._repairs.encode(batch)
        if self._design is not None:  # a row of weight u counts as u rows
            weights = self._design.weights(batch)
            times = weights if times is None else weights * times
            codes |= self._design.units(batch)
        if times is None:
            self._add(running, codes)
            return
        for bit in range(int(times.max(initial=0)).bit_length()):
            rows = np.flatnonzero(times >> bit & 1)
            self._add(running, {name: column[rows] for name, column in codes.items()}, 2**bit)

    def _add(self, running: Sequence[Codes], codes: Mapping[str, Codes], times: int = 1) -> None:
        parts = [*self._histograms.counts(codes), *(block.sums(codes) for block in self._alone)]
        for total, part in zip(running, parts, strict=True):
            total += part if times == 1 else times * part

    def finished(self, running: Sequence[Codes], rows: int) -> list[Codes]:
        """Exact sums, one (d,) int64 array per block, from running sums over all rows."""
        alone = iter(running[len(self._tables) :])
        sums = []
        for block in self.blocks:
            number = self._table_of.get(block)
            if number is None:
                sums.append(next(alone))
                continue
            counted = block.table if isinstance(block, Residual) else block
            whole = self._design is None  # else the sum of weights is known as little as others
            derivation = self._tables[number].derive(counted, complements=whole)
            assert derivation is not None  # the table holds all columns of the block
            counts = derivation.apply(running[number], rows)
            sums.append(block.potential(counts) if isinstance(block, Residual) else counts)
        return sums

    def check_rows(self, rows: int) -> None:
        """Refuse, from public numbers, a number of rows at which sums could overflow.

        Where the number of rows is private the plan has refused such grids already.
        """
        if rows * self.largest >= SAFE_TOTAL:
            raise DataError(
                f"{rows} rows on grids with products up to {self.largest} could overflow exact "
                "sums; declare fewer points"
            )


@dataclass(frozen=True)
class Histograms:
    """Tables over unions of groups of columns, which have no column in common.

    A row's cell is found once for each group, then combined for each table: p columns in groups of
    g need (p / g)^2 / 2 tables instead of p^2 / 2 for all pairs.
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
    """Unions that are no part of another."""
    kept: list[tuple[int, ...]] = []
    for union in sorted(unions, key=len, reverse=True):
        larger = itertools.takewhile(lambda other: len(other) > len(union), kept)  # noqa: B023
        if not any(set(union) <= set(other) for other in larger):
            kept.append(union)
    return tuple(kept)
