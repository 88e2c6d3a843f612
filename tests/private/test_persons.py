"""At most k rows of a person: the same rows on every route, in any chunks, and by no other's."""

import datetime
import decimal
import gc
import itertools
import logging
import uuid
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.persons import PersonShares
from dpstats.privacy import noise
from dpstats.private import delimited, sources
from dpstats.private import measure as measuring
from dpstats.private.keys import codes_of_keys, key_of
from dpstats.private.persons import PersonTotals, used_rows
from dpstats.private.tables import open_source

SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b", "z"]), dps.Number("x", 0, 100, points=101, missing=0),
])  # fmt: skip
BLOCKS = [dps.Cells.table(SCHEMA, ["c"]), dps.Moments.of(SCHEMA, ["x"])]
TOTALS = [
    block
    for analysis in (dps.Mean("x", given="c != 'z'"), dps.Proportion("c == 'a'"),
                     dps.MeanDifference("x", by="c", groups=("z", "a")), dps.OLS("x ~ C(c)"))
    for block in analysis.person_totals(SCHEMA)
]  # fmt: skip


@pytest.fixture(scope="module")
def found(sums_of):
    """Sums of the first k rows of each person, products of their totals, and the rows."""

    def found(data, k):
        totals = PersonTotals(SCHEMA, TOTALS)
        sums, n = sums_of(data, SCHEMA, BLOCKS, "id", k, totals=totals)
        return [*sums, *(one.tolist() for one in totals.taken())], n

    return found


@pytest.fixture(scope="module")
def usual(sums_of):
    """A table, some keys missing, and by a loop the sums over the first two rows of each person."""
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 20, 100).astype(object)
    keys[rng.random(100) < 0.1] = None
    table = {"id": keys.tolist(), "c": rng.choice(["a", "b", "z"], 100).tolist(),
             "x": rng.integers(0, 101, 100).tolist()}  # fmt: skip
    before = [table["id"][:row].count(key) for row, key in enumerate(table["id"])]
    used = [row for row in range(100) if table["id"][row] is not None and before[row] < 2]
    frame = pd.DataFrame(table).iloc[used]
    wanted, n = sums_of(frame[["c", "x"]], SCHEMA, BLOCKS)
    codes = {"x": 2 * frame["x"].to_numpy(int) - 100, "c": frame["c"].map("abz".index).to_numpy()}
    rougher = codes | {"x": codes["x"] // 2}  # the grid of x has half the steps in products
    for block in TOTALS:
        rows = block.of_rows(rougher if SCHEMA["x"] in block.columns else codes)
        totals = [rows[:, frame["id"] == person].sum(axis=1) for person in set(frame["id"])]
        wanted.append(sum(np.outer(one, one)[block.pairs] for one in totals).tolist())
    return table, (wanted, n)


def test_every_route_uses_the_first_rows(adapter, on_route, found, usual, monkeypatch):
    """A text file has a row longer than a block, for which the reader starts anew."""
    if adapter.startswith("ibis"):
        pytest.skip("its rows have no order: see test_ibis.py")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(sources, "BATCH_ROWS", 7)
    monkeypatch.setattr(delimited, "CSV_BLOCK", 200)
    table, wanted = usual
    table = table | {"x": [*table["x"]]}
    if adapter.startswith("csv"):
        table["x"][83] = "n/a" * 300  # of a row that is not used
    assert found(on_route(adapter, table), 2) == wanted


def test_keys_of_any_type_tell_persons_apart(found, usual, monkeypatch):
    monkeypatch.setattr(sources, "BATCH_ROWS", 7)
    table, wanted = usual
    rows = pa.table(table)
    keys = rows["id"]
    texts = keys.cast(pa.string())
    for other in (texts.cast(pa.string_view()), texts.dictionary_encode(), keys.dictionary_encode(),
                  keys.cast(pa.float64()), keys.cast(pa.decimal128(30, 3)),
                  keys.cast(pa.int32()).cast(pa.date32())):  # fmt: skip
        assert found(rows.set_column(0, "id", other), 2) == wanted, other.type
    mixed = [key and (str(key) if key % 3 else float(key)) for key in table["id"]]
    frame = rows.to_pandas().assign(id=pd.Series(mixed, dtype=object))
    assert found(frame, 2) == wanted


def test_a_column_or_a_key_that_cannot_be_decoded_is_of_rows_without_one(found):
    both = pa.array([b"0" * 16, b"1" * 16], pa.binary(16))
    for keys, used in (
        (pa.array([[1], [2]]), 0), (pa.array([{"a": 1}, None]), 0), (pa.nulls(2), 0), (both, 2),
        (pa.ExtensionArray.from_storage(pa.uuid(), both), 2),
        (pa.array([1, 2], pa.duration("s")), 2),
    ):  # fmt: skip
        assert found(pa.table({"id": keys, "c": ["a", "b"], "x": [1, 2]}), 1)[1] == used
    for broken, keys in (  # of a dictionary: no UTF-8, no date of Python, a list, and null
        (2, pa.array([b"a", b"\xff", b""]).view(pa.string())),
        (2, pa.array([0, 2**62, None]).cast(pa.timestamp("ns")).view(pa.timestamp("s"))),
        (0, pa.array([[1], [2], None])),
    ):
        codes, known = codes_of_keys(pa.DictionaryArray.from_arrays([1, 0, None, 2, 1], keys))
        assert len(known) == broken
        assert codes[0] == codes[4]
        assert codes[2] == codes[3] == -1


def test_text_is_compared_exactly_and_numbers_by_value():
    same = [(1, 1.0), (1, "1"), (True, "true"), (2**60 + 1, str(2**60 + 1)), (1, Fraction(1)),
            (decimal.Decimal("1.50"), 1.5), (np.int8(3), 3), (np.float32(2), 2)]  # fmt: skip
    for one, other in same:
        assert key_of(one) == key_of(other) is not None
    different = ["a", "A", " a", "a ", "a\u0301", "\u00e1", "1", "01", "1.0", 2**60, 2**60 + 1, 1.5,
                 float(2**53), 2**53 + 1,
                 datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), uuid.UUID(int=1),
                 datetime.time(1), datetime.time(2), pd.Period("2024-02", "M"),
                 pd.Period("2024-03", "M"), uuid.UUID(int=2), b"\xff", "\ud800"]  # fmt: skip
    keys = [key_of(one) for one in different]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    for none in (None, "", b"", float("nan"), np.nan, float("inf"), pd.NA, pd.NaT, 1j, [1], (1, 2),
                 decimal.Decimal("1e999999999"), decimal.Decimal("NaN"), {}, object(),
                 np.datetime64("NaT"), np.timedelta64(1, "D")):  # fmt: skip
        assert key_of(none) is None


def test_all_tables_of_four_rows_differ_by_one_persons_rows_in_at_most_k():
    """Every arrangement of keys, missing ones too: without person p, others use the same rows."""

    def used(keys, k):
        columns = {"id": pa.array(keys, pa.string()), "row": range(len(keys))}
        (kept,) = used_rows([pa.RecordBatch.from_pydict(columns)], ["row"], "id", k)
        return kept.column("row").to_pylist()

    for k, *keys in itertools.product([1, 2], *[["p", "q", None]] * 4):
        whole = used(keys, k)
        for person in ("p", "q"):
            kept = [i for i, key in enumerate(keys) if key != person]
            without = [kept[i] for i in used([keys[i] for i in kept], k)]
            assert [i for i in whole if keys[i] != person] == without
            assert len(whole) - len(without) <= k
        assert not any(keys[i] is None for i in whole)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
@pytest.mark.parametrize("totals", [False, True])
def test_a_persons_rows_cost_at_most_the_budget_however_many_they_are(unit, totals):
    """Whole measurements on small tables: all rows of p come and go, or take all values."""
    asked = {"m": dps.Marginals(["c"], 1), "x": dps.Mean("x")}
    if totals:  # most of the budget is theirs
        asked = {"p": dps.Proportion("c == 'a'"), "x": dps.Mean("x"), "l": dps.OLS("x ~ C(c)")}
    pure, zcdp = (
        dps.plan(SCHEMA, asked, budget=kind(1), unit=unit, rows_per_person=2, person="id",
                 person_totals=totals) for kind in (dps.PureDP, dps.ZCDP)
    )  # fmt: skip
    assert [p.block for p in pure.blocks] == [p.block for p in zcdp.blocks]  # the same sums
    laplace, gaussian = (
        [Fraction(s) for own in plan.strategy.block_scales for s in own.tolist()]
        for plan in (pure, zcdp)
    )

    def sums(keys, cells):
        scales = []

        def no_noise(scale, size):
            scales.extend([Fraction(scale)] * size)
            return np.zeros(size, dtype=np.int64)

        frame = pd.DataFrame({"id": keys, "c": [c for c, _ in cells], "x": [x for _, x in cells]})
        with noise._noise_from(no_noise):
            found = dps.measure(pure, frame).noisy_sums
        assert sorted(scales) == sorted(laplace)  # one call for each scale of a block
        return found

    losses, values, others = [], [("a", 0), ("b", 100)], [("a", 30), ("z", 70)]
    for pattern in ("ppqpq", "p?pq"):
        keys, seen = [None if key == "?" else key for key in pattern], []
        for cells in itertools.product(values, repeat=keys.count("p")):
            mine, rest = iter(cells), itertools.cycle(others)
            seen.append(sums(keys, [next(mine) if key == "p" else next(rest) for key in keys]))
        pairs = itertools.combinations(seen, 2)
        if unit == "add_remove":
            left = [key for key in keys if key != "p"]
            pairs = itertools.product([sums(left, others[: len(left)])], seen)
        for one, other in pairs:
            moved = [Fraction(m) for m in np.abs(one - other).tolist()]
            of_laplace = sum(m / s for m, s in zip(moved, laplace, strict=True))
            of_gaussian = sum((m / s) ** 2 / 2 for m, s in zip(moved, gaussian, strict=True))
            losses.append((of_laplace, of_gaussian))
    for worst in map(max, zip(*losses, strict=True)):
        assert (0.4 if totals else 0.5) < worst <= 1


def plan_of(**options):
    options = {"budget": dps.PureDP(1), "person": "id", "rows_per_person": 2, **options}
    return dps.plan(SCHEMA, {"x": dps.Mean("x")}, **options)


def test_the_number_of_rows_that_are_used_is_the_public_one():
    frame = pd.DataFrame({"id": [1, 1, 1, 2, None], "c": list("aabba"), "x": [1, 2, 3, 4, 5]})
    for n in (3, None):
        assert dps.measure(plan_of(n=n), frame).n == 3
    used = "those that are used, the first 2 rows of each person, are 3"
    with pytest.raises(dps.DataError, match=f"n = 5 rows and {used}"):
        dps.measure(plan_of(n=5), frame)
    with pytest.raises(dps.DataError, match="no rows with a key in the column 'id'; nothing was"):
        dps.measure(plan_of(), frame.assign(id=None))
    assert dps.measure(plan_of(unit="add_remove"), frame.assign(id=None)).strategy.n is None
    said = " ".join(str(plan_of()).split())  # what is not protected
    assert "the exact number of rows that are used, the first 2 rows of each person" in said
    assert plan_of().digest != plan_of(person=None).digest


def test_the_column_of_keys_must_be_there_once_and_be_no_part_of_an_analysis(tmp_path):
    (tmp_path / "t.csv").write_text("c,x\na,1\n")
    for data, says in (
        (pd.DataFrame({"c": ["a"], "x": [1]}), "by the column 'id', which the table has not"),
        (tmp_path / "t.csv", r"header with the columns \['x', 'id'\]"),
        (pa.table([[1], [2], [3]], names=["id", "id", "x"]), "more than one column named"),
    ):
        with pytest.raises(dps.DataError, match=says):
            dps.measure(plan_of(), data)
    assert plan_of(person="c").person == "c"  # declared, and not asked for
    for wrong in ("x", "", " ", 3, ["id"], "a\rb"):
        says = "'x' tells persons apart, and an analysis uses it too" if wrong == "x" else None
        with pytest.raises(dps.RequestError, match=says):
            plan_of(person=wrong)


def test_keys_reach_nothing(tmp_path, caplog, frames_of):
    caplog.set_level(logging.DEBUG)
    keys = [f"Sentinel-{i % 40}" for i in range(200)]
    frame = pd.DataFrame({"id": keys, "c": ["a", "b"] * 100, "x": range(200)})
    plan = plan_of(budget=dps.PureDP(9), person_totals=True)
    release = dps.release(plan, frame, m=100, k=50, rng=0)
    release.save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        held = "".join(archive.read(name).decode() for name in archive.namelist())
    assert "Sentinel" not in held + str(release) + repr(release) + caplog.text
    bad = tmp_path / "bad.csv"
    bad.write_text("id,x\n" + "".join(f"{key},1\n" for key in keys) + "Sentinel-a,1,2,3\n")
    with pytest.raises(dps.DataError) as caught:
        dps.measure(plan, bad)
    library = frames_of(caught)
    assert "Sentinel" not in repr(library) + str(caught.value)
    held = [v for frame in library for v in frame.values() if type(v) is PersonTotals]
    assert {(len(one._totals), len(one._number)) for one in held} == {(0, 0)}
    assert caught.value.__context__ is None
    del frame, keys, caught, library, held
    gc.collect()
    assert not any(
        b"Sentinel-1" in one for one in gc.get_objects() if isinstance(one, dict) and len(one) == 40
    )


def test_an_engine_that_chooses_rows_by_itself_has_no_totals_of_persons(monkeypatch, tmp_path):
    """They would be zero: the rows do not come by here."""

    def by_itself(data, *options):
        source = open_source(data, *options)
        return replace(source, limited=lambda most, design: source)

    monkeypatch.setattr(measuring, "open_source", by_itself)
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(2), person="id")
    frame = pd.DataFrame({"id": [1, 2], "c": ["a", "b"], "x": [3, 4]})
    plan = plan_of(budget=dps.PureDP(1), person_totals=True)
    with pytest.raises(dps.DataError, match="person_totals; nothing was released or spent"):
        dps.measure(plan, frame, ledger=ledger)
    assert ledger.spent == 0
    dps.measure(plan_of(budget=dps.PureDP(1)), frame, ledger=ledger)


def test_a_check_is_of_the_rows_that_are_used():
    frame = pd.DataFrame({"id": ["p", "p", "p", None, "q"], "c": ["a", "?", "!", "!", "b"],
                          "x": [1, 2, 3, 4, 500]})  # fmt: skip
    plan = dps.plan(SCHEMA, {"m": dps.Marginals(["c"], 1), "x": dps.Mean("x")},
                    budget=dps.PureDP(1), person="id", rows_per_person=2)  # fmt: skip
    fit = dps.check(plan, frame)
    assert fit.rows == 3
    assert fit.to_frame()[["undeclared", "clamped"]].to_numpy().tolist() == [[1, 0], [0, 1]]
    assert "; 1 row without a key is not used" in " ".join(str(fit).split())
    without = dps.check(plan, frame.drop(columns="id").rename(columns={"c": "Id"}))
    assert without.absent == ("c", "id")
    with pytest.raises(dps.DataError, match="more than one column"):
        dps.check(plan, pd.concat([frame, frame[["id"]]], axis=1))


def test_totals_of_persons_are_in_no_frame_when_they_are_stopped(monkeypatch, frames_of):
    """An interrupt while products are summed: its traceback must not hold a person's totals."""

    def stop(block, totals):
        held = totals + 0  # as a sum would
        raise KeyboardInterrupt from ValueError(held.shape)

    monkeypatch.setattr(PersonShares, "of_totals", stop)
    rows = pd.DataFrame({"id": [1, 1, 2], "c": list("aba"), "x": [4, 5, 6]})
    with pytest.raises(KeyboardInterrupt) as stopped:
        dps.measure(plan_of(person_totals=True), rows)
    for frame in frames_of(stopped):
        assert not any(isinstance(v, np.ndarray) and v.ndim == 2 for v in frame.values())
        assert not any(getattr(value, "_totals", None) for value in frame.values())
