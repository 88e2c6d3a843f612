"""Dask data frames: the kernel runs on every partition, where Dask holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import pandas as pd
import pyarrow as pa
from dask.delayed import delayed

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.private.data_frames import data_frame
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums, sum_on_worker
from dpstats.private.sources import Part, Source
from dpstats.schema import RawColumns

_ADDED = 16  # partial sums that one task adds


def open_dask(frame: Any, raw: RawColumns) -> Source:
    """A Dask data frame: a task for each partition, on the scheduler that Dask is set to.

    Cells mean what they do in a pandas data frame, since each partition is one. Rows that must be
    seen in their order are read here, one partition after the other.
    """

    def parts(names: Sequence[str]) -> Iterator[Part]:
        for partition in frame[list(names)].to_delayed():
            yield data_frame(partition.compute(), raw).batches(names)

    def sums(kernel: Kernel) -> tuple[list[Codes], int]:
        everywhere = delayed(kernel, traverse=False)  # sent once
        tasks = [
            delayed(sums_of_partition)(everywhere, partition)
            for partition in frame[list(kernel.raw.names)].to_delayed()
        ]
        while len(tasks) > 1:
            groups = (tasks[i : i + _ADDED] for i in range(0, len(tasks), _ADDED))
            tasks = [delayed(reduce)(add, group) for group in groups]
        total: PartialSums = tasks[0].compute()
        return total.exact(kernel)

    return Source(list(frame.columns), parts, sums=sums)


def sums_of_partition(kernel: Kernel, partition: pd.DataFrame) -> PartialSums:
    """Partial sums over one partition; never raises.

    What Dask logs of a task that fails can hold its arguments, which are rows. The partition has
    been read, so that a failure would come again.
    """
    try:
        return sum_on_worker(kernel, _batches(kernel, partition))
    except DataError as error:
        return PartialSums.refusal(str(error))


def _batches(kernel: Kernel, partition: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from data_frame(partition, kernel.raw).batches(kernel.raw.names)
