"""Parquet in several files: folders, patterns and partitioned data sets are one table."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.private import parquet as module
from dpstats.private.tables import exact_sums, open_source

SCHEMA = dps.Schema([
    dps.Number("x", -3, 3, missing=0),
    dps.Category("town", ["é/a b", "01", "1"], allow_missing=True),
    dps.Category("year", [2025, 2026]),
])  # fmt: skip
BLOCKS = [dps.Cells.table(SCHEMA, ["town", "year"]), dps.Moments.of(SCHEMA, ["x"], ["town"])]


@pytest.fixture(scope="module")
def sums(sums_of):
    return lambda data: sums_of(data, SCHEMA, BLOCKS)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    return pd.DataFrame({
        "x": rng.normal(0, 2, 200).round(2),
        "town": rng.choice(np.array(["é/a b", "01", "1", None, "elsewhere"], dtype=object), 200),
        "year": rng.choice([2025, 2026], 200),
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path, rows):
    """Three files, one in a folder of its own, and what other programs leave beside them."""
    (tmp_path / "more").mkdir()
    places = ["a.parquet", "b.pq", "more/c.parquet"]
    for place, part in zip(places, np.array_split(np.arange(200), [30, 31]), strict=True):
        rows.iloc[part].to_parquet(tmp_path / place, row_group_size=50)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").write_text("x")
    return tmp_path


def test_a_folder_is_the_table_of_its_files(folder, rows, sums, monkeypatch):
    for path in (folder, str(folder) + "/", folder / "**" / "*.p*"):
        assert sums(path) == sums(rows)
    assert open_source(folder, SCHEMA).rows == 200
    assert sums(str(folder / "[ab].*")) == sums(rows.iloc[:31])
    for i in range(20):
        rows.iloc[:1].to_parquet(folder / f"{i}.parquet")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    open_files, usual = [], module._File._reader

    def counted(file):
        open_files.append(len(os.listdir("/proc/self/fd")))
        return usual(file)

    monkeypatch.setattr(module._File, "_reader", counted)
    assert sums(folder)[1] == 220
    assert max(open_files) - min(open_files) < 10  # few are open at a time


def test_names_of_folders_are_cells_of_text(tmp_path, rows, sums):
    pq.write_to_dataset(pa.Table.from_pandas(rows), tmp_path, partition_cols=["town", "year"])
    folders = {path.name.removeprefix("town=") for path in tmp_path.iterdir()}
    assert {"__HIVE_DEFAULT_PARTITION__", "01", "%C3%A9%2Fa%20b"} <= folders
    assert sums(tmp_path) == sums(rows)
    with pytest.raises(dps.DataError, match="no column 'town'"):  # nothing above the folder is read
        open_source(tmp_path / "town=1", SCHEMA)
    rows.to_parquet(tmp_path / "town=01" / "year=2025" / "0.parquet")
    with pytest.raises(dps.DataError, match=r"and their folders both have columns \['year'\]"):
        open_source(tmp_path / "town=01", SCHEMA)


def one_row(path, **columns):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({name: [cell] for name, cell in columns.items()}), path)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: (f / "notes.txt").write_text("secret"), "1 files that are not .parquet"),
        (lambda f: one_row(f / "d.parquet", x=1.0),
         "file 3 of 4 of .*, in the order of their names, has no column 'town', which"),
        (lambda f: (f / "b0.parquet").write_text("secret"),
         r"file 3 of 4 of .* cannot be opened \(ArrowInvalid\) and may be damaged"),
        (lambda f: one_row(f / "town=secret" / "d.parquet", x=1.0, year=2025),
         "name other columns: those of file 4 of 4 of .* are not those of the first"),
    ],
)  # fmt: skip
def test_folders_that_are_no_table_are_refused_without_a_value(folder, spoil, says):
    spoil(folder)
    with pytest.raises(dps.DataError, match=says) as refused:
        open_source(folder, SCHEMA)
    assert "secret" not in str(refused.value)


def test_nothing_to_read_is_said(tmp_path):
    for path, says in ((tmp_path, "in"), (tmp_path / "*.csv", r"that fits '\*\.csv'")):
        with pytest.raises(dps.DataError, match=rf"there is no \.parquet file {says}"):
            open_source(path, SCHEMA)
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(dps.DataError, match=r"files of .* is a \.parquet file; text files"):
        open_source(tmp_path / "*.csv", SCHEMA)


def test_a_file_that_changes_before_it_is_read_is_refused(folder, rows, sums):
    source = open_source(folder, SCHEMA)
    rows.iloc[:4].to_parquet(folder / "b.pq")
    with pytest.raises(dps.DataError, match=r"file 2 of 3 of .* has changed since .*; nothing"):
        exact_sums(source, SCHEMA, BLOCKS)
    path = folder / "more" / "c.parquet"  # whose pages cannot be read, and which is named
    stored = path.read_bytes()
    path.write_bytes(stored[:4] + b"\x07" * 200 + stored[204:])
    said = r"^reading the rows failed \(\w+\) in file 3 of 3 of .*; nothing was released or spent$"
    with pytest.raises(dps.DataError, match=said):
        sums(folder)
