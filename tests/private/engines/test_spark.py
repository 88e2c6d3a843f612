"""Spark in local mode: the same integers as a loop, whatever the partitions and whoever dies."""

import decimal
import itertools
import logging
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.contrasts import Contrasts
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums

pytest.importorskip("pyspark", reason="Spark is not tested: pip install 'dpstats[spark]'")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark is not tested: it needs Java 17 or newer", allow_module_level=True)

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from dpstats.private.engines import spark as engine

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
SECRET = "4711-of-nobody"


# The process that workers are forked from: they neither import nor look through anything again.
DAEMON = """
import gc
import pandas, pyspark.daemon
import dpstats.private.engines.spark
gc.freeze()
pyspark.daemon.manager()
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory, request):
    """Two cores, two tries of a task, and a virtual machine that compiles little."""
    folder = str(tmp_path_factory.mktemp("spark"))
    Path(folder, "daemon_of_tests.py").write_text(DAEMON)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder,
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if request.config.option.markexpr == "not slow":  # else workers start as those of users
        options["spark.python.daemon.module"] = "daemon_of_tests"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        handler = signal.getsignal(signal.SIGINT)
        session = SparkSession.builder.master("local[2,2]").config(map=options).getOrCreate()
        signal.signal(signal.SIGINT, handler)  # Spark's own cancels all jobs
        session.sparkContext.setLogLevel("OFF")
        # It logs objects that Python drops and connections that end, in whichever test that is.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        yield session
        session.stop()


def cut(session, table, ends):
    """A DataFrame of the slices between `ends`, a partition each, some of them empty."""
    slices = [table.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]

    def rows(batches):
        for number in [row for batch in batches for row in batch.column(0).to_pylist()]:
            yield from slices[number].to_batches(max_chunksize=7)

    numbers = session.range(0, len(slices), 1, len(slices))
    return numbers.mapInArrow(rows, from_arrow_schema(table.schema))


@pytest.fixture
def deaths(tmp_path, monkeypatch):
    """In the first partition the first try of each task ends after its sums are sent."""
    make = engine._on_workers

    def made(*work):
        task = make(*work)

        def run(batches):
            from pyspark import TaskContext

            yield from task(batches)
            if (TaskContext.get().partitionId(), TaskContext.get().attemptNumber()) == (0, 0):
                (tmp_path / f"death {os.getpid()}").touch()
                os._exit(9)

        return run

    return lambda: monkeypatch.setattr(engine, "_on_workers", made)


def test_partitions_and_dying_workers_change_no_integer(session, loop, sums_of, deaths, tmp_path):
    table = loop.rows(60)
    sums = partial(sums_of, schema=loop.schema, blocks=loop.blocks)
    mixed = table.take(np.random.default_rng(3).permutation(60))
    frame = cut(session, mixed, [0, 0, 31, 31, 60, 60])
    assert sums(frame) == loop.of(table)
    assert sums(frame.where("false")) == loop.of(table.slice(0, 0))
    frame.createOrReplaceTempView("survey")
    deaths()
    assert sums(session.table("survey").repartition(2)) == loop.of(table)
    assert len(list(tmp_path.iterdir())) == 2  # one that sums, and one that adds


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "die"), [(100, False), (25, True)])
def test_drawn_partitionings(session, loop, sums_of, deaths, tmp_path, runs, die):
    """Up to six parts; a worker dies at each of two tasks, which takes seconds, or none does."""
    rows = loop.rows(60)
    if die:
        deaths()
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        table = rows.take(rng.choice(60, 12, replace=False))
        inner = np.sort(rng.integers(0, 13, rng.integers(0, 6))).tolist()
        frame = cut(session, table, [0, *inner, 12])
        assert sums_of(frame, loop.schema, loop.blocks) == loop.of(table)
    assert len(list(tmp_path.iterdir())) >= runs * die


def test_a_survey_has_the_sums_of_its_rows(session, loop, sums_of):
    """Weights and units are read on the workers."""
    rng, n = np.random.default_rng(5), 60
    table = loop.rows(n).append_column("weight", pa.array(rng.lognormal(0, 1, n)))
    table = table.append_column("area", pa.array(rng.choice(["a", "b", "z", None], n).tolist()))
    table = table.append_column("school", pa.array(rng.integers(1, 9, n)))
    design = dps.Design("weight", mean=1.6, cap=4, strata="area", unit="school",
                        units={"a": [1, 2, 3, 4, 5], "b": [6, 7]})  # fmt: skip
    schema = replace(loop.schema, design=design)
    block = dps.Cells.table(schema, ["word", "flag"])
    blocks = [*loop.blocks, Contrasts(block, (2, 2), (1, 1))]
    frame = cut(session, table, [0, 0, 31, 60])
    found, of_units = (
        [sums_of(data, schema, blocks, **options) for data in (frame, table)]
        for options in ({}, {"person": "school", "most": 2, "design": design})
    )
    assert found[0] == found[1] != of_units[0] == of_units[1]
    plan = dps.plan(schema, {"p": dps.Proportion("flag")}, budget=dps.PureDP(1), person="school",
                    rows_per_person=2, unit="add_remove")  # fmt: skip
    with pytest.raises(dps.DataError, match="this plan uses all rows"):
        dps.measure(plan, frame, order="weight")


SMALL = dps.Schema([dps.Category("c", ["a", "b"]), dps.Number("x", 0, 4, points=5, missing=0)])
ASKED = {"c": dps.Proportion("c == 'b'"), "x": dps.Mean("x")}
ROWS = pa.table({"c": ["a", "b", "b", "a", "b"], "x": [0.0, 1.0, 2.0, 3.0, 4.0]})


def failing(session):
    """A DataFrame whose second partition cannot be computed, and the words of that failure."""

    def rows(batches):
        for batch in batches:
            if batch.column(0)[0].as_py() == 1:
                raise ValueError(SECRET)
            yield from ROWS.to_batches()

    return session.range(0, 2, 1, 2).mapInArrow(rows, from_arrow_schema(ROWS.schema))


def test_a_failing_partition_is_refused_without_words(session, frames_of, tmp_path, caplog, capfd):
    plan = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), n=5)
    ledger = dps.Ledger.create(tmp_path / "ledger", cap=dps.PureDP(1), unit="replace")
    text = session.createDataFrame(ROWS.append_column("text", pa.array([SECRET] * 5)))
    cast = text.selectExpr("c", "cast(text as int) as x")
    for bad in (failing(session), cast):
        with pytest.raises(dps.DataError, match=r"nothing was released or spent$") as caught:
            dps.measure(plan, bad, ledger=ledger)
        said = str(caught.value)
        assert "reading the rows failed (" in said
        assert ("PYSPARK_PYTHON" in said) == (bad is not cast)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert SECRET not in said + repr(frames_of(caught)) + caplog.text + str(capfd.readouterr())
    assert ledger.spent == 0
    dps.measure(plan, session.createDataFrame(ROWS), ledger=ledger)
    assert ledger.spent == 1


CELLS = [
    {}, {"c": None, "x": float("nan")}, {"c": SECRET * 10_000, "x": SECRET},
    {"c": "", "x": decimal.Decimal("1e30")},
]  # fmt: skip


def test_one_cell_changes_nothing_that_is_observed(session, observed):
    """Whatever it makes of the type of its column; noisy sums aside, from the same noise."""
    plan, every = dps.plan(SMALL, ASKED, budget=dps.PureDP(1)), []
    for changed in CELLS:
        cells = {"c": ["a", "b"] * 6, "x": [0.0, 3.5] * 6}
        for name, cell in changed.items():
            cells[name][7] = cell
            if isinstance(cell, str | decimal.Decimal):  # the others become what it is
                cells[name] = [one if one is None else type(cell)(one) for one in cells[name]]
        seen, _ = observed(plan, session.createDataFrame(pa.table(cells)).repartition(3))
        every.append(seen)
    assert all(seen == every[0] for seen in every)
    assert every[0]["logs"]


VISITS = pa.table({
    "id": pa.array([0.0, -0.0, 2.5, 2.5, 2.5, None, 7.0, float("nan"), 0.0, 2.5]),
    "visit": pa.array([2, 1, 3, 1, 1, 1, None, 1, 1, 2]),
    "c": pa.array(["a", "b", "b", None, "b", "a", "b", "a", "a", "A"]),
    "x": pa.array([0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0, 3.0, None]),
})  # fmt: skip


def test_the_first_rows_of_persons_follow_from_their_own_rows(session, sums_of):
    blocks = [dps.Cells.table(SMALL, ["c"]), dps.Moments.of(SMALL, ["x"], degree=2)]
    rng = np.random.default_rng(0)
    rows = [row for row in VISITS.to_pylist() if row["id"] in (0, 2.5, 7)]
    rows.sort(key=lambda row: [(row[n] is not None, row[n] or 0) for n in ("visit", "c", "x")])
    before = [[other["id"] for other in rows[:i]].count(row["id"]) for i, row in enumerate(rows)]
    for k in (1, 2):
        used = [row for row, earlier in zip(rows, before, strict=True) if earlier < k]
        wanted = pa.Table.from_pylist(used, VISITS.schema)
        frame = cut(session, VISITS.take(rng.permutation(10)), [0, 4, 4, 10])
        found = sums_of(frame, SMALL, blocks, "id", k, order="visit")
        assert found == sums_of(wanted, SMALL, blocks)
        plan = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), rows_per_person=k, person="id")
        assert dps.check(plan, frame, order="visit") == dps.check(plan, wanted)


def test_what_spark_cannot_say_is_refused_before_anything_runs(session):
    frame = session.createDataFrame(VISITS)
    persons = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), rows_per_person=2, person="id")
    totals = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), person="id", person_totals=True)
    plan = dps.plan(SMALL, ASKED, budget=dps.PureDP(1))
    twice = session.createDataFrame(ROWS).selectExpr("*", "c")
    stream = session.readStream.format("rate").load()
    for data, asked, options, words in [
        (frame, persons, {}, "has no order"),
        (frame, persons, {"order": "when"}, "must be the name of one column"),
        (frame.selectExpr("*", "map(1, 2) m"), persons, {"order": "m"}, "of numbers, text, dates"),
        (frame, totals, {"order": "visit"}, "adds up apart: .* leave out person_totals; nothing"),
        (frame, plan, {"order": "visit"}, "knows no persons"),
        (frame.drop("x"), plan, {}, "column"),
        (twice, plan, {}, "more than"),
        (stream, plan, {}, "a stream without an end"),
        (frame.selectExpr("c", "make_interval(1) as x"), plan, {}, "cannot leave Spark"),
        (VISITS, persons, {"order": "visit"}, "has an order of its own"),
    ]:
        with pytest.raises(dps.DataError, match=words):
            dps.measure(asked, data, **options)
    assert list(session.sparkContext.statusTracker().getActiveJobsIds()) == []


def test_an_interrupt_stops_the_job(session):
    driver = os.getpid()

    def slow(batches):
        import time

        os.kill(driver, signal.SIGINT)
        while True:
            time.sleep(1)
        yield from batches

    one = session.createDataFrame(ROWS).coalesce(1)  # a second interrupt would hit a later test
    frame = one.mapInArrow(slow, from_arrow_schema(ROWS.schema))
    with pytest.raises(KeyboardInterrupt, match="nothing was spent"):
        dps.measure(dps.plan(SMALL, ASKED, budget=dps.PureDP(1)), frame)
    tracker = session.sparkContext.statusTracker()
    tries = itertools.takewhile(lambda _: tracker.getActiveJobsIds(), range(600))
    assert sum(time.sleep(0.1) is None for _ in tries) < 600  # it hears of the end a little later


# Without a session


def kernel_of(levels):
    schema = dps.Schema([dps.Category(name, list(range(levels))) for name in "ab"])
    return Kernel(schema, [dps.Cells.table(schema, ["a", "b"])])


def test_sums_of_many_parts_reach_the_driver_in_as_many_rows_as_of_one():
    kernel, rng = kernel_of(40), np.random.default_rng(0)
    parts = [
        pa.RecordBatch.from_pydict({name: rng.integers(0, 40, n) for name in "ab"})
        for n in (0, 3, 500, 1, 0, 70)
    ]
    sent = [batch for part in parts for batch in engine.summed(kernel, iter, [part])]
    assert {len(batch.column("sums")[0]) for batch in sent} == {engine.PIECE, 1600 - engine.PIECE}
    added = list(engine.added(sent))
    assert len(added) == 2
    want, _ = PartialSums.of(kernel, [pa.concat_batches(parts)]).exact(kernel)
    for pieces in (added, list(engine.added([*added[::-1]]))):
        got, rows = engine._whole(engine._by_piece(pieces), kernel).exact(kernel)
        assert rows == 574
        np.testing.assert_array_equal(got[0], want[0])
    for pieces in (added[:1], [added[0], *sent[-1:]]):
        with pytest.raises(dps.DataError, match="incomplete"):
            engine._whole(engine._by_piece(pieces), kernel)


def test_a_worker_of_another_version_is_refused(monkeypatch):
    kernel = kernel_of(2)
    task = engine._on_workers(engine.summed, kernel, iter)
    rows = [pa.RecordBatch.from_pydict({"a": [0], "b": [1]})]
    assert engine._whole(engine._by_piece(task(rows)), kernel).rows == 1
    for has, change in (
        ("no dpstats", lambda patch: patch.setitem(sys.modules, "dpstats", None)),
        ("dpstats 0.0.9", lambda patch: patch.setattr(dps, "__version__", "0.0.9")),
        (f"another dpstats {dps.__version__}", lambda patch: patch.delattr(engine, "summed")),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            refused = engine._whole(engine._by_piece([*task(rows)]), kernel)
        with pytest.raises(dps.DataError, match=f"has {has} and the driver .*: install the same"):
            refused.exact(kernel)


@pytest.mark.slow
def test_the_page_runs(session, tmp_path, monkeypatch):
    monkeypatch.setattr(type(session), "stop", lambda self: None)
    page = (Path(__file__).parents[3] / "docs/how-to/engines/spark.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    scope = {}
    for block in blocks:
        here = block.replace('"visits.parquet"', repr(str(tmp_path / "visits.parquet")))
        exec(compile(here, "spark.md", "exec"), scope)
    assert scope["release"].n == 5_000
