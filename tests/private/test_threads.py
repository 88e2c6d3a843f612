"""The pass over the rows: the same integers from any number of threads, and clean ends."""

import os
import threading
import traceback

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.moments import fourth_moments_of_pairs, third_and_fourth_powers
from dpstats.private import kernel, sources
from dpstats.private.kernel import Kernel
from dpstats.private.sources import one_by_one
from dpstats.private.tables import exact_sums, open_source
from dpstats.private.threads import sum_parts

SCHEMA = dps.Schema([dps.Boolean("flag"), dps.Number("x", 0, 10, missing=5)])
BLOCKS = [dps.Cells.table(SCHEMA, ["flag"]), dps.Moments.of(SCHEMA, ["x"])]
FIRST = threading.main_thread()
BATCH = pa.RecordBatch.from_pydict({"flag": [True, False, True], "x": [1.0, 2.0, None]})


def own_threads():
    """How many threads of a pass over rows are alive; other libraries keep some of their own."""
    return sum(thread.name.startswith("dpstats") for thread in threading.enumerate())


@pytest.fixture
def threads(monkeypatch):
    return lambda number: monkeypatch.setattr(os, "cpu_count", lambda: number)


def test_threads_and_dictionaries_change_no_integer(loop, sums_of, threads, monkeypatch):
    """Blocks of all kinds, in both ways that moments are summed, and several joint tables."""
    fine = dps.Number("fine", -50, 50, points=2**18 + 1, missing=0)
    schema, n = dps.Schema([*loop.schema, fine]), 110
    blocks = [
        *loop.blocks_of(schema),
        BallMoments.of(schema, ["x", "y"], clip_norm=0.5),
        dps.Moments.of(schema, ["fine", "x"]),
        third_and_fourth_powers(schema, ["x", "y", "fine"]),
        fourth_moments_of_pairs(schema, ["x", "y", "fine"]),
    ]
    numbers = np.random.default_rng(5).normal(0, 20, n)
    table = loop.rows(n).append_column("fine", pa.array(numbers))
    coded = table.set_column(0, "word", table["word"].dictionary_encode())
    codes = schema.encode(table.combine_chunks().to_batches()[0])
    expected = [block.sums(codes).tolist() for block in blocks]
    monkeypatch.setattr(kernel, "MOST_CELLS", 500)
    assert len(Kernel(schema, blocks)._tables) > 1
    monkeypatch.setattr(sources, "BATCH_ROWS", 20)
    for number in (1, 5):
        threads(number)
        for data in (table, coded):
            assert sums_of(data, schema, blocks) == (expected, n)


def test_one_thread_per_processor_works_and_at_most_eight(threads, monkeypatch):
    """Each begins sums of its own."""
    begun, zeros = [], Kernel.zeros
    monkeypatch.setattr(Kernel, "zeros", lambda kernel: begun.append(1) or zeros(kernel))
    for number, most in ((1, 1), (3, 3), (1_000, 8)):
        threads(number)
        begun.clear()
        sums, n = sum_parts(Kernel(SCHEMA, BLOCKS), one_by_one([BATCH] * 50))
        assert (sums[0].tolist(), n, len(begun)) == ([50, 100], 150, most)


@pytest.mark.parametrize("error", [ValueError("secret 31.7"), KeyboardInterrupt("secret")])
def test_a_failure_in_a_thread_ends_all_and_holds_no_frame(error, threads, frames_of, monkeypatch):
    """In every thread but the first, which waits for that."""
    threads(4)
    failed = threading.Event()

    def add(*args):
        if threading.current_thread() is not FIRST:
            failed.set()
            raise error
        assert failed.wait(60)

    monkeypatch.setattr(Kernel, "add", add)
    monkeypatch.setattr(sources, "BATCH_ROWS", 1)
    source = open_source(pa.Table.from_batches([BATCH] * 100), SCHEMA)
    with pytest.raises((dps.DataError, KeyboardInterrupt)) as caught:
        exact_sums(source, SCHEMA, BLOCKS)
    assert own_threads() == 0
    assert caught.type == (dps.DataError if isinstance(error, ValueError) else KeyboardInterrupt)
    if caught.type is dps.DataError:
        said = "".join(traceback.format_exception(caught.value))
        assert "reading the rows failed (ValueError); nothing was released or spent" in said
        assert "31.7" not in said
    for held in frames_of(caught):
        assert not {"running", "batch", "part", "totals", "futures"} & set(held)


@pytest.mark.parametrize("failing", ["helper", "caller", "progress"])
def test_a_stopped_reader_is_closed_before_the_error_is_seen(failing, threads, monkeypatch):
    """Tracebacks keep its frame, and a query of a database would stay open as long as they do."""
    threads(4)
    given, closed = [], []

    def endless():
        try:
            while True:
                given.append(1)
                yield (BATCH,)
        finally:
            closed.append(True)

    def add(*args):
        if failing == ("caller" if threading.current_thread() is FIRST else "helper"):
            raise RuntimeError

    def progress(_):
        if failing == "progress" and len(given) > 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(Kernel, "add", add)
    with pytest.raises(KeyboardInterrupt if failing == "progress" else RuntimeError):
        sum_parts(Kernel(SCHEMA, BLOCKS), endless(), progress)
    assert closed == [True]
    assert own_threads() == 0


def test_progress_is_reported_by_the_first_thread_alone(threads, monkeypatch):
    threads(4)
    monkeypatch.setattr(sources, "BATCH_ROWS", 1)
    calls = []

    def say(_, done, total):
        calls.append((threading.current_thread() is FIRST, done, total))

    exact_sums(open_source(pa.Table.from_batches([BATCH] * 40), SCHEMA), SCHEMA, BLOCKS, say)
    assert calls == [(True, percent, 100) for percent in range(101)]
