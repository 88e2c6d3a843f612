"""Dask data frames: cells as in pandas, needed columns alone, clean ends, persons in order."""

import itertools
import os
import re
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.private.kernel import Kernel

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
engine = pytest.importorskip("dpstats.private.engines.dask")

SCHEMA = dps.Schema([dps.Boolean("flag", missing=True),
                     dps.Number("x", 0, 10, points=11, missing=5)])  # fmt: skip
BLOCKS = [dps.Cells.table(SCHEMA, ["flag"]), dps.Moments.of(SCHEMA, ["x"])]
FRAME = pd.DataFrame({"flag": [True, False, True] * 20, "x": np.arange(60.0) % 12, "key": 31.7})


@pytest.fixture(scope="module")
def sums(sums_of):
    return lambda data: sums_of(data, SCHEMA, BLOCKS)


def test_every_scheduler_and_number_of_partitions(sums):
    for scheduler, partitions in (("synchronous", 2), ("threads", 1), ("threads", 20)):
        with dask.config.set(scheduler=scheduler):
            assert sums(dd.from_pandas(FRAME, npartitions=partitions)) == sums(FRAME)


def failing(partition, error=ValueError):
    raise error(f"secret {partition['key'].iloc[0]}")


@pytest.fixture(scope="module")
def plan():
    asked = {"flag": dps.Proportion("flag"), "x": dps.Mean("x")}
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(1), unit="add_remove")


@pytest.fixture
def check_refused(plan, frames_of):
    """A refusal names a kind of error alone; no cell is in its chain or in the variables."""

    def checked(data, kind=r"\w+"):
        with pytest.raises(dps.DataError) as caught:
            dps.measure(plan, data, progress=False)
        said = "".join(traceback.format_exception(caught.value))
        assert re.search(rf"reading the rows failed \({kind}\).*; nothing was released or", said)
        assert not re.search("31.7|secret", said + " ".join(map(str, frames_of(caught))))

    return checked


def test_a_failure_holds_no_cell(check_refused, tmp_path, monkeypatch):
    frame = dd.from_pandas(FRAME, npartitions=3)
    path = tmp_path / "rows.csv"
    path.write_text("flag,x\n" + "true,1\n" * 3000 + "true,secret 31.7\n")
    text = dd.read_csv(path, blocksize=8_000, sample=1_000)
    assert text.npartitions > 1
    check_refused(text)
    check_refused(frame.map_partitions(failing, meta=frame._meta))
    check_refused(frame.map_partitions(lambda one: one.drop(columns="x"), meta=frame._meta))

    def broken(*_):
        raise ValueError("secret 31.7")

    monkeypatch.setattr(Kernel, "add", broken)
    check_refused(frame, "ValueError")


def test_a_task_of_this_package_never_fails():
    """What Dask logs of one that does can hold its arguments."""
    kernel = Kernel(SCHEMA, BLOCKS)
    for partition in (FRAME.drop(columns="x"), FRAME["x"], None):
        refused = engine.sums_of_partition(kernel, partition).refused
        assert refused.startswith("reading the rows failed (")


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


@pytest.mark.filterwarnings("ignore")  # of the cluster, which is closed
def test_a_cluster_computes_and_what_it_says_of_rows_is_not_passed_on(sums, check_refused):
    distributed = pytest.importorskip("distributed")
    frame = dd.from_pandas(FRAME, npartitions=3)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with distributed.Client(**options, dashboard_address=None) as client:
        assert sums(frame) == sums(FRAME)
        inside = client.submit(lambda: sums(dd.from_pandas(FRAME, npartitions=2)))
        assert inside.result() == sums(FRAME)
        late = frame.map_partitions(failing, error=TimeoutError, meta=frame._meta)
        check_refused(late, "TimeoutError")


@pytest.fixture
def cluster():
    """Two processes, each replaced when it dies."""
    distributed = pytest.importorskip("distributed")
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


def made(piece, grave, dies):
    if grave and not Path(grave).exists():
        Path(grave).touch()
        if not dies:
            raise OSError
        os._exit(9)
    return piece


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, which loses its workers
@pytest.mark.parametrize("dies", [True, False])
def test_tasks_that_end_early_are_counted_once(loop, sums_of, cluster, tmp_path, dies):
    """In each of 50 partitionings a worker dies, or a task fails, after rows were made."""
    rows = loop.rows(60)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        table = rows.take(rng.choice(60, 12, replace=False))
        ends = [0, *np.sort(rng.integers(0, 13, 3)).tolist(), 12]
        frames = [table.to_pandas().iloc[a:b] for a, b in itertools.pairwise(ends)]
        ending = int(rng.integers(len(frames)))
        grave, task = str(tmp_path / str(seed)), dask.delayed(made, traverse=False)
        tasks = [task(frame, i == ending and grave, dies) for i, frame in enumerate(frames)]
        with dask.annotate(retries=3):
            data = dd.from_delayed(tasks, meta=frames[0].iloc[:0], verify_meta=False)
            assert sums_of(data, loop.schema, loop.blocks) == loop.of(table)
    assert len(list(tmp_path.iterdir())) == 50


def dying(partition):
    os._exit(9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_task_at_which_every_worker_dies_is_given_up(sums, check_refused, cluster):
    frame = dd.from_pandas(FRAME, npartitions=2)
    check_refused(frame.map_partitions(dying, meta=frame._meta), "KilledWorker")
    assert sums(frame) == sums(FRAME)
