"""Cells of delimited text mean what their text means, whatever the others are."""

import csv
import gzip
import io
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private import delimited
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import TextFile, arrow
from dpstats.schema.arrow import numbers_from_text

SCHEMA = dps.Schema([
    dps.Number("x", -2, 9, points=45, edges=[0.5, 5], allow_missing=True),
    dps.Number("y", values=[0, 1, 5], missing=1),
    dps.Category("word", ["no", "NA", "5"], allow_missing=True),
    dps.Category("grade", [1, 5], allow_missing=True),
    dps.Number("seen", "2024-01-01", "2024-12-31", edges=["2024-05-02"], allow_missing=True),
])  # fmt: skip
BLOCKS = [
    *(dps.Cells.table(SCHEMA, [name]) for name in SCHEMA.names),
    dps.Moments.of(SCHEMA, ["x", "y"]),
]
HEADER = '"x",y,word,grade,"seen"'
CELLS = [
    "5", "-0", "0.25", "1e0", ".5", "5.", "4.9999999999999999999", "1e-400", "-1e308",
    "", "NA", "nan", "NaN", "null", "NULL", "N/A", "+5", "++5", "+-5", "+nan", "+inf", " 5", "5 ",
    "\t5", "\u00a05", "5\n", "  ", "1e3", "1e", "e5", "0x10", "1_000", "1,5", "1.5.0", "inf",
    "-Infinity", "-nan", "nan(1)", "1e400", "-1e999999999999", "1e-999999999999", "true", "FALSE",
    "5f", "1d5", "5\0", "\u0665", "--5", "-", "+", ".", "word", "2024-05-02", '"5"', "5'",
]  # fmt: skip


@pytest.fixture
def outcome(sums_of):
    """The sums and the number of rows, or the sentence of a refusal."""

    def found(data):
        try:
            return sums_of(data, SCHEMA, BLOCKS)
        except dps.DataError as error:
            return str(error)

    return found


def test_every_cell_means_what_its_text_means(outcome, tmp_path):
    """In every column, among plain numbers and other cells."""
    path = tmp_path / "rows.csv"
    for i in range(-(-len(CELLS) // 2)):
        columns = {name: ["5", CELLS[i + j], CELLS[i + j - len(CELLS) // 2], "0"]
                   for j, name in zip((0, -3, -5, -7, -9), SCHEMA.names, strict=True)}  # fmt: skip
        pd.DataFrame(columns).to_csv(path, index=False, quoting=i % 2)  # where needed, everywhere
        assert outcome(path) == outcome(pa.table(columns)), columns


BAD = [
    b'"5,1,no,1,', b'5,1,no,1,\n"5\n5,1,no,1,', b"5,1,no", b"5,1,no,1,,9", b"5", b",,,,,,",
    b"5,1,no\xff,1,", b"\xff\xfe1\x005\x00", b"5,1,no,1,\n\n", b"\n\n5,1,no,1,", b"5,1,n\ro,1,",
    b'5"5,1,"no"x,1,', b"5,1,no,1,\x00",
    b'5,1,"' + b"long \n" * 20 + b'",1,',
]  # fmt: skip


def test_lines_of_any_kind_have_one_outcome(outcome, tmp_path, monkeypatch):
    """Whatever the blocks of the reader: quotes, lengths and bytes that are wrong, empty lines."""
    path, good = tmp_path / "rows.csv", b"5,1,no,1,\r\n" * 6
    for bad in BAD:
        found = []
        for content in (bad, good + bad, good + bad + b"\r\n" + good):
            path.write_bytes(HEADER.encode() + b"\r\n" + content)
            for size in (32, 2**20):
                monkeypatch.setattr(delimited, "CSV_BLOCK", size)
                found.append(outcome(path))
        assert found[::2] == found[1::2], bad
    path.write_bytes(HEADER.encode() + b"\r\n" + good)  # a quote ends a line, as Windows ends it
    assert outcome(path)[1] == 6


# Lines, and whether one would swallow others.
LINES = [
    (['"no'] + ["no"] * 50 + ['"no"'] + ["no"] * 9, True),
    (['no"x'] + ["no"] * 50 + ['"no"'], False),  # quotes within a cell are its own
    (['"no""x"', '""""', '""', 'no"', 'no""', '5"5', "'no\"x'", '"no\nno"', '","'], False),
    (["no", '"no\n'], True),
]


def test_a_quote_that_is_not_closed_swallows_no_rows(sums_of, tmp_path):
    schema = SCHEMA.select(["word", "y"])
    for i, (lines, refused) in enumerate(LINES):
        content = "\n".join(['"word",y', *(f"{line},1" for line in lines)]).encode("utf-8-sig")
        path = tmp_path / ("rows.csv", "rows.csv.gz")[i % 2]
        path.write_bytes(gzip.compress(content) if i % 2 else content)
        if refused:
            with pytest.raises(dps.DataError, match="a quote is not closed"):
                sums_of(path, schema)
        else:
            (sums, _), rows = sums_of(path, schema)
            assert rows == len(lines) == sum(sums)


def test_quotes_are_followed_from_block_to_block(tmp_path, monkeypatch):
    """As by a parser that reads one character after the other."""
    rng, path, seen = np.random.default_rng(0), tmp_path / "rows.csv", []
    for _ in range(300):
        text = "".join(rng.choice(list('""",\na'), rng.integers(30)))
        path.write_text(text)
        monkeypatch.setattr(delimited, "_BLOCK", int(rng.integers(1, 10)))
        try:
            list(csv.reader(io.StringIO(text, ""), strict=True))
        except csv.Error:
            seen.append(False)
            with pytest.raises(pa.ArrowInvalid):
                delimited._check_quotes(path, ",", False, TextFile())
        else:
            seen.append(True)
            delimited._check_quotes(path, ",", False, TextFile())
    assert 50 < sum(seen) < 250


def test_a_file_of_another_kind_is_named_without_a_cell(tmp_path):
    plan = dps.plan(SCHEMA, {"x": dps.Mean("x")}, budget=dps.PureDP(1))
    wide = "x,y\n7,7\n".encode("utf-16")
    for name, content, said in [
        ("a.csv", gzip.compress(b"x,y\n7,7\n", mtime=0), "seems to be a gzip file, .*; add"),
        ("a.csv", wide, "seems to be text in UTF-16, not .* as UTF-8"),
        ("a.tsv", b"\xfe\xff" + "x,y\n7".encode("utf-16-be"), "seems to be text in UTF-16"),
        ("a.csv.gz", gzip.compress(wide, mtime=0), "holds text in UTF-16"),
        ("a.csv.gz", b"x,y\n7,7\n", "is not a gzip file; take .gz off its name"),
        ("a.csv", b"PK\x03\x04777", "seems to be a zip file or an Excel workbook"),
        ("a.csv", b"PAR1777", "seems to be a Parquet file, .*name it .parquet"),
    ]:
        (tmp_path / name).write_bytes(content)
        for read in (dps.check, dps.measure):
            with pytest.raises(dps.DataError, match=rf"^'{name}' {said}") as caught:
                read(plan, tmp_path / name)
            assert "7" not in str(caught.value)


@pytest.mark.parametrize("last", ["secret", "secret,1,no,1,,9", '1,1,"secret,1,'])
def test_no_error_holds_a_cell_that_did_not_convert(last, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "CSV_BLOCK", 64)
    path, rows = tmp_path / "rows.csv", ["1,1,no,1,"] * 30
    path.write_text("\n".join([HEADER, *rows, "secret,1,no,1,", *rows, last]))
    with pytest.raises(dps.DataError, match=r"^a line has more or fewer fields than") as refused:
        exact_sums(open_source(path, SCHEMA), SCHEMA, BLOCKS)
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is refused.value.__cause__ is None


def test_an_interrupt_while_an_error_is_handled_holds_no_cell(tmp_path, monkeypatch):
    def stop(self, rows):
        try:
            raise pa.ArrowInvalid("secret")
        except pa.ArrowInvalid:
            raise KeyboardInterrupt  # noqa: B904

    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # progress is reported in the first thread
    monkeypatch.setattr("dpstats.private.tables.Reported.__call__", stop)
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEADER}\n1,1,no,1,\n")
    with pytest.raises(KeyboardInterrupt) as stopped:
        exact_sums(open_source(path, SCHEMA), SCHEMA, BLOCKS)
    assert stopped.value.__context__ is None


def test_texts_read_at_once_have_the_numbers_of_the_pattern_to_the_last_bit():
    cells = pa.array([None, *(cell.encode() for cell in CELLS), b"1\xff"], pa.large_binary())
    for start in range(len(cells)):
        stored = cells.slice(start, 3) if start else cells
        array = arrow.plain(stored)
        by_pattern = arrow._numbers_by_pattern(array)
        np.testing.assert_array_equal(numbers_from_text(array), by_pattern)
        np.testing.assert_array_equal(arrow.floats(stored), by_pattern)
    values = np.random.default_rng(2).normal(size=500) * 10.0 ** np.arange(-250, 250)
    texts = pa.array([repr(float(value)).encode() for value in values], pa.large_binary())
    np.testing.assert_array_equal(numbers_from_text(texts), values)
