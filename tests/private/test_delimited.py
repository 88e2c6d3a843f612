"""Cells of delimited text mean what their text means, whatever the others are."""

import csv
import gzip
import io
import os

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dps
from dpstats.errors import DataError
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.private import delimited
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Category, Number, Schema

SCHEMA = Schema([
    Number("x", -2, 9, points=45, edges=[0.5, 5], allow_missing=True),
    Number("y", values=[0, 1, 5], missing=1),
    Category("word", ["no", "NA", "5"], allow_missing=True),
    Category("grade", [1, 5], allow_missing=True),
    Number("seen", "2024-01-01", "2024-12-31", edges=["2024-05-02"], allow_missing=True),
])  # fmt: skip
BLOCKS = [*(Cells.table(SCHEMA, [name]) for name in SCHEMA.names), Moments.of(SCHEMA, ["x", "y"])]
HEADER = '"x",y,word,grade,"seen"'
PLAIN = ["5", "-0", "0.25", "1e0", ".5", "5.", "4.9999999999999999999", "1e-400", "-1e308"]
ODD = [
    "", "NA", "nan", "NaN", "null", "NULL", "N/A", "+5", "++5", "+-5", "+nan", "+inf", " 5", "5 ",
    "\t5", "\u00a05", "5\n", "  ", "1e3", "1e", "e5", "0x10", "1_000", "1,5", "1.5.0", "inf",
    "-Infinity", "-nan", "nan(1)", "1e400", "-1e999999999999", "1e-999999999999", "true", "FALSE",
    "5f", "1d5", "5\0", "\u0665", "--5", "-", "+", ".", "word", "2024-05-02", '"5"', "5'",
]  # fmt: skip


def outcome(data):
    """The sums and the number of rows, or the sentence of a refusal."""
    try:
        sums, rows = exact_sums(open_source(data, SCHEMA), SCHEMA, BLOCKS)
    except DataError as error:
        return str(error)
    return [block.tolist() for block in sums], rows


def quoted(cell):
    return '"' + cell.replace('"', '""') + '"'


cells = st.sampled_from(PLAIN) | st.sampled_from(ODD) | st.floats().map(repr)
spelled = st.tuples(cells, st.booleans()).map(
    lambda pair: quoted(pair[0]) if pair[1] or set(pair[0]) & set(',"\n\r') else pair[0]
)


def test_every_cell_means_what_its_text_means(tmp_path):
    @given(rows=st.lists(st.lists(spelled, min_size=5, max_size=5), max_size=5), end=st.booleans())
    @settings(max_examples=60)
    def check(rows, end):
        text = "\n".join([HEADER, *map(",".join, rows)]) + "\n" * end
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode())
        _, *lines = csv.reader(io.StringIO(text, newline=""))
        texts = zip(*lines, strict=True) if lines else [[]] * 5
        columns = {n: pa.array(c, pa.string()) for n, c in zip(SCHEMA.names, texts, strict=True)}
        assert outcome(path) == outcome(pa.table(columns))

    check()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_lines_of_any_kind_have_one_outcome(delimiter, tmp_path, monkeypatch):
    """Quotes that are never closed, short and long lines, bytes that are no UTF-8."""
    line = st.text('"15.+ eN,;\t\r', max_size=9) | st.just(delimiter.join("15551"))

    @given(
        lines=st.lists(line, max_size=6),
        bad=st.sampled_from([b"", b"5\xff", b"\xff\xfe1\x005\x00"]),
    )
    @settings(max_examples=40)
    def check(lines, bad):
        rows = [*lines, delimiter.join("51551")]
        header = HEADER.replace(",", delimiter)
        path = tmp_path / "rows.csv"
        path.write_bytes("\r\n".join([header, *rows]).encode() + bad)
        found = []
        for size in (32, 2**20):
            monkeypatch.setattr(delimited, "CSV_BLOCK", size)
            found.append(outcome(path))
        assert found[0] == found[1]

    check()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (['"no'] + ["no"] * 50 + ['"no"'] + ["no"] * 9, True),  # it would swallow 50 rows
        (['"no'] + ['"no"'] * 50, True),
        (['no"x'] + ["no"] * 50 + ['"no"'], False),  # quotes within a cell are its own
        (['"no""x"', '""""', '""', 'no"', 'no""', '5"5', "'no\"x'"], False),
        (['"no"x"', "no"], True),
        (['"no"x', "no"], True),
        (['"no\nno"', '"\r\n"', '","'], False),
        (["no", '"no'], True),
        (["no", '"no\n'], True),
        (["no", '"no""'], True),
        (["no", '""'], False),
    ],
)
def test_a_quote_that_is_not_closed_swallows_no_rows(suffix, lines, refused, tmp_path, monkeypatch):
    path = tmp_path / f"rows{suffix}"
    content = "\n".join(['"word",y', *(f"{line},1" for line in lines)]).encode("utf-8-sig")
    path.write_bytes(gzip.compress(content) if suffix == ".csv.gz" else content)
    for size in (2**20, 1, 2, 7):
        monkeypatch.setattr(delimited, "_BLOCK", size)
        source = open_source(path, SCHEMA.select(["word", "y"]))
        if refused:
            with pytest.raises(DataError, match="a quote is not closed"):
                exact_sums(source, SCHEMA, BLOCKS[2:3])
        else:
            sums, rows = exact_sums(source, SCHEMA, BLOCKS[2:3])
            assert rows == len(lines) == sum(sums[0])


def test_quotes_are_followed_from_block_to_block(tmp_path, monkeypatch):
    """As by a parser that reads one character after the other."""

    def followed(text):
        state, text = "start", text + "\n"
        for mark in text:
            ends = mark in ",\n"
            if state == "quoted":
                state = "quote" if mark == '"' else "quoted"
            elif state == "quote":
                if mark != '"' and not ends:
                    return False
                state = "quoted" if mark == '"' else "start"
            elif ends:
                state = "start"
            else:
                state = "quoted" if mark == '"' and state == "start" else "plain"
        return state == "start"

    path = tmp_path / "rows.csv"

    @given(text=st.text('"",\na', max_size=30), size=st.integers(1, 9))
    @settings(max_examples=400)
    def check(text, size):
        path.write_text(text)
        monkeypatch.setattr(delimited, "_BLOCK", size)
        try:
            delimited._check_quotes(path, ",", False, delimited.TextFile())
            found = True
        except pa.ArrowInvalid:
            found = False
        assert found == followed(text)

    check()


def test_a_file_of_another_kind_is_named_without_a_cell(tmp_path):
    for name, content, said in [
        (
            "a.csv",
            gzip.compress(b"x,y\n7,7\n", mtime=0),
            "seems to be a gzip file, not delimited text; add",
        ),
        ("a.csv", "x,y\n7,7\n".encode("utf-16"), "seems to be text in UTF-16, not .* as UTF-8"),
        ("a.tsv", b"\xfe\xff" + "x,y\n7".encode("utf-16-be"), "seems to be text in UTF-16"),
        ("a.csv.gz", gzip.compress("x\n7\n".encode("utf-16"), mtime=0), "holds text in UTF-16"),
        ("a.csv.gz", b"x,y\n7,7\n", "is not a gzip file; take .gz off its name"),
        ("a.csv", b"PK\x03\x04777", "seems to be a zip file or an Excel workbook"),
        ("a.csv", b"PAR1777", "seems to be a Parquet file, .*name it .parquet"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        plan = dps.plan(
            dps.Schema([dps.Boolean("x")]), {"x": dps.Proportion("x")}, budget=dps.PureDP(1)
        )
        for read in (dps.check, dps.measure):
            with pytest.raises(dps.DataError, match=rf"^'{name}' {said}") as caught:
                read(plan, path)
            assert "7" not in str(caught.value)


def test_no_error_holds_a_cell_that_did_not_convert(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "CSV_BLOCK", 64)
    path = tmp_path / "rows.csv"
    rows = ["1,1,no,1,"] * 30
    path.write_text("\n".join([HEADER, *rows, "secret,1,no,1,", *rows, "secret"]))
    with pytest.raises(DataError, match=r"^a line has more or fewer fields than") as refused:
        exact_sums(open_source(path, SCHEMA), SCHEMA, BLOCKS)
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None


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
