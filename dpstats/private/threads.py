"""One pass over the rows in several threads, each with running sums of its own.

numpy and Arrow release the interpreter while they work. The first thread is the caller's: an
interrupt arrives there, and only there progress is reported. Sums of integers are the same
whichever thread adds which part.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add

import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums, keep_memory
from dpstats.private.sources import Part

MOST = 8  # threads: each holds a part of the table


def sum_parts(
    kernel: Kernel, parts: Iterator[Part], read: Callable[[int], None] | None = None
) -> tuple[list[Codes], int]:
    """Sums over all parts, and the number of rows.

    Parameters
    ----------
    kernel : Kernel
    parts : iterator of iterables of record batches
    read : callable, optional
        Called in this thread with the number of rows so far.

    Raises
    ------
    DataError
        If rows times the largest code could pass 2^62, where int64 sums would no longer be
        provably exact.
    """
    keep_memory()
    work = _Pass(kernel, parts)
    threads = [threading.Thread(target=work.help) for _ in range(_helpers())]
    try:
        for thread in threads:
            thread.start()
        work.add(read)
        for thread in threads:
            thread.join()
    finally:  # of all threads at the next batch, if this one was stopped
        work.stopped = True
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        # A reader that was stopped is given back now: one of a database keeps a query open.
        getattr(parts, "close", lambda: None)()
    if work.failure is not None:
        raise work.failure
    return reduce(add, work.sums).exact(kernel)


def _helpers() -> int:
    return min(os.cpu_count() or 1, MOST) - 1


class _Pass:
    """State that the threads share."""

    def __init__(self, kernel: Kernel, parts: Iterator[Part]) -> None:
        self.rows = 0
        self.sums: list[PartialSums] = []
        self.failure: BaseException | None = None
        self.stopped = False
        self._kernel, self._parts, self._lock = kernel, parts, threading.Lock()

    def add(self, read: Callable[[int], None] | None = None) -> None:
        """Take parts until none is left, and add their rows."""
        sums = PartialSums.of(self._kernel, self._batches(read))
        with self._lock:
            self.sums.append(sums)

    def _batches(self, read: Callable[[int], None] | None) -> Iterator[pa.RecordBatch]:
        """Record batches of the parts that this thread takes."""
        while (part := self._next()) is not None:
            for batch in part:
                if self.stopped:
                    return
                with self._lock:
                    self.rows += batch.num_rows
                    self._kernel.check_rows(self.rows)
                yield batch
                if read is not None:
                    read(self.rows)

    def help(self) -> None:
        """As `add`, in a thread of its own; no frame or chain of an error is kept."""
        failure = None
        try:
            self.add()
        except BaseException as error:
            failure = error.with_traceback(None)
            failure.__cause__ = failure.__context__ = None
        if failure is not None:
            with self._lock:
                self.failure, self.stopped = failure, True

    def _next(self) -> Part | None:
        with self._lock:  # a generator runs in one thread at a time
            return None if self.stopped else next(self._parts, None)
