"""One Arrow record batch to exact int64 sums, for every kind of table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.families.cells import Table
from dpstats.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

JOINT_CELLS = 2**17
SAFE_TOTAL = 2**62


class Kernel:
    """Sums of all functions of some blocks over record batches.

    Tables and conditions are read off one joint histogram of their columns while it has at most
    2^17 cells; a block that does not follow from it is summed by its own ``sums``.

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
        counted = {c: None for b in self.blocks if not b.needs_codes for c in b.columns}
        self._joint: Table | None = None
        if counted and math.prod(column.bins for column in counted) <= JOINT_CELLS:
            self._joint = Table(tuple(counted))
        self._from_joint = {
            i: derivation
            for i, block in enumerate(self.blocks)
            if self._joint is not None
            if (derivation := self._joint.derive(block)) is not None
        }
        self.largest = max(int(block.bounds.max()) for block in self.blocks)

    def sums(self, batch: pa.RecordBatch) -> list[Codes]:
        """Exact sums over the rows of one batch, one (d,) int64 array per block."""
        codes = self.schema.encode(batch)
        joint = self._joint.sums(codes) if self._joint is not None else None
        return [
            self._from_joint[i].apply(joint, batch.num_rows)
            if joint is not None and i in self._from_joint
            else block.sums(codes)
            for i, block in enumerate(self.blocks)
        ]

    def check_rows(self, rows: int) -> None:
        """Refuse, from public numbers, a number of rows at which sums could overflow.

        Where the number of rows is private the plan has refused such grids already.
        """
        if rows * self.largest >= SAFE_TOTAL:
            raise DataError(
                f"{rows} rows on grids with products up to {self.largest} could overflow exact "
                "sums; declare fewer points"
            )

    def total(self, batches: Iterable[pa.RecordBatch]) -> tuple[list[Codes], int]:
        """Sums over all batches, and the number of rows.

        Raises
        ------
        DataError
            If rows times the largest code could pass 2^62, where int64 sums would no longer be
            provably exact.
        """
        totals = [np.zeros(block.size, dtype=np.int64) for block in self.blocks]
        rows = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            rows += batch.num_rows
            self.check_rows(rows)
            for total, part in zip(totals, self.sums(batch), strict=True):
                total += part
        return totals, rows
