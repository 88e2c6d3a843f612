"""One Arrow record batch to exact int64 sums, for every kind of table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.residuals import Residual
from dpstats.private.histograms import Histograms
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

SAFE_TOTAL = 2**62


class Kernel:
    """Sums of all functions of some blocks over record batches.

    Tables, their residuals and conditions are read off a few histograms when all rows are in; a
    block that does not follow from one is summed by its own ``sums``. The running sums are those of
    the histograms, then of these blocks.

    Parameters
    ----------
    schema : Schema
        Columns to encode; others in a batch are ignored.
    blocks : iterable of blocks
    """

    def __init__(self, schema: Schema, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        used = {column.name for block in self.blocks for column in block.columns}
        self.schema = schema.select(used)
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

    def zeros(self) -> list[Codes]:
        """Running sums of no rows."""
        return [np.zeros(b.size, dtype=np.int64) for b in (*self._tables, *self._alone)]

    def add(
        self, running: Sequence[Codes], batch: pa.RecordBatch, times: Codes | None = None
    ) -> None:
        """Add the rows of one batch to running sums.

        Parameters
        ----------
        running : sequence of int64 arrays
        batch : RecordBatch
        times : (n,) int64, optional
            How many rows of the table each row stands for, at least 0; one each if not given. A sum
            with these weights is that of the rows of every binary digit, times 1, 2, 4 and so on.
        """
        codes = self.schema.encode(batch)
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
            derivation = self._tables[number].derive(counted)
            assert derivation is not None  # the table holds all columns of the block
            counts = derivation.apply(running[number], rows)
            sums.append(block.of_counts(counts) if isinstance(block, Residual) else counts)
        return sums

    def sums(self, batch: pa.RecordBatch) -> list[Codes]:
        """Exact sums over the rows of one batch, one (d,) int64 array per block."""
        running = self.zeros()
        self.add(running, batch)
        return self.finished(running, batch.num_rows)

    def check_rows(self, rows: int) -> None:
        """Refuse, from public numbers, a number of rows at which sums could overflow.

        Where the number of rows is private the plan has refused such grids already.
        """
        if rows * self.largest >= SAFE_TOTAL:
            raise DataError(
                f"{rows} rows on grids with products up to {self.largest} could overflow exact "
                "sums; declare fewer points"
            )
