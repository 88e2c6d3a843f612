"""Dask data frames: cells as in pandas, needed columns alone, clean ends, persons in order."""

import datetime
import itertools
import os
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import DataError
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.private.kernel import Kernel
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Boolean, Category, Number, Schema

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")

SCHEMA = Schema([Boolean("flag", missing=True), Number("x", 0, 10, points=11, missing=5)])
BLOCKS = [Cells.table(SCHEMA, ["flag"]), Moments.of(SCHEMA, ["x"])]
FRAME = pd.DataFrame({"flag": [True, False, True] * 20, "x": np.arange(60.0) % 12, "key": 31.7})


def sums_of(data, schema=SCHEMA, blocks=BLOCKS):
    sums, rows = exact_sums(open_source(data, schema), schema, blocks)
    return [block.tolist() for block in sums], rows


def test_every_scheduler_and_number_of_partitions():
    for scheduler in ["synchronous", "threads"]:
        with dask.config.set(scheduler=scheduler):
            for partitions in (1, 2, 40):
                assert sums_of(dd.from_pandas(FRAME, npartitions=partitions)) == sums_of(FRAME)


CELLS = [
    "yes", "Yes", "yes ", "e\u0301", "\u00e9", "", "NA", "nan", "true", "1", "01", "1.0", b"yes",
    True, np.bool_(False), 1, 1.0, 2.5, np.float32(0.1), np.int8(1), -0.0, 2**60, 10**30,
    np.inf, Decimal("2.5"), datetime.date(2024, 5, 1),
    datetime.datetime(2024, 5, 1, 9, 30), pd.Timestamp("2024-05-01"), None, np.nan, pd.NA, pd.NaT,
]  # fmt: skip
MEANINGS = [
    lambda name: Category(
        name, ["yes", "\u00e9", "1", "2.5", "0.1"], allow_missing=True, other="yes"
    ),
    lambda name: Category(name, [1, 2.5, 0.1], allow_missing=True, other=1),
    lambda name: Category(name, ["2024-05-01", "no"], allow_missing=True, other="no"),
    lambda name: Boolean(name, allow_missing=True),
    lambda name: Number(name, -1, 3, points=41, allow_missing=True, edges=[0.05, 0.2, 2]),
    lambda name: Number(name, "2024-01-01", "2024-12-31", allow_missing=True, edges=["2024-05-01"]),
]


def test_cells_of_objects_mean_what_they_do_in_pandas():
    """Dask makes text of them by itself, unless it is set not to."""
    for to_strings in [True, False]:
        for column in MEANINGS:
            schema = Schema([column(f"cell {i}") for i in range(len(CELLS))])
            blocks = [Cells.table(schema, [name]) for name in schema.names]
            cells = zip(schema.names, CELLS, strict=True)
            frame = pd.DataFrame(
                {name: pd.Series([cell, "no", None], dtype=object) for name, cell in cells}
            )
            with dask.config.set({"dataframe.convert-string": to_strings}):
                data = dd.from_pandas(frame, npartitions=2, sort=False)
                assert sums_of(data, schema, blocks) == sums_of(frame, schema, blocks)


def test_only_needed_columns_are_read(tmp_path):
    table = pa.table({"flag": [True, False] * 50, "x": [1.0] * 100, "ignored": ["a"] * 100})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, compression="gzip", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    stored = bytearray(path.read_bytes())
    start = column.data_page_offset
    stored[start : start + column.total_compressed_size] = b"\x07" * column.total_compressed_size
    path.write_bytes(bytes(stored))
    frame = dd.read_parquet(path)
    with pytest.raises(Exception):  # noqa: B017, PT011
        frame.compute()
    assert sums_of(frame) == ([[50, 50], sums_of(table)[0][1]], 100)


def test_names_are_checked_before_a_partition_is_read():
    def never(_):
        raise AssertionError

    made = dd.from_map(never, [0], meta=FRAME[["flag"]].iloc[:0])
    with pytest.raises(DataError, match="x"):
        open_source(made, SCHEMA)
    twice = FRAME[["flag", "x", "x"]]
    with pytest.raises(DataError, match="more than one column named"):
        open_source(dd.from_map(never, [0], meta=twice.iloc[:0]), SCHEMA)


def failing(partition):
    raise ValueError(f"secret {partition['key'].iloc[0]}")


def unlike(partition):
    return partition.drop(columns="x")


def refused(data, plan):
    """The text of the refusal, its chain and traceback with all local variables."""
    with pytest.raises(DataError) as caught:
        dps.measure(plan, data, progress=False)
    trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    inside = [frame for frame in trace.stack if "/dpstats/" in frame.filename]
    assert inside
    held = " ".join(str(frame.locals) for frame in inside)
    return "".join(traceback.format_exception(caught.value)), held


@pytest.fixture(scope="module")
def plan():
    asked = {"flag": dps.Proportion("flag"), "x": dps.Mean("x")}
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(1), unit="add_remove")


def test_a_failure_holds_no_cell(plan, tmp_path, monkeypatch):
    frame = dd.from_pandas(FRAME, npartitions=3)
    path = tmp_path / "rows.csv"
    path.write_text("flag,x\n" + "true,1\n" * 3000 + "true,secret 31.7\n")
    text = dd.read_csv(path, blocksize=8_000, sample=1_000)
    assert text.npartitions > 1
    for data in (frame.map_partitions(failing, meta=frame._meta), text,
                 frame.map_partitions(unlike, meta=frame._meta)):  # fmt: skip
        said, held = refused(data, plan)
        assert "reading the rows failed (" in said
        assert "nothing was released or spent" in said
        assert "31.7" not in said + held
        assert "secret" not in said + held

    def broken(*_):
        raise ValueError("secret 31.7")

    monkeypatch.setattr(Kernel, "add", broken)
    said, held = refused(frame, plan)
    assert "reading the rows failed (ValueError)" in said
    assert "31.7" not in said + held


def test_a_task_of_this_package_never_fails(monkeypatch):
    """What Dask logs of one that does can hold its arguments."""
    from dpstats.private.engines.dask import sums_of_partition

    kernel = Kernel(SCHEMA, BLOCKS)
    for partition in (FRAME.drop(columns="x"), FRAME["x"], None):
        assert sums_of_partition(kernel, partition).refused.startswith("reading the rows failed (")


def stopped(partition):
    os.kill(os.getpid(), signal.SIGINT)
    return partition


def test_an_interrupt_spends_nothing(plan, tmp_path):
    book = dps.Ledger.create(tmp_path / "a.ledger", dps.PureDP(1), unit="add_remove")
    frame = dd.from_pandas(FRAME, npartitions=1)  # a second interrupt would hit a later test
    slow = frame.map_partitions(stopped, meta=frame._meta)
    # A pool that ends here: a thread that is interrupted as it starts is otherwise never ended.
    with (
        ThreadPoolExecutor(1) as pool,
        dask.config.set(pool=pool),
        pytest.raises(KeyboardInterrupt) as caught,
    ):
        dps.measure(plan, slow, ledger=book)
    assert caught.value.__context__ is None
    assert dps.Ledger.open(tmp_path / "a.ledger").spent == 0


def test_measure_and_check_are_those_of_pandas(plan, no_noise):
    frame = dd.from_pandas(FRAME, npartitions=3)
    assert (dps.measure(plan, frame).noisy_sums == dps.measure(plan, FRAME).noisy_sums).all()
    assert repr(dps.check(plan, frame)) == repr(dps.check(plan, FRAME))


def test_rows_of_persons_are_the_first_in_the_order_of_partitions(no_noise):
    schema = Schema([Category("word", ["a", "b", "c"]), Number("x", 0, 40, missing=0)])
    plan = dps.plan(schema, {"x": dps.Mean("x"), "word": dps.Proportion("word == 'b'")},
                    budget=dps.PureDP(1), unit="add_remove", person="id",
                    rows_per_person=2)  # fmt: skip
    keys = ["ann", None, 7, "bob", "7", "ann", "ann", b"bob", "Ann", "bob", np.nan, ""] * 3
    rows = pd.DataFrame({"id": pd.Series(keys, dtype=object), "word": ["a", "b", "c"] * 12,
                         "x": np.arange(36)})  # fmt: skip
    expected = dps.measure(plan, rows).noisy_sums
    assert not (expected == dps.measure(plan, rows[::-1]).noisy_sums).all()
    for partitions in (1, 4, 36):
        data = dd.from_pandas(rows, npartitions=partitions, sort=False)
        assert (dps.measure(plan, data).noisy_sums == expected).all()


def late(partition):
    raise TimeoutError(f"secret {partition['key'].iloc[0]}")


@pytest.mark.filterwarnings("ignore")  # of the cluster, which is closed
def test_a_cluster_without_workers_is_refused_in_time(plan, monkeypatch):
    """Where Dask would wait for workers without end."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("dpstats.private.engines.dask._LOOK", 0.05)
    frame = dd.from_pandas(FRAME, npartitions=3)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as held,
        distributed.Client(held) as client,
    ):
        assert sums_of(frame) == sums_of(FRAME)
        inside = client.submit(lambda: sums_of(dd.from_pandas(FRAME, npartitions=2)))
        assert inside.result() == sums_of(FRAME)
        said, seen = refused(frame.map_partitions(late, meta=frame._meta), plan)
        assert "reading the rows failed (TimeoutError)" in said
        assert "31.7" not in said + seen
        held.scale(0)
        with dask.config.set({"distributed.scheduler.no-workers-timeout": "50ms"}):
            said, _ = refused(frame, plan)
        assert "has had no workers for 50ms: start some" in said
        future = client.submit(int)
        monkeypatch.setattr(client, "compute", lambda task: future)
        future.cancel()
        said, _ = refused(frame, plan)
        assert "the Dask cluster is gone, or was closed; nothing was released or spent" in said


@pytest.fixture
def cluster():
    """Two processes, each replaced when it dies."""
    distributed = pytest.importorskip(
        "distributed", reason="a cluster of Dask is not tested: pip install distributed"
    )
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",  # in less time
        # A worker that is being started again so long after a death is closed for good.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as held,
        distributed.Client(held) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, which loses its workers
@pytest.mark.parametrize("dies", [True, False])
def test_tasks_that_end_early_are_counted_once(loop, drawn, cluster, tmp_path, dies):
    """In each of 50 drawn partitionings a worker dies, or a task fails, after rows were made."""
    graves = map(str, (tmp_path / str(i) for i in itertools.count()))

    def made(piece, grave):
        from pathlib import Path

        if grave and not Path(grave).exists():
            Path(grave).touch()
            if not dies:
                raise OSError
            os._exit(9)
        return piece

    @settings(drawn.settings, max_examples=50, database=None)
    @given(drawn.cases(loop.blocks, ["Dask"]), st.integers(0, 5))
    def run(case, ending):
        def table(pieces):
            frames = [piece.to_pandas() for piece in pieces]
            places = ["" if i != ending % len(frames) else next(graves) for i in range(len(frames))]
            tasks = [
                dask.delayed(made, traverse=False)(frame, place)
                for frame, place in zip(frames, places, strict=True)
            ]
            return dd.from_delayed(tasks, meta=frames[0].iloc[:0], verify_meta=False)

        with dask.annotate(retries=3):
            drawn.check(loop, case, {"Dask": table})

    run()
    assert len(list(tmp_path.iterdir())) >= 50


def dying(partition):
    os._exit(9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_task_at_which_every_worker_dies_is_given_up(plan, cluster):
    frame = dd.from_pandas(FRAME, npartitions=2)
    said, _ = refused(frame.map_partitions(dying, meta=frame._meta), plan)
    assert "several workers died at the same task: they may need more memory" in said
    assert sums_of(frame) == sums_of(FRAME)
