"""Spark in local mode: the same integers as a loop, whatever the partitions and whoever dies."""

import decimal
import functools
import itertools
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.errors import DataError
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


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Two cores, two tries of a task, and a virtual machine that compiles little."""
    folder = str(tmp_path_factory.mktemp("spark"))
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        handler = signal.getsignal(signal.SIGINT)
        builder = SparkSession.builder.master("local[2,2]")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        signal.signal(signal.SIGINT, handler)  # Spark's own cancels all jobs
        session.sparkContext.setLogLevel("OFF")
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


def ends_of(rng, rows, parts):
    return [0, *sorted(rng.integers(0, rows + 1, parts - 1).tolist()), rows]


def dies_first(partition, graves):
    """What replaces the tasks: in one partition the first try ends after its sums are sent."""
    make = engine._on_workers

    def made(*work):
        task = make(*work)

        def run(batches):
            from pyspark import TaskContext

            yield from task(batches)
            context = TaskContext.get()
            if (context.partitionId(), context.attemptNumber()) == (partition, 0):
                (graves / str(os.getpid())).touch()
                os._exit(9)

        return run

    return made


def test_partitions_order_and_dying_workers_change_no_integer(
    session, loop, sums_of, tmp_path, monkeypatch
):
    table = loop.random_rows(60, 1)
    sums = functools.partial(sums_of, schema=loop.schema, blocks=loop.blocks)
    mixed = table.take(np.random.default_rng(3).permutation(60))
    frame = cut(session, mixed, [0, 0, 31, 31, 60, 60])
    assert sums(frame) == loop.of(table)
    assert sums(frame.where("false")) == loop.of(table.slice(0, 0))
    frame.createOrReplaceTempView("survey")
    monkeypatch.setattr(engine, "_on_workers", dies_first(0, tmp_path))
    assert sums(session.table("survey").repartition(2)) == loop.of(table)
    assert len(list(tmp_path.iterdir())) == 2  # one that sums, and one that adds


def test_a_survey_has_the_sums_of_its_rows(session, loop, sums_of):
    """Weights and units are read on the workers."""
    rng, n = np.random.default_rng(5), 60
    table = loop.random_rows(n, 1).append_column("weight", pa.array(rng.lognormal(0, 1, n)))
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
    with pytest.raises(DataError, match="this plan uses all rows"):
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


def test_a_partition_that_fails_is_refused_without_its_words_and_without_charge(
    session, frames_of, tmp_path, caplog, capfd
):
    plan = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), n=5)
    ledger = dps.Ledger.create(tmp_path / "ledger", cap=dps.PureDP(1), unit="replace")
    text = session.createDataFrame(ROWS.append_column("text", pa.array([SECRET] * 5)))
    cast = text.selectExpr("c", "cast(text as int) as x")
    for bad in (failing(session), cast):
        with pytest.raises(DataError, match=r"nothing was released or spent$") as caught:
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
    rows = [row for row in VISITS.to_pylist() if row["id"] is not None and row["id"] == row["id"]]
    rows.sort(key=lambda row: [(row[n] is not None, row[n] or 0) for n in ("visit", "c", "x")])
    before = [[other["id"] for other in rows[:i]].count(row["id"]) for i, row in enumerate(rows)]
    for k in (1, 2):
        used = [row for row, earlier in zip(rows, before, strict=True) if earlier < k]
        wanted = pa.Table.from_pylist(used, VISITS.schema)
        frame = cut(session, VISITS.take(rng.permutation(10)), ends_of(rng, 10, 3))
        found = sums_of(frame, SMALL, blocks, "id", k, order="visit")
        assert found == sums_of(wanted, SMALL, blocks)
        plan = dps.plan(SMALL, ASKED, budget=dps.PureDP(1), rows_per_person=k, person="id")
        assert dps.check(plan, frame, order="visit") == dps.check(plan, wanted)


def test_what_spark_cannot_say_is_refused_before_anything_runs(session, tmp_path):
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
        with pytest.raises(DataError, match=words):
            dps.measure(asked, data, **options)
    tracker = session.sparkContext.statusTracker()
    assert list(tracker.getActiveJobsIds()) == []


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
    for pieces in (added, list(engine.added([*added[::-1]]))):
        got, rows = engine._whole(engine._by_piece(pieces), kernel).exact(kernel)
        want = PartialSums.of(kernel, [pa.concat_batches(parts)]).exact(kernel)
        assert rows == 574 == want[1]
        np.testing.assert_array_equal(got[0], want[0][0])
    with pytest.raises(DataError, match="incomplete"):
        engine._whole(engine._by_piece(added[:1]), kernel)
    with pytest.raises(DataError, match="incomplete"):
        engine._whole(engine._by_piece([added[0], *sent[-1:]]), kernel)


@pytest.mark.parametrize(("found", "has"), [
    (None, "no dpstats"), ("0.0.9", "dpstats 0.0.9"),
    (dps.__version__, f"another dpstats {dps.__version__}"),
])  # fmt: skip
def test_a_worker_of_another_version_is_refused(found, has, monkeypatch):
    kernel = kernel_of(2)
    task = engine._on_workers(engine.summed, kernel, iter)
    rows = [pa.RecordBatch.from_pydict({"a": [0], "b": [1]})]
    assert engine._whole(engine._by_piece(task(rows)), kernel).rows == 1
    if found is None:
        monkeypatch.setitem(sys.modules, "dpstats", None)
    elif found == dps.__version__:
        monkeypatch.delattr(engine, "summed")
    else:
        monkeypatch.setattr(dps, "__version__", found)
    refused = engine._whole(engine._by_piece([*task(rows)]), kernel)
    with pytest.raises(DataError, match=f"has {has} and the driver .*: install the same on all"):
        refused.exact(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [0, 100])
def test_many_partitionings_and_a_hundred_dying_workers(session, loop, sums_of, tmp_path, deaths):
    """A worker dies after its sums are handed over."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        table, ends = loop.random_rows(12, seed), ends_of(rng, 12, rng.integers(1, 7))
        with pytest.MonkeyPatch.context() as patch:
            if deaths:
                dying = rng.integers(len(ends) - 1)
                patch.setattr(engine, "_on_workers", dies_first(dying, tmp_path))
            frame = cut(session, table, ends)
            assert sums_of(frame, loop.schema, loop.blocks) == loop.of(table)
    assert len(list(tmp_path.iterdir())) >= deaths


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
