"""Cells of every kind have a code: Python objects, numbers of any type, text in CSV."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import DataError
from dpstats.families.tables.cells import Cells
from dpstats.private import delimited
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Boolean, Category, Number, Schema, arrow
from dpstats.schema.arrow import numbers_from_text


def codes_of(column, cells):
    frame = pd.DataFrame({column.name: pd.Series(cells, dtype=object)})
    source = open_source(frame, Schema([column]))
    (batch,) = source.batches([column.name])
    return column.encode(batch.column(column.name)).tolist()


ODDITIES = [
    [1], {"a": 1}, np.array([1, 2]), np.array([]), object(), 1 + 2j, np.complex128(1), b"\xff",
    pd.Timestamp("2020-01-01", tz="UTC"), np.datetime64("2020"), np.timedelta64(5, "D"),
    "x" * 10**6, Decimal("sNaN"), lambda: 1, Exception("no"),
]  # fmt: skip


def test_whatever_an_object_is_it_has_a_code():
    absent = [None, math.nan, np.float64("nan"), pd.NA, pd.NaT, Decimal("NaN")]
    word = Category("x", ["a", "b", "c"], missing="b", other="c")
    grade = Category("x", [1, 2, 3], missing=2, other=3)
    assert codes_of(word, absent) == codes_of(grade, absent) == [1] * len(absent)
    undeclared = [cell for cell in ODDITIES if not isinstance(cell, Decimal)]
    assert codes_of(word, [*undeclared, 7, True, "A"]) == [2] * (len(undeclared) + 3)
    assert codes_of(grade, [*undeclared, "one", "a", math.inf]) == [2] * (len(undeclared) + 3)
    number = Number("x", 0, 10, points=11, missing=7)
    assert set(codes_of(number, [*absent, *ODDITIES, "three"])) == {2}


def test_numbers_of_any_kind_match_by_value():
    grade = Category("x", [0, 1, 2.5], other=2.5)
    ones = [1, 1.0, True, np.int8(1), np.float32(1), np.bool_(True), Decimal("1.0"), Fraction(1)]
    assert codes_of(grade, ones) == [1] * len(ones)
    assert codes_of(Category("x", [0.1, 0.2]), [Decimal("0.2"), Fraction(1, 5), 0.2]) == [1] * 3
    number = Number("x", 0, 10, points=11)
    tens = [10, 10.0, 10**400, Fraction(10**400), Decimal("1e999"), np.uint8(10), math.inf]
    assert codes_of(number, tens) == [5] * len(tens)
    assert codes_of(number, [-(10**400), False, Fraction(1, 2), np.float32(0.5)]) == [
        -5,
        -5,
        -4,
        -4,
    ]


def test_decimals_match_the_level_they_spell_on_every_route():
    column = Category("x", [0.1, 0.2, 0.7], missing=0.1)
    cells = [Decimal("0.7"), Decimal("0.2"), None]
    expected = codes_of(column, cells)
    assert expected == [2, 1, 0]
    for data in (pa.table({"x": cells}), pl.DataFrame({"x": cells})):
        (batch,) = open_source(data, Schema([column])).batches(["x"])
        assert column.encode(batch.column("x")).tolist() == expected


def test_one_missing_cell_that_turns_integers_to_floats_changes_no_other():
    column = Category("x", [1, 2, 3], allow_missing=True)
    assert codes_of(column, [1, 2, 3]) == codes_of(column, [1, 2, 3, None])[:3] == [0, 1, 2]
    frame = pd.DataFrame({"x": [1, 2, 3, None]})
    assert frame["x"].dtype == np.float64
    (batch,) = open_source(frame, Schema([column])).batches(["x"])
    assert column.encode(batch.column("x")).tolist() == [0, 1, 2, 3]


def test_text_that_spells_numbers_is_read_as_numbers():
    texts = ["1.", ".5", " +3 ", "-2e-1", "1e400", "Infinity", "-inf", "TRUE", "False",
             "", "nan", "1,5", "0x10", "1_000", "two", "--1", "+", "."]  # fmt: skip
    numbers = numbers_from_text(pa.array([t.encode() for t in texts], pa.large_binary()))
    known = [1, 0.5, 3, -0.2, math.inf, math.inf, -math.inf, 1, 0]
    assert numbers[:9].tolist() == known
    assert np.all(np.isnan(numbers[9:]))


@given(
    texts=st.lists(
        st.none()
        | st.text("0123456789+-.eEinfatrufls \té\0_,x", max_size=9)
        | st.floats().map(repr)
        | st.sampled_from(["1e400", "-nan", "nan(1)", "-infinity", "5.", "-.5", "1 ", " 1", "1e"]),
        max_size=8,
    ),
    broken=st.booleans(),
    start=st.integers(0, 3),
)
@settings(max_examples=250)
def test_texts_read_at_once_have_the_numbers_of_the_pattern(texts, broken, start):
    cells = [None if text is None else text.encode() for text in texts]
    cells += [b"1\xff"] * broken
    stored = pa.array(cells, pa.large_binary()).slice(start)
    array = arrow.plain(stored)
    by_pattern = arrow._numbers_by_pattern(array)
    np.testing.assert_array_equal(numbers_from_text(array), by_pattern)
    np.testing.assert_array_equal(arrow.floats(stored), by_pattern)
    for text, number in zip(array, by_pattern, strict=True):
        one = pa.array([text.as_py()], pa.large_binary())
        np.testing.assert_array_equal(numbers_from_text(one), [number])
        np.testing.assert_array_equal(arrow.floats(one), [number])


def test_numbers_in_text_are_read_to_the_last_bit():
    values = np.random.default_rng(2).normal(size=500) * 10.0 ** np.arange(-250, 250)
    texts = [repr(float(value)).encode() for value in values]
    read = numbers_from_text(pa.array(texts, pa.large_binary()))
    np.testing.assert_array_equal(read, values)


def read_csv(text, schema, folder):
    path = folder / "cells.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    blocks = [Cells.table(schema, [name]) for name in schema.names]
    sums, n = exact_sums(open_source(path, schema), schema, blocks)
    return [block.tolist() for block in sums], n


def test_a_csv_cell_is_read_as_its_column_declares(tmp_path):
    schema = Schema([
        Category("code", ["01", "1", "NA"], allow_missing=True),
        Category("grade", [1, 2, 3], missing=2, other=3),
        Boolean("flag"),
    ])  # fmt: skip
    text = (
        "\ufeffgrade,extra,flag,code\n1.0,,true,01\n+1,x,1,1\nfour,,FALSE,NA\n,,yes,\nnan,,,1.0\n"
    )
    sums, n = read_csv(text, schema, tmp_path)
    assert n == 5
    assert sums == [[1, 2, 1, 1], [2, 2, 1], [3, 2]]


def test_csv_rows_longer_than_a_block_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "CSV_BLOCK", 64)
    schema = Schema([Category("word", ["no", "yes"])])
    lines = ["note,word", *(f"{'z' * (i * 7 % 300)},{'yes' if i % 3 else 'no'}" for i in range(90))]
    assert read_csv("\n".join(lines), schema, tmp_path) == ([[30, 60]], 90)


def test_a_quote_that_swallows_the_last_lines_is_refused(tmp_path):
    """The reader takes them for one cell: three rows would be lost without a word."""
    for end in ["", "\n", "\r\n\n"]:
        schema = Schema([Category("word", ["no", "yes"])])
        with pytest.raises(DataError, match=r"a quote is not closed; .*; nothing was released"):
            read_csv(f'word,note\nyes,a\nno,"b\nno,c\nyes,d\nyes,e{end}', schema, tmp_path)
        closed = f'word,note\nyes,a\nno,"b\nno,c"\n\nyes,d\nyes,"e\nf"{end}'
        assert read_csv(closed, schema, tmp_path) == ([[1, 3]], 4)
        inches = f'word,note\nyes,5"\n\nno,"b\nc"\nyes,6" and 7{end}'
        assert read_csv(inches, schema, tmp_path) == ([[1, 2]], 3)


def test_text_that_is_no_utf8_is_undeclared(tmp_path):
    schema = Schema([Category("word", ["no", "yes", "é"], other="é")])
    assert read_csv(b"word\nyes\n\xff\xfe\nno\n", schema, tmp_path) == ([[1, 1, 1]], 3)
