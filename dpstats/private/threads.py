"""One pass over the rows in several threads, each with running sums of its own.

numpy and Arrow release the interpreter while they work. The first thread is the caller's: an
interrupt arrives there, and only there progress is reported. Sums of integers are the same
whichever thread adds which part.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums, keep_memory
from dpstats.private.sources import Part

MOST = 8  # threads: each holds a part of the table


def sum_parts(
    kernel: Kernel, parts: Iterator[Part], read: Callable[[int], None] | None = None
) -> tuple[list[Codes], int]:
    """Sums over all parts, and the number of rows, which `read` gets in this thread alone."""
    keep_memory()
    lock, stopped, rows = threading.Lock(), threading.Event(), 0

    def take() -> Part | None:
        with lock:  # a generator runs in one thread at a time
            return None if stopped.is_set() else next(parts, None)

    def batches(read: Callable[[int], None] | None) -> Iterator[pa.RecordBatch]:
        """Record batches of the parts that a thread takes."""
        nonlocal rows
        while (part := take()) is not None:
            for batch in part:
                if stopped.is_set():
                    return
                with lock:
                    rows += batch.num_rows
                    kernel.check_rows(rows)
                yield batch
                if read is not None:
                    read(rows)

    def add(read: Callable[[int], None] | None = None) -> PartialSums:
        """Take parts until none is left, and add their rows.

        A failure stops all threads, and keeps no frame that holds rows.
        """
        try:
            return PartialSums.of(kernel, batches(read))
        except BaseException as error:
            stopped.set()
            failure = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
        raise failure

    helpers = min(os.cpu_count() or 1, MOST) - 1
    pool = ThreadPoolExecutor(max(helpers, 1), thread_name_prefix="dpstats")
    try:
        futures = [pool.submit(add) for _ in range(helpers)]
        sums = [add(read), *(future.result() for future in futures)]
    finally:  # of all threads at the next batch, if this one was stopped
        stopped.set()
        pool.shutdown()
        # A reader that was stopped is given back now: one of a database keeps a query open.
        getattr(parts, "close", lambda: None)()
    return reduce(operator.add, sums).exact(kernel)
