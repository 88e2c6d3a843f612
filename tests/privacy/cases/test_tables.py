"""Section C: tables. Wrong structure is refused, row order and route do not matter."""

import math
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.private import kernel

SENTINEL = "Sentinel-Quux"
SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b"], allow_missing=True), dps.Boolean("b"),
    dps.Number("x", 0, 4, points=9, edges=[1, 3], missing=2),
    dps.Number("y", -1, 1, points=5, missing=0),
])  # fmt: skip
N = 501
RNG = np.random.default_rng(5)
FRAME = pd.DataFrame({
    "c": RNG.choice(["a", "b", SENTINEL], N), "b": RNG.random(N) < 0.3,
    "x": RNG.uniform(-1, 5, N), "y": RNG.normal(size=N),
})  # fmt: skip
FRAME.loc[::7, "y"] = math.nan
FRAME.loc[::11, "c"] = None
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


def planned(unit="replace", n=None, **asked):
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(1), unit=unit, n=n)


SHARE, CELLS = dps.Proportion("b"), dps.Marginals(["c", "x"])
PLAN = planned(m=CELLS, p=dps.Proportion("b and x < 1"), y=dps.Mean("y"), o=dps.OLS("y ~ C(c) + x"))


@pytest.fixture
def refused(ledger):
    """A table is refused, with nothing spent, and its error holds no cell and no other error."""

    def check(plan, data, match):
        with pytest.raises(dps.DataError, match=match) as caught:
            dps.measure(plan, data, ledger=ledger)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert SENTINEL not in str(caught.value)
        assert ledger.spent == 0

    return check


def test_p28_another_number_of_rows_than_declared(unread, tmp_path, refused):
    stream = unread(("b", pa.bool_()))
    stream.height = N  # as polars tells its number of rows
    refused(planned(n=N + 1, p=SHARE), stream, f"n = {N + 1} rows and the table has {N}")
    pq.write_table(TABLE, tmp_path / "t.parquet")
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    for data in (FRAME, pl.from_pandas(FRAME), tmp_path / "t.parquet"):
        refused(planned(n=N + 1, p=SHARE), data, "rows")
    for data in (tmp_path / "t.csv", TABLE.to_reader()):  # which hide their number of rows
        refused(planned(n=N - 1, p=SHARE), data, "make the plan for that number")
    dps.measure(planned("add_remove", 10**6, p=SHARE), FRAME)  # a private one is never compared


@pytest.fixture
def without_rows(tmp_path):
    """A table without rows on every kind of route; a text file ends after its header."""
    none = FRAME.head(0)
    none.to_csv(tmp_path / "none.csv", index=False)
    (tmp_path / "cut.csv").write_text(",".join(none))  # no end of line
    none.to_csv(tmp_path / "none.csv.gz", index=False)
    none.to_parquet(tmp_path / "none.parquet")
    made = pa.Table.from_pandas(none)
    return [none, made, made.to_reader(), *sorted(tmp_path.glob("*.*"))]


def assert_valid(release):
    assert len(release.to_frame()) == release.n >= 1
    low, high = release.infer("p").conf_int()
    assert 0 <= low <= high <= 1


def test_p29_no_rows_are_a_valid_release_where_n_is_private(without_rows):
    for data in without_rows:
        assert_valid(dps.release(planned("add_remove", p=SHARE), data, rng=0, m=50))


def test_p29_no_rows_are_refused_where_n_is_public(without_rows, refused):
    for data in without_rows:
        refused(PLAN, data, "no rows")


def test_p30_one_row(exact):
    one = FRAME.iloc[[3]]
    assert exact(PLAN, one)[0][0] in (0, 1)
    release = dps.release(PLAN, one, m=200, rng=1)
    assert release.n == release.k == 1
    assert_valid(release)


def test_p31_p48_reordered_rows_and_index(exact):
    sums = exact(PLAN, FRAME)
    mixed = FRAME.sample(frac=1, random_state=2)  # keeps its old index, in disorder
    other_index = FRAME.set_index(pd.Index([SENTINEL] * N, name="b2"))
    columns = FRAME[["y", "x", "b", "c"]].set_axis([0] * N)
    for other in (mixed, mixed.reset_index(drop=True), other_index, columns):
        assert exact(PLAN, other) == sums
    doubled = pd.concat([FRAME, FRAME])
    assert exact(PLAN, doubled) == [[2 * value for value in block] for block in sums]


def texts_of(release, path):
    """All that is published or printed."""
    release.save(path, overwrite=True)
    loaded = dps.load(path)
    texts = [*release.measurements.to_members().values(), loaded.to_frame().to_csv()]
    with zipfile.ZipFile(path) as archive:
        texts += [archive.read(name).decode() for name in archive.namelist()]
    return "\n".join([*texts, str(release), repr(release), str(vars(loaded))])


def test_p32_extra_columns(exact, tmp_path):
    sums, wide = exact(PLAN, FRAME), FRAME.copy()
    wide[f"{SENTINEL}-name"] = SENTINEL
    wide[4711] = [[object()]] * N
    wide["nested"] = [{"a": [i]} for i in range(N)]
    wide["when"] = pd.Timestamp("2020", tz="UTC")
    assert exact(PLAN, wide) == sums
    release = dps.release(PLAN, wide, m=200, rng=1)
    text = texts_of(release, tmp_path / "r.zip")
    assert SENTINEL not in text
    assert "nested" not in text
    assert list(release.to_frame()) == ["c", "b", "x", "y"]
    table = TABLE
    for name in ("extra", "extra"):  # columns that are not asked for may even share a name
        table = table.append_column(name, pa.array([[1]] * N))
    assert exact(PLAN, table) == sums


def test_p34_unusual_arrays_are_exact(exact):
    whole = FRAME.assign(x=np.arange(N) % 5, y=np.arange(N) % 3 - 1)
    sums = exact(PLAN, whole)
    x, y = whole["x"].to_numpy(), whole["y"].to_numpy()
    spread = np.zeros((N, 7))
    spread[:, 3] = x
    variants = {
        "non-contiguous": {"x": spread[:, 3]},
        "big-endian": {"x": x.astype(">f8"), "y": y.astype(">i4")},
        "object": {"x": x.astype(object), "y": y.astype(object)},
        "nullable": {"x": pd.array(x, "Int64"), "y": pd.array(y, "Float32")},
        "category": {"x": pd.Categorical(x)},
    }
    for name, changed in variants.items():
        assert exact(PLAN, whole.assign(**changed)) == sums, name
    masked = np.ma.array(FRAME["y"].fillna(999), mask=FRAME["y"].isna())
    assert exact(PLAN, FRAME.assign(y=masked)) == exact(PLAN, FRAME)


def test_p35_a_categorical_with_its_own_categories(exact):
    sums = exact(PLAN, FRAME)
    categories = ["zz", "b", SENTINEL, "a", "unused"]
    for ordered in (False, True):
        own = pd.Categorical(FRAME["c"], categories=categories, ordered=ordered)
        assert exact(PLAN, FRAME.assign(c=own)) == sums
    enum = pl.from_pandas(FRAME).with_columns(pl.col("c").cast(pl.Enum(["b", SENTINEL, "a"])))
    assert exact(PLAN, enum) == sums
    assert SENTINEL not in str(dps.measure(PLAN, enum).to_members())


def test_p37_rows_times_the_largest_code_above_the_limit(
    unread, asking, monkeypatch, refused, ledger
):
    schema = dps.Schema([dps.Number("x", 0, 1, points=2**20 + 1, missing=0)])
    asked = {"m": asking(dps.Moments.of(schema, ["x"]))}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    assert kernel.SAFE_TOTAL == 2**62
    stream = unread(("x", pa.float64()))
    stream.height = 2**62 // (2**19) ** 2  # rows times K squared is 2^62
    refused(plan, stream, "could overflow exact sums; declare fewer points")
    monkeypatch.setattr(kernel, "SAFE_TOTAL", 10 * (2**19) ** 2)
    table = pa.table({"x": np.ones(11)})
    for data in (table, table.to_reader()):  # the second only shows it while it is read
        refused(plan, data, "could overflow")
    dps.measure(plan, table.slice(0, 9), ledger=ledger)


def test_p38_dictionaries_statistics_and_metadata_of_parquet(tmp_path):
    cells = FRAME["c"].fillna("zz-rare").tolist()
    own = [f"zz-unused-{SENTINEL}", "a", "b", SENTINEL, "zz-rare"]
    coded = pa.DictionaryArray.from_arrays(pa.array(map(own.index, cells), pa.int32()), own)
    for column in (pa.array(cells), coded):
        table = TABLE.set_column(0, "c", column)
        table = table.replace_schema_metadata({b"note": SENTINEL.encode(), b"by": b"zz-author"})
        path = tmp_path / "zz-rows.parquet"
        pq.write_table(table, path, write_statistics=True, use_dictionary=True)
        text = texts_of(dps.release(PLAN, path, m=200, rng=1), tmp_path / "r.zip")
        assert SENTINEL not in text
        assert "zz-" not in text


def test_p39_corrupt_parquet(tmp_path, refused):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, compression="snappy")
    content = path.read_bytes()
    pages = bytes(255 - byte for byte in content[4:-2000])
    for damaged in (
        content[: len(content) // 2],
        content[:4] + pages + content[-2000:],
        SENTINEL.encode() * 100,
    ):
        path.write_bytes(damaged)
        refused(PLAN, path, ".")


def test_p39_a_row_group_that_ends_early_is_not_left_out(tmp_path):
    """The reader skips a page of unknown type, and would give the rows of the other group alone."""
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=N // 2 + 1, use_dictionary=False)
    plan = planned("add_remove", m=CELLS)
    dps.measure(plan, path)
    content = bytearray(path.read_bytes())
    assert content[4:6] == b"\x15\x00"  # the first page begins with its type, a data page
    content[5] = 0x40
    path.write_bytes(content)
    with pytest.raises(dps.DataError, match="another number of rows than the file states"):
        dps.measure(plan, path)
