"""Exact sums over a part of the rows, in a form that every engine can carry and add.

A sum is carried as two limbs in int64, floor(sum / 2^32) and sum mod 2^32. A sum over a part is
below 2^62 in absolute value, so that the limbs of 2^30 parts can be added without overflow, in any
order; no float is involved and nothing is rounded. An engine decides only which rows make a part:
what a cell means and what is summed is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa

from dpstats.arrays import Codes, one_blas_thread
from dpstats.errors import DataError
from dpstats.private.kernel import Kernel
from dpstats.private.sources import describe_failure, in_slices

_LIMB = 32  # bits of the low one
_KEPT = 3 * 2**23  # bytes
_LIMBS = pa.list_(pa.int64())
FIELDS = pa.schema({"rows": pa.int64(), "high": _LIMBS, "low": _LIMBS, "refused": pa.string()})
"""Of partial sums as a record batch of one row."""


@dataclass(frozen=True)
class PartialSums:
    """Sums of all functions over a part of the rows; a part without rows has sums of zero."""

    rows: int
    high: Codes
    low: Codes
    refused: str = ""

    @classmethod
    def of(cls, kernel: Kernel, batches: Iterable[pa.RecordBatch], times: str = "") -> PartialSums:
        """Exact sums over the rows of some record batches, of any sizes.

        `times` names an integer column that says how many rows of the table each row stands for.
        """
        rows, running = 0, kernel.zeros()
        for batch in batches:
            for part in in_slices(batch):
                counts = _integers(part.column(times)) if times else None
                rows += part.num_rows if counts is None else int(counts.sum())
                kernel.check_rows(rows)
                kernel.add(running, part, counts)
        if rows == 0:
            return cls.none(kernel)
        sums = np.concatenate(kernel.finished(running, rows))
        return cls(rows, sums >> _LIMB, sums & (2**_LIMB - 1))

    @classmethod
    def none(cls, kernel: Kernel) -> PartialSums:
        """The sums over no rows."""
        zeros = np.zeros(sum(block.size for block in kernel.blocks), np.int64)
        return cls(0, zeros, zeros)

    @classmethod
    def refusal(cls, reason: str) -> PartialSums:
        """Sums of rows that cannot be summed; the reason holds no cell."""
        none = np.zeros(0, np.int64)
        return cls(0, none, none, reason)

    def __add__(self, other: PartialSums) -> PartialSums:
        """The sums over both parts."""
        if self.refused or other.refused:
            return self if self.refused else other
        return PartialSums(self.rows + other.rows, self.high + other.high, self.low + other.low)

    def exact(self, kernel: Kernel) -> tuple[list[Codes], int]:
        """Sums, one (d,) int64 array per block, and the number of rows; DataError if refused."""
        if self.refused:
            raise DataError(self.refused)
        kernel.check_rows(self.rows)
        high = self.high + (self.low >> _LIMB)
        sums = (high << _LIMB) + (self.low & (2**_LIMB - 1))
        ends = np.cumsum([block.size for block in kernel.blocks])
        return np.split(sums, ends[:-1]), self.rows

    def to_batch(self) -> pa.RecordBatch:
        """As a record batch with one row and the columns of `FIELDS`."""
        values = [[self.rows], [self.high], [self.low], [self.refused or None]]
        return pa.RecordBatch.from_arrays(
            [pa.array(value, field.type) for value, field in zip(values, FIELDS, strict=True)],
            schema=FIELDS,
        )

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch]) -> PartialSums:
        """The sums over all parts of some record batches, a row for each part; at least one."""
        return reduce(add, (part for batch in batches for part in cls._parts(batch)))

    @classmethod
    def _parts(cls, batch: pa.RecordBatch) -> Iterator[PartialSums]:
        for i in range(batch.num_rows):
            rows, high, low, refused = (batch.column(name)[i] for name in FIELDS.names)
            yield cls(
                rows.as_py(), _integers(high.values), _integers(low.values), refused.as_py() or ""
            )


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


def _integers(values: pa.Array) -> Codes:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
