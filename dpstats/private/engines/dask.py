"""Dask data frames: the kernel runs on every partition, where Dask holds it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from importlib.util import find_spec
from operator import add
from typing import Any

import pandas as pd
import pyarrow as pa
from dask import config
from dask.base import get_scheduler
from dask.delayed import delayed
from dask.utils import parse_timedelta

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.private.data_frames import data_frame
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums, on_worker
from dpstats.private.sources import Part, Source, refuse_order
from dpstats.schema import RawColumns

_ADDED = 16  # partial sums that one task adds
_LOOK = 1  # seconds after which a cluster is asked whether it has workers, while it computes
_LIMIT = "distributed.scheduler.no-workers-timeout"  # Dask waits without end unless it is set
_PATIENCE = "5 minutes"  # then


def dask_frame(frame: Any, raw: RawColumns, person: str | None, order: str | None) -> Source:
    """A Dask data frame: a task for each partition, on the scheduler that Dask is set to.

    Cells mean what they do in a pandas data frame, since each partition is one. Rows that must be
    seen in their order are read here, one partition after the other.
    """
    refuse_order(order, "a Dask DataFrame")

    def parts(names: Sequence[str]) -> Iterator[Part]:
        for partition in frame[list(names)].to_delayed():
            yield data_frame(computed(partition), raw, person).batches(names)

    def sums(kernel: Kernel) -> tuple[list[Codes], int]:
        everywhere = delayed(kernel, traverse=False)  # sent once
        tasks = [
            delayed(sums_of_partition)(everywhere, partition)
            for partition in frame[list(kernel.raw.names)].to_delayed()
        ]
        while len(tasks) > 1:
            groups = (tasks[i : i + _ADDED] for i in range(0, len(tasks), _ADDED))
            tasks = [delayed(sums_of_all)(group) for group in groups]
        total: PartialSums = computed(tasks[0])
        return total.exact(kernel)

    types = data_frame(frame._meta, raw, person).types
    return Source(list(frame.columns), parts, types=types, sums=sums)


def sums_of_partition(kernel: Kernel, partition: pd.DataFrame) -> PartialSums:
    """Partial sums over one partition; never raises.

    What Dask logs of a task that fails can hold its arguments, which are rows. The partition has
    been read, so that a failure would come again.
    """
    try:
        return on_worker(kernel, _batches(kernel, partition))
    except DataError as error:
        return PartialSums.refusal(str(error))


def _batches(kernel: Kernel, partition: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from data_frame(partition, kernel.raw).batches(kernel.raw.names)


def sums_of_all(parts: Sequence[PartialSums]) -> PartialSums:
    """The sums over some parts, at least one."""
    return reduce(add, parts)


def computed(task: Any) -> Any:
    """The result of a task, on the scheduler that Dask is set to.

    Raises
    ------
    DataError
        If a cluster has given the task up, is gone, or has had no workers for some time. Dask
        itself would wait for new ones without end, and not every cluster starts them: a
        `LocalCluster` gives a worker up that has died and, 15 seconds later, is being started once
        more.
    """
    client = _client(task)
    return task.compute() if client is None else _of_cluster(client, task)


def _client(task: Any) -> Any:
    """The client of the cluster that would compute, if any.

    None inside a task of a cluster too: to wait there for others, Dask must know of it.
    """
    client = getattr(get_scheduler(collections=[task]), "__self__", None)
    if client is None or find_spec("distributed") is None:
        return None
    import distributed

    with suppress(ValueError):
        distributed.get_worker()
        return None
    return client if isinstance(client, distributed.Client) else None


def _of_cluster(client: Any, task: Any) -> Any:
    import distributed

    limit = config.get(_LIMIT, None) or _PATIENCE
    seconds, seen = parse_timedelta(limit), time.monotonic()
    future, why = client.compute(task), ""
    try:
        while not (why or _is_done(future)):
            if client.scheduler_info()["workers"]:
                seen = time.monotonic()
            elif time.monotonic() - seen > seconds:
                why = (
                    f"the Dask cluster has had no workers for {limit}: start some, such as with "
                    f"cluster.scale, or allow more time by Dask's setting {_LIMIT!r}"
                )
        if not why:
            return future.result()
    except distributed.KilledWorker:
        why = (
            "Dask gave up after several workers died at the same task: they may need more memory, "
            "or the table smaller partitions"
        )
    except distributed.CancelledError:
        why = "the Dask cluster is gone, or was closed"
    finally:
        future.release()
    raise DataError(why)


def _is_done(future: Any) -> bool:
    """True if a task has ended, now or in a moment."""
    import distributed

    wait: Any = distributed.wait
    with suppress(distributed.TimeoutError):
        wait(future, _LOOK)
        return True
    return False
