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
COLUMNS = [
    dps.Category("c", ["a", "b"], allow_missing=True),
    dps.Boolean("b"),
    dps.Number("x", 0, 4, points=9, edges=[1, 3], missing=2),
    dps.Number("y", -1, 1, points=5, missing=0),
]
SCHEMA = dps.Schema(COLUMNS)
N = 501


@pytest.fixture
def plan(asking):
    blocks = [
        dps.Cells.table(SCHEMA, ["c", "x"]),
        dps.Cells.condition(SCHEMA, "b and x < 1"),
        dps.Moments.of(SCHEMA, ["x", "y"], ["c"]),
    ]
    return dps.plan(SCHEMA, {"all": asking(*blocks)}, budget=dps.PureDP(1))


@pytest.fixture
def simple_plan():
    analyses = {"m": dps.Marginals(["c", "x"]), "p": dps.Proportion("b and x < 1")}
    return dps.plan(SCHEMA, analyses, budget=dps.PureDP(1))


def share_of_b(**options):
    return dps.plan(SCHEMA, {"p": dps.Proportion("b")}, **{"budget": dps.PureDP(1), **options})


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "c": rng.choice(["a", "b", SENTINEL], N),
            "b": rng.random(N) < 0.3,
            "x": rng.uniform(-1, 5, N),
            "y": rng.normal(size=N),
        }
    )
    frame.loc[::7, "y"] = math.nan
    frame.loc[::11, "c"] = None
    return frame


def test_p28_another_number_of_rows_than_declared(unread, tmp_path, frame):
    plan = share_of_b(n=N + 1)
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    stream = unread(("b", pa.bool_()))
    stream.height = N  # as polars tells its number of rows
    with pytest.raises(dps.DataError, match=f"n = {N + 1} rows and the table has {N}"):
        dps.measure(plan, stream, ledger=ledger)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet")
    for data in (frame, pl.from_pandas(frame), tmp_path / "t.parquet"):
        with pytest.raises(dps.DataError, match="rows"):
            dps.measure(plan, data, ledger=ledger)
    assert ledger.spent == 0


def test_p28_a_stream_that_hides_its_number_of_rows_spends_nothing(tmp_path, frame):
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (tmp_path / "t.csv", pa.Table.from_pandas(frame).to_reader()):
        with pytest.raises(dps.DataError, match="make the plan for that number"):
            dps.measure(share_of_b(n=N - 1), data, ledger=ledger)
    assert ledger.spent == 0
    dps.measure(share_of_b(unit="add_remove", n=10**6), frame)  # a private one is never compared


def without_rows(frame, folder):
    """The same table without rows on every kind of route; a text file ends after its header."""
    none = frame.head(0)
    none.to_csv(folder / "none.csv", index=False)
    (folder / "cut.csv").write_text(",".join(none))  # no end of line
    none.to_csv(folder / "none.csv.gz", index=False)
    none.to_parquet(folder / "none.parquet")
    made = pa.Table.from_pandas(none)
    return [none, made, made.to_reader(), *sorted(folder.glob("*.*"))]


def test_p29_no_rows_are_a_valid_release_where_n_is_private(frame, tmp_path):
    plan = share_of_b(unit="add_remove")
    for data in without_rows(frame, tmp_path):
        release = dps.release(plan, data, rng=0, m=50)
        assert len(release.to_frame()) == release.n >= 1
        low, high = release.infer("p").conf_int()
        assert 0 <= low <= high <= 1


def test_p29_no_rows_are_refused_where_n_is_public(simple_plan, frame, tmp_path):
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    for data in without_rows(frame, tmp_path):
        with pytest.raises(dps.DataError, match="no rows"):
            dps.measure(simple_plan, data, ledger=ledger)
    assert ledger.spent == 0


def test_p30_one_row(simple_plan, frame, exact):
    one = frame.iloc[[3]]
    assert exact(simple_plan, one)[0][0] in (0, 1)
    release = dps.release(simple_plan, one, m=200, rng=1)
    assert release.n == release.k == len(release.to_frame()) == 1
    low, high = release.infer("p").conf_int()
    assert 0 <= low <= high <= 1


def test_p31_p48_reordered_rows_and_index(plan, frame, exact):
    sums = exact(plan, frame)
    mixed = frame.sample(frac=1, random_state=2)  # keeps its old index, in disorder
    same_index = frame.set_axis([0] * N)
    other_index = frame.set_index(pd.Index([SENTINEL] * N, name="b2"))
    columns = frame[["y", "x", "b", "c"]]
    for other in (mixed, same_index, other_index, columns, mixed.reset_index(drop=True)):
        assert exact(plan, other) == sums
    doubled = pd.concat([frame, frame])
    assert exact(plan, doubled) == [[2 * value for value in block] for block in sums]


def test_p32_extra_columns(simple_plan, frame, exact, tmp_path):
    wide = frame.copy()
    wide[f"{SENTINEL}-name"] = SENTINEL
    wide[4711] = [[object()]] * N
    wide["nested"] = [{"a": [i]} for i in range(N)]
    wide["when"] = pd.Timestamp("2020", tz="UTC")
    assert exact(simple_plan, wide) == exact(simple_plan, frame)
    release = dps.release(simple_plan, wide, m=200, rng=1)
    release.save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        text = "".join(archive.read(name).decode() for name in archive.namelist())
    assert SENTINEL not in text + str(release) + repr(release)
    assert "nested" not in text
    assert list(release.to_frame()) == ["c", "b", "x"]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for name in ("extra", "extra"):  # columns that are not asked for may even share a name
        table = table.append_column(name, pa.array([[1]] * N))
    assert exact(simple_plan, table) == exact(simple_plan, frame)


def test_p34_unusual_arrays_are_exact(plan, frame, exact):
    whole = frame.assign(x=np.arange(N) % 5, y=np.arange(N) % 3 - 1)
    sums = exact(plan, whole)
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
        assert exact(plan, whole.assign(**changed)) == sums, name
    masked = np.ma.array(frame["y"].fillna(999), mask=frame["y"].isna())
    assert exact(plan, frame.assign(y=masked)) == exact(plan, frame)


def test_p35_a_categorical_with_its_own_categories(plan, frame, exact):
    sums = exact(plan, frame)
    categories = ["zz", "b", SENTINEL, "a", "unused"]
    for ordered in (False, True):
        own = pd.Categorical(frame["c"], categories=categories, ordered=ordered)
        assert exact(plan, frame.assign(c=own)) == sums
    enum = pl.from_pandas(frame).with_columns(pl.col("c").cast(pl.Enum(["b", SENTINEL, "a"])))
    assert exact(plan, enum) == sums
    release = dps.measure(plan, enum)
    assert not any(SENTINEL in text for text in release.to_members().values())


def test_p36_the_rows_are_read_in_one_pass(simple_plan, frame, exact):
    """Nothing is left in a stream after it, and no copy was kept."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    reader = table.to_reader()
    assert exact(simple_plan, reader) == exact(simple_plan, table)
    with pytest.raises(dps.DataError):
        dps.measure(simple_plan, reader)


def test_p37_rows_times_the_largest_code_above_the_limit(unread, asking, monkeypatch, tmp_path):
    schema = dps.Schema([dps.Number("x", 0, 1, points=2**20 + 1, missing=0)])
    block = dps.Moments.of(schema, ["x"])
    plan = dps.plan(schema, {"m": asking(block)}, budget=dps.PureDP(1))
    assert kernel.SAFE_TOTAL == 2**62
    stream = unread(("x", pa.float64()))
    stream.height = 2**62 // (2**19) ** 2  # rows times K squared is 2^62
    with pytest.raises(dps.DataError, match="could overflow exact sums; declare fewer points"):
        dps.measure(plan, stream)
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    monkeypatch.setattr(kernel, "SAFE_TOTAL", 10 * (2**19) ** 2)
    table = pa.table({"x": np.ones(11)})
    for data in (table, table.to_reader()):  # the second only shows it while it is read
        with pytest.raises(dps.DataError, match="could overflow"):
            dps.measure(plan, data, ledger=ledger)
    assert ledger.spent == 0
    dps.measure(plan, table.slice(0, 9), ledger=ledger)


def test_p38_dictionaries_statistics_and_metadata_of_parquet(simple_plan, frame, tmp_path):
    secret = frame.assign(c=frame["c"].where(frame["c"].notna(), "zz-rare"))
    table = pa.Table.from_pandas(secret, preserve_index=False)
    table = table.replace_schema_metadata({b"note": SENTINEL.encode(), b"author": b"zz-author"})
    own = pa.array([f"zz-unused-{SENTINEL}", "a", "b", SENTINEL, "zz-rare"])
    indices = pa.array([own.to_pylist().index(cell) for cell in secret["c"]], pa.int32())
    coded = table.set_column(0, "c", pa.DictionaryArray.from_arrays(indices, own))
    for name, data in (("plain", table), ("coded", coded)):
        path = tmp_path / f"zz-{name}.parquet"
        pq.write_table(data, path, write_statistics=True, use_dictionary=True)
        release = dps.release(simple_plan, path, m=200, rng=1)
        texts = [*release.measurements.to_members().values(), str(release), repr(release)]
        release.save(tmp_path / "r.zip", overwrite=True)
        loaded = dps.load(tmp_path / "r.zip")
        texts += [loaded.to_frame().to_csv(), str(vars(loaded))]
        for text in texts:
            assert SENTINEL not in text
            assert "zz-" not in text


@pytest.mark.parametrize("damage", ["cut", "pages", "text"])
def test_p39_corrupt_parquet(damage, simple_plan, frame, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, compression="snappy")
    content = bytearray(path.read_bytes())
    match damage:
        case "cut":
            content = content[: len(content) // 2]
        case "pages":
            content[4:-2000] = bytes(255 - byte for byte in content[4:-2000])
        case "text":
            content = bytearray(SENTINEL.encode() * 100)
    path.write_bytes(content)
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1))
    with pytest.raises(dps.DataError) as caught:
        dps.measure(simple_plan, path, ledger=ledger)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert SENTINEL not in str(error)
    assert ledger.spent == 0


def test_p39_a_row_group_that_ends_early_is_not_left_out(frame, tmp_path):
    """The reader skips a page of unknown type, and would give the rows of the other group alone."""
    path = tmp_path / "t.parquet"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, path, row_group_size=-(-len(frame) // 2), use_dictionary=False)
    asked, budget = {"m": dps.Marginals(["c", "x"])}, dps.PureDP(1)
    plan = dps.plan(SCHEMA, asked, budget=budget, unit="add_remove")
    dps.measure(plan, path)
    content = bytearray(path.read_bytes())
    assert content[4:6] == b"\x15\x00"  # the first page begins with its type, a data page
    content[5] = 0x40
    path.write_bytes(content)
    with pytest.raises(dps.DataError, match="another number of rows than the file states"):
        dps.measure(plan, path)
