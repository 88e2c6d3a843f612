"""Exact sums over a part of the rows, in a form that every engine can carry and add.

Sums are int64, added in any order; no float is involved and nothing is rounded. Those of some parts
may wrap around, modulo 2^64; those of all rows are below 2^62 in absolute value, so that they are
right. An engine decides only which rows make a part: what a cell means and what is summed is the
kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpstats.arrays import Codes, one_blas_thread
from dpstats.errors import DataError
from dpstats.private.kernel import Kernel
from dpstats.private.sources import describe_failure, in_slices

_KEPT = 3 * 2**23  # bytes


@dataclass(frozen=True)
class PartialSums:
    """Sums of all functions, (d,) int64, over a part of the rows."""

    rows: int
    sums: Codes
    refused: str = ""  # why the rows cannot be summed; no cell is in it

    @classmethod
    def of(cls, kernel: Kernel, batches: Iterable[pa.RecordBatch], times: str = "") -> PartialSums:
        """Exact sums over the rows of some record batches, of any sizes.

        `times` names an integer column that says how many rows of the table each row stands for.
        """
        rows, running = 0, kernel.zeros()
        for batch in batches:
            for part in in_slices(batch):
                counts = part.column(times).to_numpy() if times else None
                rows += part.num_rows if counts is None else int(counts.sum())
                kernel.check_rows(rows)
                kernel.add(running, part, counts)
        return cls(rows, np.concatenate(kernel.finished(running, rows)))

    @classmethod
    def refusal(cls, reason: str) -> PartialSums:
        """Sums of rows that cannot be summed."""
        return cls(0, np.zeros(0, np.int64), reason)

    def __add__(self, other: PartialSums) -> PartialSums:
        """The sums over both parts."""
        if self.refused or other.refused:
            return self if self.refused else other
        return PartialSums(self.rows + other.rows, self.sums + other.sums)

    def exact(self, kernel: Kernel) -> tuple[list[Codes], int]:
        """Sums, one (d,) int64 array per block, and the number of rows; DataError if refused."""
        if self.refused:
            raise DataError(self.refused)
        kernel.check_rows(self.rows)
        ends = np.cumsum([block.size for block in kernel.blocks])
        return np.split(self.sums, ends[:-1]), self.rows


def sum_on_worker(
    kernel: Kernel, batches: Iterable[pa.RecordBatch], times: str = ""
) -> PartialSums:
    """As `PartialSums.of`, in a process whose errors an engine writes to its logs.

    What the kernel refuses is part of the result, since it would be refused again. A failure to
    read is raised, for the engine to try once more, without what a reader says of the rows.
    """
    failure, retried = "", False
    try:
        keep_memory()
        with one_blas_thread(of_scipy=False):
            return PartialSums.of(kernel, _reading(batches), times)
    except _ReadingFailed as error:
        failure, retried = str(error), True
    except Exception as error:
        failure = str(error) if isinstance(error, DataError) else describe_failure(error)
    if retried:
        raise DataError(failure)
    return PartialSums.refusal(failure)


def keep_memory() -> None:
    """Ask for memory once, and give it back.

    After an array of this size, glibc keeps as much for the arrays of a batch, instead of asking
    the system for every batch again: a third of the time.
    """
    np.empty(_KEPT, np.uint8)


class _ReadingFailed(Exception):
    """A failure of the reader rather than of the kernel."""


def _reading(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        said = str(error) if isinstance(error, DataError) else describe_failure(error)
        raise _ReadingFailed(said) from None
